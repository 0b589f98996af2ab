package encap

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
)

func serveHTTP(ln net.Listener, h http.Handler) { (&http.Server{Handler: h}).Serve(ln) }

// read makes a server's WebSocket of the bytes that a client sent.
func read(sent []byte) *webSocket {
	return &webSocket{Stream: &recorded{}, r: bufio.NewReader(bytes.NewReader(sent))}
}

// recorded is a write-only connection.
type recorded struct {
	carrier.Stream
	bytes.Buffer
}

func (r *recorded) Write(p []byte) (int, error)      { return r.Buffer.Write(p) }
func (r *recorded) Read(p []byte) (int, error)       { return r.Buffer.Read(p) }
func (r *recorded) SetWriteDeadline(time.Time) error { return nil }

// frame returns a masked frame; the mask is the one of RFC 6455 section 5.7.
func frame(first byte, payload string) []byte {
	key := [4]byte{0x37, 0xfa, 0x21, 0x3d}
	b := append([]byte{first, 0x80 | byte(len(payload))}, key[:]...)
	for i := range len(payload) {
		b = append(b, payload[i]^key[i%4])
	}
	return b
}

func TestWebSocketFrames(t *testing.T) {
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	end := frame(0x82, "")
	for _, c := range []struct {
		name string
		sent []byte
		want string
		err  string // empty: a regular end
	}{
		{"one message", join(frame(0x82, "Hello"), end), "Hello", ""},
		{"fragments, an empty one among them", join(frame(0x02, "Hel"), frame(0x00, ""), frame(0x80, "lo"), end), "Hello", ""},
		{"an empty message in fragments ends it", join(frame(0x82, "Hello"), frame(0x02, ""), frame(0x80, "")), "Hello", ""},
		{"a ping in between", join(frame(0x02, "Hel"), frame(0x89, "?"), frame(0x80, "lo"), end), "Hello", ""},
		{"a pong in between", join(frame(0x82, "Hello"), frame(0x8a, ""), end), "Hello", ""},
		{"close before the end", join(frame(0x82, "Hello"), frame(0x88, "\x03\xe8")), "Hello", "unexpected EOF"},
		{"cut between frames", frame(0x82, "Hello"), "Hello", "unexpected EOF"},
		{"cut in a header", join(frame(0x82, "Hello"), []byte{0x82}), "Hello", "unexpected EOF"},
		{"cut in a payload", frame(0x82, "Hello")[:9], "Hel", "unexpected EOF"},
		{"text", frame(0x81, "Hello"), "", "in place of a binary message"},
		{"a continuation of nothing", frame(0x80, "Hello"), "", "in place of a binary message"},
		{"a message inside a message", join(frame(0x02, "Hel"), frame(0x82, "lo")), "Hel", "in place of a binary message"},
		{"not masked", []byte{0x82, 0x05, 'H', 'e', 'l', 'l', 'o'}, "", "masked frames"},
		{"reserved bits", frame(0xc2, "Hello"), "", "reserved bits"},
		{"a fragmented ping", frame(0x09, ""), "", "a control frame"},
		{"absurdly long", []byte{0x82, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4}, "", "a frame of 18446744073709551615 bytes"},
	} {
		got, err := io.ReadAll(read(c.sent))
		text := ""
		if err != nil {
			text = err.Error()
		}
		if string(got) != c.want || (c.err == "") != (err == nil) || !strings.Contains(text, c.err) {
			t.Errorf("%s: %q, %v; want %q, %q", c.name, got, err, c.want, c.err)
		}
	}
}

func TestWebSocketAnswersPing(t *testing.T) {
	w := read(append(frame(0x89, "there?"), frame(0x82, "")...))
	if _, err := io.ReadAll(w); err != nil {
		t.Fatal(err)
	}
	if got := w.Stream.(*recorded).Bytes(); string(got) != "\x8a\x06there?" {
		t.Errorf("answered %q", got)
	}
}

// What one end writes, in writes of any size, the other reads, and what it does not end regularly
// does not end regularly there.
func TestWebSocketRoundTrip(t *testing.T) {
	for _, masks := range []bool{false, true} {
		var conn recorded
		w := &webSocket{Stream: &conn, masks: masks}
		var want []byte
		for _, n := range []int{0, 1, 125, 126, 127, 65535, 65536, 65537, 200_000} {
			part := bytes.Repeat([]byte{byte(n)}, n)
			if _, err := w.Write(part); err != nil {
				t.Fatal(err)
			}
			want = append(want, part...)
		}
		whole := bytes.Clone(conn.Bytes())
		if err := w.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte("x")); !errors.Is(err, errShut) {
			t.Errorf("a write after the end: %v", err)
		}
		for _, c := range []struct {
			sent []byte
			err  error
		}{{conn.Bytes(), nil}, {whole, io.ErrUnexpectedEOF}} {
			r := &webSocket{Stream: &recorded{}, r: bufio.NewReader(bytes.NewReader(c.sent)), masks: !masks}
			if got, err := io.ReadAll(r); !bytes.Equal(got, want) || err != c.err {
				t.Errorf("masked %v: %d bytes of %d, %v; want %v", masks, len(got), len(want), err, c.err)
			}
		}
	}
}

// Every shorter prefix of a stream is reported as cut off.
func FuzzWebSocket(f *testing.F) {
	f.Add(append(frame(0x82, "Hello"), frame(0x82, "")...))
	f.Add(append(frame(0x89, "?"), frame(0x88, "\x03\xe8")...))
	f.Fuzz(func(t *testing.T, sent []byte) {
		got, err := io.ReadAll(read(sent))
		if len(got) > len(sent) || err == nil && len(sent) == 0 {
			t.Errorf("%d bytes of %d, %v", len(got), len(sent), err)
		}
	})
}

// forwarder is an HTTP proxy without CONNECT. It forwards upgrade requests, by their absolute URL,
// if the credentials are right.
func forwarder(t *testing.T) (addr string, forwarded *atomic.Int64) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	forwarded = new(atomic.Int64)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodConnect {
			http.Error(w, "no tunnels here", http.StatusMethodNotAllowed)
			return
		}
		if req.Header.Get("Proxy-Authorization") != "Basic YWRhOmNhc3RsZQ==" {
			http.Error(w, "who are you?", http.StatusProxyAuthRequired)
			return
		}
		up, err := net.Dial("tcp", req.URL.Host)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		req.Header.Del("Proxy-Authorization")
		req.Write(up)
		c, buffered, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		early, _ := buffered.Reader.Peek(buffered.Reader.Buffered())
		up.Write(early)
		forwarded.Add(1)
		carrier.Join(context.Background(), c.(*net.TCPConn), up.(*net.TCPConn), carrier.Options{})
	})}
	go srv.Serve(ln)
	t.Cleanup(func() { srv.Close() })
	return ln.Addr().String(), forwarded
}

// An HTTP proxy that opens no tunnel forwards a WebSocket.
func TestForwardedWebSocket(t *testing.T) {
	g := newGrid(t)
	s := serve(t, g.proxy.DataServer())
	addr, forwarded := forwarder(t)
	d := NewDialer(g.clientTLS)
	route := Route{HTTPProxy: carrier.HTTPProxy{Addr: addr, User: "ada", Password: "castle"}}
	c, form, err := d.Dial(t.Context(), s.addr, route)
	if err != nil || form != WebSocket || forwarded.Load() != 1 {
		t.Fatalf("%v, %v, %d forwarded", form, err, forwarded.Load())
	}
	talk(t, c)
	route.HTTPProxy.Password = "wrong"
	_, _, err = NewDialer(g.clientTLS).Dial(t.Context(), s.addr, route)
	if err == nil || !strings.Contains(err.Error(), "407") || !strings.Contains(err.Error(), "405") {
		t.Errorf("with a wrong password: %v", err)
	}
}
