package sealed

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// The records of TLS 1.3 (RFC 8446, section 5). After the handshake each is
//
//	23:u8 0x0303:u16 length:u16 | sealed: content, type:u8, zeros | tag[16]
//
// and the five bytes of its header are the additional data of the seal.
const (
	headerLen    = 5
	tagLen       = 16                     // of all suites
	overhead     = headerLen + 1 + tagLen // of a record over its content
	maxContent   = 1 << 14
	maxSealed    = maxContent + 256      // what a peer may send; ours are maxContent+1+tagLen
	maxRecord    = headerLen + maxSealed // must fit in every read buffer
	protocolVers = 0x0303
)

// contentType says what is in a record (RFC 8446, appendix B.1).
type contentType byte

const (
	typeCipher      contentType = 20 // ChangeCipherSpec, during the handshake only: for old middleboxes
	typeAlert       contentType = 21 // level:u8 code:u8
	typeHandshake   contentType = 22 // after the handshake: KeyUpdate only
	typeApplication contentType = 23
)

// keyUpdate is the one handshake message that may follow the handshake
// (RFC 8446, section 4.6.3): type:u8 length:u24 request:u8.
var keyUpdate = [...]byte{24, 0, 0, 1, 0}

// maxUseless bounds how many consecutive records may bring the reader no data: empty ones, and
// changes of keys.
const maxUseless = 16

// alert is a code of RFC 8446, section 6.
type alert byte

const (
	alertCloseNotify       alert = 0
	alertUnexpectedMessage alert = 10
	alertBadRecordMAC      alert = 20
	alertRecordOverflow    alert = 22
	alertHandshakeFailure  alert = 40
	alertBadCertificate    alert = 42
	alertExpired           alert = 45 // "or is not currently valid"
	alertUnknownCA         alert = 48
	alertAccessDenied      alert = 49
	alertDecodeError       alert = 50
	alertInternalError     alert = 80
	alertUserCanceled      alert = 90
)

// fault is a protocol violation by the peer, or by an attacker on the way: the alert for the peer,
// and the text for the caller.
type fault struct {
	tell alert
	text string
}

func (f *fault) Error() string { return f.text }

var (
	errOverflow   = &fault{alertRecordOverflow, fmt.Sprintf("a record of more than %d bytes", maxSealed)}
	errEmpty      = &fault{alertUnexpectedMessage, "a record without content type"}
	errUseless    = &fault{alertUnexpectedMessage, fmt.Sprintf("more than %d records in a row without data", maxUseless)}
	errMessage    = &fault{alertUnexpectedMessage, "a handshake message that is no KeyUpdate"}
	errAlertForm  = &fault{alertDecodeError, "an alert that is not two bytes long"}
	errSeal       = &fault{alertBadRecordMAC, "a record's seal is broken: it was changed, left out, repeated or moved on the way"}
	errUnsealed   = &fault{alertUnexpectedMessage, "a record that is not sealed"}
	errUnexpected = &fault{alertUnexpectedMessage, "a record of unknown content type"}
)

// appendRecord appends n bytes of content, gathered from from, to out as one sealed record. It does
// not allocate if there is room for n+overhead bytes.
func (h *half) appendRecord(out []byte, t contentType, from *cursor, n int) []byte {
	out = slices.Grow(out, n+overhead)
	start := len(out)
	out = append(out, byte(typeApplication), protocolVers>>8, protocolVers&0xff, 0, 0)
	binary.BigEndian.PutUint16(out[start+3:], uint16(n+1+tagLen))
	out = from.appendTo(out, n)
	out = append(out, byte(t))
	header, inner := out[start:start+headerLen], out[start+headerLen:]
	sealed := h.aead.Seal(inner[:0], h.next(), inner, header)
	return out[:start+headerLen+len(sealed)]
}

// open opens a whole record. The content is in into if it fits there with a byte to spare (direct),
// otherwise in the record's own memory.
func (h *half) open(record, into []byte) (content []byte, t contentType, direct bool, err error) {
	header, body := record[:headerLen], record[headerLen:]
	dst := body[:0]
	if n := len(body) - tagLen; n <= len(into) {
		dst, direct = into[:0:n], true
	}
	inner, err := h.aead.Open(dst, h.next(), body, header)
	if err != nil {
		return nil, 0, direct, errSeal
	}
	for n := len(inner) - 1; n >= 0; n-- { // zeros after the type are padding
		if inner[n] != 0 {
			if n > maxContent {
				return nil, 0, direct, errOverflow
			}
			return inner[:n], contentType(inner[n]), direct, nil
		}
	}
	return nil, 0, direct, errEmpty
}

// cursor iterates over a sequence of buffers.
type cursor struct {
	bufs   [][]byte // the caller's, not changed
	in, at int      // the next byte is bufs[in][at]
}

// appendTo appends the next n bytes, which must be there, to out.
func (c *cursor) appendTo(out []byte, n int) []byte {
	for n > 0 {
		part := c.bufs[c.in][c.at:]
		if len(part) > n {
			c.at += n
			return append(out, part[:n]...)
		}
		out = append(out, part...)
		n -= len(part)
		c.in, c.at = c.in+1, 0
	}
	return out
}
