package sealed

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"time"
)

// transport is the carrier as crypto/tls sees it during the handshake. It ensures that the record
// layer can take over exactly after the handshake: crypto/tls gets no byte of a record that it has
// not asked for, and its writes after it has the traffic keys are counted.
type transport struct {
	net.Conn
	server  bool
	keys    keyLog
	header  [headerLen]byte
	have    int // bytes of header that were read
	unread  int // unread bytes of the record after the header
	flights int // writes since both secrets are known

	early []byte // to be sent after the server's flight
	half  half   // the keys that sealed it

	refusal alert  // of the peer's certificate; 0: none. The next write is that of an alert
	suite   uint16 // the cipher suite, if refusal is set

	around    Around
	aroundErr error // the error of a function of around
}

// Read returns at most the rest of the current record, or of its header.
func (t *transport) Read(p []byte) (int, error) {
	if between := t.around.Between; between != nil && t.aroundErr == nil {
		t.around.Between = nil
		t.aroundErr = between()
	}
	if t.aroundErr != nil {
		return 0, t.aroundErr
	}
	if t.unread > 0 {
		n, err := t.Conn.Read(p[:min(len(p), t.unread)])
		t.unread -= n
		return n, err
	}
	n, err := t.Conn.Read(p[:min(len(p), headerLen-t.have)])
	t.have += copy(t.header[t.have:], p[:n])
	if t.have == headerLen {
		t.have, t.unread = 0, int(binary.BigEndian.Uint16(t.header[3:]))
		if kind := contentType(t.header[0]); t.around.Stray != nil && (kind < typeCipher || kind > typeApplication) {
			if t.aroundErr = t.around.Stray(t.header[:]); t.aroundErr != nil {
				return 0, t.aroundErr
			}
		}
	}
	return n, err
}

// Write appends the early data to the server's flight. After that it drops everything else that
// crypto/tls writes, such as an alert, because it would use a record number that is used already.
// refuse informs the client instead.
func (t *transport) Write(p []byte) (int, error) {
	if t.refusal != 0 && t.half.seq == 0 {
		return t.writeRefusal(p)
	}
	if t.keys.client == nil || t.keys.server == nil {
		return t.Conn.Write(p)
	}
	t.flights++
	switch {
	case len(t.early) == 0:
		return t.Conn.Write(p)
	case t.flights > 1:
		return len(p), nil
	}
	out, err := t.withEarly(p)
	if err != nil {
		return 0, err
	}
	n, err := t.Conn.Write(out)
	return min(n, len(p)), err
}

// withEarly returns the server's flight and one more record, sealed with the server's traffic keys.
func (t *transport) withEarly(flight []byte) ([]byte, error) {
	id, err := suiteChosen(flight)
	if err != nil {
		return nil, err
	}
	s, err := suiteOf(id)
	if err != nil {
		return nil, err
	}
	if err := t.half.init(s, t.keys.server); err != nil {
		return nil, err
	}
	from := cursor{bufs: [][]byte{t.early}}
	return t.half.appendRecord(bytes.Clone(flight), typeApplication, &from, len(t.early)), nil
}

// writeRefusal writes p, which ends with the alert that crypto/tls sends for every refusal, with a
// specific alert in its place: the only record sealed with the same keys. What precedes it is the
// client's plain-text ChangeCipherSpec for old middleboxes (RFC 8446, appendix D.4).
func (t *transport) writeRefusal(p []byte) (int, error) {
	plain := 0
	for len(p) >= plain+headerLen && contentType(p[plain]) == typeCipher {
		plain += headerLen + int(binary.BigEndian.Uint16(p[plain+3:]))
	}
	secret := t.keys.clientHandshake
	if t.server {
		secret = t.keys.server
	}
	out := p
	var h half
	if s, err := suiteOf(t.suite); err == nil && plain <= len(p) && secret != nil && h.init(s, secret) == nil {
		out = h.appendAlert(bytes.Clone(p[:plain]), t.refusal)
	}
	n, err := t.Conn.Write(out)
	if err == nil {
		n = len(p)
	}
	return min(n, len(p)), err
}

// refuse tells a client that was sent early data that the handshake failed, and why if the cause is
// its certificate.
func (t *transport) refuse() {
	if t.half.seq == 0 {
		return // crypto/tls has sent the alert
	}
	a := alertHandshakeFailure
	if t.refusal != 0 {
		a = t.refusal
	}
	t.SetWriteDeadline(time.Now().Add(refusalTime))
	t.Conn.Write(t.half.appendAlert(nil, a)) // best effort
}

// suiteChosen reads the cipher suite from the ServerHello (RFC 8446, section 4.1.3) that begins our
// own flight: record header[5] type:u8 length:u24 version:u16 random[32] session:u8+n suite:u16.
func suiteChosen(flight []byte) (uint16, error) {
	const session = headerLen + 4 + 2 + 32
	if len(flight) > session && flight[0] == byte(typeHandshake) && flight[headerLen] == 2 {
		if at := session + 1 + int(flight[session]); len(flight) >= at+2 {
			return binary.BigEndian.Uint16(flight[at:]), nil
		}
	}
	return 0, errors.New("crypto/tls did not begin its flight with a ServerHello; this build cannot send anything early")
}

// keyLog receives the traffic secrets of one handshake, as lines "LABEL RANDOM SECRET", the last
// two hexadecimal. It drops other secrets.
type keyLog struct {
	client, server  []byte // the first secrets for what the client and the server send
	clientHandshake []byte // for what the client sends during the handshake
}

// Write parses one line.
func (k *keyLog) Write(line []byte) (int, error) {
	fields := bytes.Fields(line)
	if len(fields) != 3 {
		return 0, fmt.Errorf("key log line of %d fields, want 3", len(fields))
	}
	var where *[]byte
	switch string(fields[0]) {
	case "CLIENT_TRAFFIC_SECRET_0":
		where = &k.client
	case "SERVER_TRAFFIC_SECRET_0":
		where = &k.server
	case "CLIENT_HANDSHAKE_TRAFFIC_SECRET":
		where = &k.clientHandshake
	default:
		return len(line), nil
	}
	secret, err := hex.AppendDecode(nil, fields[2])
	if err != nil {
		return 0, fmt.Errorf("key log: %w", err)
	}
	*where = secret
	return len(line), nil
}
