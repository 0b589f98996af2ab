package encap

import (
	"bufio"
	"crypto/rand"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
)

// A stream inside a WebSocket (RFC 6455): its bytes are the payload of binary messages, whose
// boundaries mean nothing, except for an empty message, which ends a direction. A Close frame
// before both directions have ended cuts the stream.

// webSocketPath is the path of an upgrade request, and webSocketProtocol the subprotocol.
const (
	webSocketPath     = "/isthmus"
	webSocketProtocol = "isthmus-data"
)

// Bounds of a WebSocket.
const (
	maxHead     = 8 << 10  // of the request and of the answer, in bytes
	maxControl  = 125      // payload of a control frame, RFC 6455 section 5.5
	maxPayload  = 64 << 10 // of sent frames
	goodbyeTime = time.Second
)

// The opcodes, RFC 6455 section 11.8, and bits of a frame's first two bytes.
const (
	opContinue = 0x0
	opBinary   = 0x2
	opClose    = 0x8
	opPing     = 0x9
	opPong     = 0xa

	bitFin  = 0x80
	bitMask = 0x80
)

// acceptWebSocket answers the upgrade request at the start of c.
func acceptWebSocket(c carrier.Stream) (carrier.Stream, error) {
	limited := &io.LimitedReader{R: c, N: maxHead}
	r := bufio.NewReader(limited)
	req, err := http.ReadRequest(r)
	if err != nil {
		return nil, fmt.Errorf("WebSocket %w: %w", ErrHandshake, err)
	}
	if why := refusesUpgrade(req); why != "" {
		fmt.Fprintf(c, "HTTP/1.1 400 Bad Request\r\nSec-WebSocket-Version: 13\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s\n", len(why)+1, why)
		return nil, fmt.Errorf("WebSocket %w: %s", ErrHandshake, why)
	}
	answer := "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + acceptKey(req.Header.Get("Sec-WebSocket-Key")) + "\r\n"
	if hasToken(req.Header, "Sec-WebSocket-Protocol", webSocketProtocol) {
		answer += "Sec-WebSocket-Protocol: " + webSocketProtocol + "\r\n"
	}
	if _, err := io.WriteString(c, answer+"\r\n"); err != nil {
		return nil, fmt.Errorf("WebSocket %w: %w", ErrHandshake, err)
	}
	limited.N = math.MaxInt64
	return &webSocket{Stream: c, r: r}, nil
}

// refusesUpgrade returns why a request does not open a WebSocket here; empty if it does (RFC 6455
// section 4.2.1).
func refusesUpgrade(req *http.Request) string {
	key, err := base64.StdEncoding.DecodeString(req.Header.Get("Sec-WebSocket-Key"))
	switch {
	case req.Method != http.MethodGet || req.URL.Path != webSocketPath:
		return "only GET " + webSocketPath + " is served here"
	case !hasToken(req.Header, "Connection", "upgrade") || !hasToken(req.Header, "Upgrade", "websocket"):
		return "this is for WebSockets: Connection: Upgrade and Upgrade: websocket are needed; an HTTP proxy on the way may have taken them out"
	case req.Header.Get("Sec-WebSocket-Version") != "13":
		return "only version 13 of WebSocket is known"
	case err != nil || len(key) != 16:
		return "Sec-WebSocket-Key must be 16 bytes in base64"
	}
	return ""
}

// requestWebSocket opens a WebSocket on c, which leads to host, "host:port". target is the request
// target: a path or, for an HTTP proxy, an absolute URL.
func requestWebSocket(c carrier.Stream, host, target string, header http.Header) (carrier.Stream, error) {
	var nonce [16]byte
	rand.Read(nonce[:])
	key := base64.StdEncoding.EncodeToString(nonce[:])
	var head strings.Builder
	fmt.Fprintf(&head, "GET %s HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\nSec-WebSocket-Protocol: %s\r\n",
		target, host, key, webSocketProtocol)
	header.Write(&head) // to a strings.Builder, which does not fail
	head.WriteString("\r\n")
	if _, err := io.WriteString(c, head.String()); err != nil {
		return nil, fmt.Errorf("WebSocket %w: %w", ErrHandshake, err)
	}
	limited := &io.LimitedReader{R: c, N: maxHead}
	r := bufio.NewReader(limited)
	resp, err := http.ReadResponse(r, nil)
	switch {
	case err != nil:
		return nil, fmt.Errorf("WebSocket %w: %w", ErrHandshake, err)
	case resp.StatusCode != http.StatusSwitchingProtocols:
		return nil, fmt.Errorf("WebSocket %w: the answer is %q, want 101", ErrHandshake, resp.Status)
	case resp.Header.Get("Sec-WebSocket-Accept") != acceptKey(key):
		return nil, fmt.Errorf("WebSocket %w: the server that answered does not support it", ErrHandshake)
	}
	limited.N = math.MaxInt64
	return &webSocket{Stream: c, r: r, masks: true}, nil
}

// acceptKey returns the answer to a key, RFC 6455 section 4.2.2.
func acceptKey(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}

func hasToken(h http.Header, name, want string) bool {
	for _, line := range h.Values(name) {
		for token := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(token), want) {
				return true
			}
		}
	}
	return false
}

// webSocket is a stream inside a WebSocket. One goroutine may read while another writes.
type webSocket struct {
	carrier.Stream // the underlying stream
	r              *bufio.Reader
	masks          bool // this end is the client, which masks (RFC 6455 section 5.3)

	// State of the frame being read; owned by the reader.
	left  uint64 // payload bytes
	key   [4]byte
	at    int  // bytes read so far, for key
	fin   bool // last frame of its message
	open  bool // a message has begun and not ended
	some  bool // the message has bytes
	ended error

	mu   sync.Mutex // guards writing and the fields below
	out  []byte     // the frame being written
	shut bool       // CloseWrite was called
	fail error      // error of a write that left a partial frame
}

// NetConn returns the connection that carries the WebSocket.
func (w *webSocket) NetConn() net.Conn { return w.Stream }

// Read implements net.Conn.
func (w *webSocket) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for w.ended == nil && w.left == 0 {
		if err := w.advance(); err != nil {
			return 0, err
		}
	}
	if w.ended != nil {
		return 0, w.ended
	}
	n, err := w.r.Read(p[:min(uint64(len(p)), w.left)])
	w.left -= uint64(n)
	w.some = w.some || n > 0
	if !w.masks { // frames from a client are masked
		for i := range p[:n] {
			p[i] ^= w.key[(w.at+i)%4]
		}
		w.at = (w.at + n) % 4
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// advance ends the current message if it is complete, or reads the next frame's header.
func (w *webSocket) advance() error {
	if w.open && w.fin {
		w.open = false
		if !w.some {
			w.ended = io.EOF
		}
		return nil
	}
	op, fin, n, err := w.header()
	if err != nil {
		return err
	}
	if op >= opClose {
		return w.control(op, fin, n)
	}
	if op != opBinary && op != opContinue || (op == opContinue) != w.open {
		return w.violated("a frame of opcode %#x in place of a binary message", op)
	}
	if !w.open {
		w.open, w.some = true, false
	}
	w.left, w.fin, w.at = n, fin, 0
	return nil
}

// header reads a frame's header (RFC 6455 section 5.2). An interrupted read loses nothing only
// while no byte was consumed, so the header is peeked first.
func (w *webSocket) header() (op byte, fin bool, n uint64, err error) {
	size := 2
	head, err := w.r.Peek(size)
	if err != nil {
		return 0, false, 0, cutOff(err, len(head))
	}
	short := head[1] &^ bitMask
	switch short {
	case 126:
		size += 2
	case 127:
		size += 8
	}
	masked := head[1]&bitMask != 0
	if masked {
		size += 4
	}
	if head, err = w.r.Peek(size); err != nil {
		return 0, false, 0, cutOff(err, 1)
	}
	op, fin = head[0]&0x0f, head[0]&bitFin != 0
	if head[0]&0x70 != 0 {
		return 0, false, 0, w.violated("reserved bits are set, and no extension was agreed on")
	}
	if masked == w.masks {
		return 0, false, 0, w.violated("masked frames come from the client, and only from it")
	}
	switch n = uint64(short); short {
	case 126:
		n = uint64(binary.BigEndian.Uint16(head[2:]))
	case 127:
		n = binary.BigEndian.Uint64(head[2:])
	}
	if n > math.MaxInt64 {
		return 0, false, 0, w.violated("a frame of %d bytes", n)
	}
	if masked {
		copy(w.key[:], head[size-4:])
	}
	w.r.Discard(size) // was peeked, so it does not fail
	return op, fin, n, nil
}

// cutOff returns the error of a connection that ended without a Close frame.
func cutOff(err error, got int) error {
	if err == io.EOF || err == bufio.ErrBufferFull && got > 0 {
		return io.ErrUnexpectedEOF
	}
	return err
}

// control handles a control frame.
func (w *webSocket) control(op byte, fin bool, n uint64) error {
	if n > maxControl || !fin {
		return w.violated("a control frame of %d bytes, or a part of one", n)
	}
	payload := make([]byte, n)
	if _, err := io.ReadFull(w.r, payload); err != nil {
		return cutOff(err, 1)
	}
	if !w.masks {
		for i := range payload {
			payload[i] ^= w.key[i%4]
		}
	}
	switch op {
	case opPing:
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.frame(opPong, payload)
	case opClose:
		w.ended = io.ErrUnexpectedEOF
	}
	return nil
}

// violated ends reading because of a protocol violation.
func (w *webSocket) violated(format string, args ...any) error {
	w.ended = fmt.Errorf("WebSocket: "+format, args...)
	return w.ended
}

var errShut = errors.New("WebSocket: write after its end")

// Write implements net.Conn.
func (w *webSocket) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.shut {
		return 0, errShut
	}
	done := 0
	for done < len(p) {
		part := p[done:min(done+maxPayload, len(p))]
		if err := w.frame(opBinary, part); err != nil {
			return done, err
		}
		done += len(part)
	}
	return done, nil
}

// frame writes one frame, which is a whole message. mu is held.
func (w *webSocket) frame(op byte, payload []byte) error {
	if w.fail != nil {
		return w.fail
	}
	mask := byte(0)
	if w.masks {
		mask = bitMask
	}
	b := append(w.out[:0], bitFin|op)
	switch n := len(payload); {
	case n < 126:
		b = append(b, mask|byte(n))
	case n <= math.MaxUint16:
		b = binary.BigEndian.AppendUint16(append(b, mask|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, mask|127), uint64(n))
	}
	if w.masks {
		var key [4]byte
		rand.Read(key[:])
		b = append(b, key[:]...)
		from := len(b)
		b = append(b, payload...)
		for i := range b[from:] {
			b[from+i] ^= key[i%4]
		}
	} else {
		b = append(b, payload...)
	}
	w.out = b
	_, w.fail = w.Stream.Write(b)
	return w.fail
}

// CloseWrite notifies the other end that nothing more follows.
func (w *webSocket) CloseWrite() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.shut {
		return nil
	}
	w.shut = true
	return w.frame(opBinary, nil)
}

// Close closes the connection, after a Close frame if it can be sent.
func (w *webSocket) Close() error {
	w.Stream.SetWriteDeadline(time.Now().Add(goodbyeTime)) // also wakes a writer that holds mu
	w.mu.Lock()
	w.shut = true
	w.frame(opClose, []byte{1000 >> 8, 1000 & 0xff}) // "normal closure", best effort
	w.mu.Unlock()
	return w.Stream.Close()
}

// SetKeepAlive turns the keep-alive of the TCP connection on or off.
func (w *webSocket) SetKeepAlive(on bool) error {
	if tcp := carrier.Socket(w.Stream); tcp != nil {
		return tcp.SetKeepAlive(on)
	}
	return nil
}
