package wan

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// The messages of the kernel's nfnetlink_queue that the emulator uses. All integers of the payload
// are big-endian, those of the netlink and attribute headers are in the machine's order
// (include/uapi/linux/netfilter/nfnetlink_queue.h).
const (
	msgPacket  = 0x0300 // a packet to decide about
	msgVerdict = 0x0301 // the answer for one id
	msgConfig  = 0x0302
	msgBatch   = 0x0303 // the answer for all ids up to one
	msgError   = 0x0002 // NLMSG_ERROR

	attrPacketHdr = 1  // id:u32 protocol:u16 hook:u8
	attrVerdict   = 2  // verdict:u32 id:u32
	attrTime      = 4  // arrival, seconds:u64 microseconds:u64
	attrInDev     = 5  // interface index:u32
	attrOutDev    = 6  // interface index:u32
	attrPayload   = 10 // the first bytes of the packet
	attrCapLen    = 13 // bytes of the packet:u32, if the payload was cut
	attrSkbInfo   = 14 // flags:u32

	skbGSO = 1 << 1 // the packet is a super-packet

	cfgCmd    = 1 // command:u8 pad:u8 family:u16
	cfgParams = 2 // bytes to copy:u32 mode:u8
	cfgMaxLen = 3 // packets:u32
	cfgMask   = 4 // mask of flags:u32
	cfgFlags  = 5 // flags:u32

	cmdBind    = 1
	copyPacket = 2
	flagGSO    = 1 << 2

	verdictDrop   = 0
	verdictAccept = 1

	nlmRequest = 1
	nlmAck     = 4
)

// native is the byte order of netlink headers. All machines that the emulator
// is built for are little-endian.
var native = binary.LittleEndian

// appendMessage appends the headers of a message of the given type for a
// queue; finish it with endMessage.
func appendMessage(b []byte, typ, flags uint16, queue uint16) []byte {
	b = native.AppendUint32(b, 0) // length, set by endMessage
	b = native.AppendUint16(b, typ)
	b = native.AppendUint16(b, flags)
	b = native.AppendUint32(b, 0)    // sequence
	b = native.AppendUint32(b, 0)    // port
	b = append(b, 0, 0)              // family, version
	return be.AppendUint16(b, queue) // resource
}

// endMessage sets the length of the message that starts at start.
func endMessage(b []byte, start int) []byte {
	native.PutUint32(b[start:], uint32(len(b)-start))
	return b
}

var be = binary.BigEndian

// appendAttr appends an attribute whose value is padded to four bytes.
func appendAttr(b []byte, typ uint16, value ...byte) []byte {
	b = native.AppendUint16(b, uint16(4+len(value)))
	b = native.AppendUint16(b, typ)
	b = append(b, value...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func appendAttr32(b []byte, typ uint16, v uint32) []byte {
	return appendAttr(b, typ, byte(v>>24), byte(v>>16), byte(v>>8), byte(v))
}

// appendBind appends the request to become the reader of queue.
func appendBind(b []byte, queue uint16) []byte {
	start := len(b)
	b = appendMessage(b, msgConfig, nlmRequest|nlmAck, queue)
	b = appendAttr(b, cfgCmd, cmdBind, 0, 0, 0)
	return endMessage(b, start)
}

// A setting is how the kernel passes on the packets of a queue.
type setting struct {
	copy uint32 // bytes of each packet
	gso  bool   // super-packets stay whole
}

// appendSetting appends the request to apply s and the bound maxLen to queue.
func appendSetting(b []byte, queue uint16, s setting, maxLen uint32, flags uint16) []byte {
	start := len(b)
	b = appendMessage(b, msgConfig, nlmRequest|flags, queue)
	b = appendAttr(b, cfgParams, byte(s.copy>>24), byte(s.copy>>16), byte(s.copy>>8), byte(s.copy), copyPacket)
	b = appendAttr32(b, cfgMaxLen, maxLen)
	var on uint32
	if s.gso {
		on = flagGSO
	}
	b = appendAttr32(b, cfgMask, flagGSO)
	b = appendAttr32(b, cfgFlags, on)
	return endMessage(b, start)
}

// appendVerdict appends a verdict: of type msgVerdict for id alone, of type msgBatch for every
// waiting id up to it.
func appendVerdict(b []byte, typ, queue uint16, verdict, id uint32) []byte {
	start := len(b)
	b = appendMessage(b, typ, nlmRequest, queue)
	b = appendAttr(b, attrVerdict,
		byte(verdict>>24), byte(verdict>>16), byte(verdict>>8), byte(verdict),
		byte(id>>24), byte(id>>16), byte(id>>8), byte(id))
	return endMessage(b, start)
}

// A message is one decoded message from the kernel. head points into the
// buffer given to nextMessage.
type message struct {
	typ     uint16
	errno   uint32 // of a msgError; 0 is an acknowledgement
	id      uint32
	in, out uint32 // interface indexes
	head    []byte // the packet's first bytes
	total   int    // the packet's length
	super   bool
	arrival time.Time // zero if the kernel does not report it
}

var errMessage = errors.New("malformed netlink message")

// nextMessage decodes the first message of b and returns what follows it.
func nextMessage(b []byte) (m message, rest []byte, err error) {
	if len(b) < 16 {
		return m, nil, fmt.Errorf("%w: %d bytes, header needs 16", errMessage, len(b))
	}
	size := int(native.Uint32(b))
	if size < 16 || size > len(b) {
		return m, nil, fmt.Errorf("%w: length %d of %d bytes", errMessage, size, len(b))
	}
	m.typ = native.Uint16(b[4:])
	body := b[16:size]
	rest = b[min(len(b), (size+3)&^3):]
	switch m.typ {
	case msgError:
		if len(body) < 4 {
			return m, nil, fmt.Errorf("%w: error of %d bytes", errMessage, len(body))
		}
		m.errno = -native.Uint32(body)
	case msgPacket:
		if len(body) < 4 {
			return m, nil, fmt.Errorf("%w: packet of %d bytes", errMessage, len(body))
		}
		err = m.attributes(body[4:])
	}
	return m, rest, err
}

// attributes decodes the attributes of a msgPacket. It skips unknown ones.
func (m *message) attributes(b []byte) error {
	hasID, cut := false, -1
	for len(b) >= 4 {
		size, typ := int(native.Uint16(b)), native.Uint16(b[2:])&0x3fff
		if size < 4 || size > len(b) {
			return fmt.Errorf("%w: attribute %d of length %d in %d bytes", errMessage, typ, size, len(b))
		}
		v := b[4:size]
		b = b[min(len(b), (size+3)&^3):]
		if typ == attrPayload {
			m.head = v
			continue
		}
		if typ == attrTime && len(v) == 16 {
			m.arrival = time.Unix(int64(be.Uint64(v)), int64(be.Uint64(v[8:])%1e6)*1000)
			continue
		}
		if len(v) < 4 {
			continue
		}
		switch u := be.Uint32(v); typ {
		case attrPacketHdr:
			m.id, hasID = u, true
		case attrInDev:
			m.in = u
		case attrOutDev:
			m.out = u
		case attrCapLen:
			cut = int(u)
		case attrSkbInfo:
			m.super = u&skbGSO != 0
		}
	}
	if !hasID {
		return fmt.Errorf("%w: packet without an id", errMessage)
	}
	m.total = max(cut, len(m.head))
	return nil
}
