package carrier

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// script serves one connection: it reads a CONNECT request, which it returns, and answers with raw
// bytes; an empty answer leaves it silent.
func script(t *testing.T, answer string) (addr string, request <-chan *http.Request) {
	t.Helper()
	ln, err := ListenIn(context.Background(), loopback, overlay.Ports{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	got := make(chan *http.Request, 1)
	go func() {
		c, err := ln.AcceptTCP()
		if err != nil {
			return
		}
		t.Cleanup(func() { c.Close() })
		r, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		got <- r
		if answer == "" {
			return
		}
		io.WriteString(c, answer)
		c.CloseWrite()
	}()
	return ln.Addr().String(), got
}

// What follows the proxy's answer in the same segment belongs to the tunnel, whatever precedes it.
func TestConnectReadsNotAByteTooMany(t *testing.T) {
	for name, head := range map[string]string{
		"short":                 "HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\n",
		"after 100 Continue":    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
		"after several interim": "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.0 200 OK\n\n",
		"of 12 kB":              "HTTP/1.1 200 OK\r\nSet-Cookie: " + strings.Repeat("c", 6000) + "\r\nX-Report: " + strings.Repeat("r", 6000) + "\r\n\r\n",
		"of many lines":         "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: y\r\n", 5000) + "\r\n",
	} {
		proxy, request := script(t, head+"first bytes of the tunnel")
		c, err := DialTCP(t.Context(), "target.example:443", HTTPProxy{Addr: proxy, User: "me", Password: "se:cret"})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		defer c.Close()
		if b, err := io.ReadAll(c); err != nil || string(b) != "first bytes of the tunnel" {
			t.Errorf("%s: read %q, %v", name, b, err)
		}
		r := <-request
		if r.Method != "CONNECT" || r.RequestURI != "target.example:443" || r.Host != "target.example:443" ||
			r.Header.Get("Proxy-Authorization") != "Basic bWU6c2U6Y3JldA==" {
			t.Errorf("asked %s %s, host %s, %v", r.Method, r.RequestURI, r.Host, r.Header)
		}
	}
}

func TestConnectRefused(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n\r\n"
	for answer, want := range map[string]struct {
		user  string
		class error
		text  string
	}{
		"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n":                                            {"", overlay.ErrRefused, "it requires credentials (407 Proxy Authentication Required); set the proxy's user and password"},
		"HTTP/1.0 407 No\r\nX: y\r\n\r\nbody":                                                           {"me", overlay.ErrRefused, `it does not accept the credentials of user "me" (407 No)`},
		"HTTP/1.1 407 No\r\nProxy-Authenticate: NTLM\r\n\r\n":                                           {"", overlay.ErrRefused, "it offers only NTLM for credentials (407 No), and Basic is the only scheme that there is here"},
		"HTTP/1.1 407 \r\nproxy-authenticate:Negotiate\r\nProxy-Authenticate: NTLM TlRM==\r\n\r\n":      {"me", overlay.ErrRefused, "it offers only Negotiate and NTLM for credentials"},
		"HTTP/1.1 407 \r\nProxy-Authenticate: Digest realm=\"a, Basic b\", nonce = \"n\", NTLM\r\n\r\n": {"me", overlay.ErrRefused, "it offers only Digest and NTLM for credentials"},
		"HTTP/1.1 407 \r\nProxy-Authenticate: NTLM\r\nProxy-Authenticate: basic realm=\"x\"\r\n\r\n":    {"me", overlay.ErrRefused, `it does not accept the credentials of user "me"`},
		"HTTP/1.1 407 \r\nProxy-Authenticate: Negotiate, Basic realm=\"x\"\r\n\r\n":                     {"", overlay.ErrRefused, "set the proxy's user and password"},
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 407 No\r\n\r\n":                                          {"", overlay.ErrRefused, "it requires credentials (407 No)"},
		"HTTP/1.1 101 Switching Protocols\r\n\r\n":                                                      {"", overlay.ErrRefused, "it does not allow the tunnel (101 Switching Protocols)"},
		"HTTP/1.1 100 Continue\r\n\r\n":                                                                 {"", overlay.ErrRefused, "no HTTP answer to CONNECT: EOF"},
		"HTTP/1.1 403 Forbidden\r\n\r\n":                                                                {"", overlay.ErrRefused, "it does not allow the tunnel (403 Forbidden)"},
		"HTTP/1.1 302 \x1b[31m\r\n\r\n":                                                                 {"", overlay.ErrRefused, "it does not allow the tunnel (302 ?[31m)"},
		"HTTP/1.1 502 Bad Gateway\r\n\r\n":                                                              {"", overlay.ErrUnreachable, "it cannot connect (502 Bad Gateway)"},
		"HTTP/1.1 504 Gateway Timeout\r\n\r\n":                                                          {"", overlay.ErrTimeout, "it got no answer from there (504 Gateway Timeout)"},
		"SSH-2.0-OpenSSH_9.2\r\n\r\n":                                                                   {"", overlay.ErrRefused, "its answer is not HTTP"},
		"HTTP/1.1 2x0 OK\r\n\r\n":                                                                       {"", overlay.ErrRefused, "its answer is not HTTP"},
		"HTTP/1.1 20\r\n\r\n":                                                                           {"", overlay.ErrRefused, "its answer is not HTTP"},
		ok[:10]:                                                                                         {"", overlay.ErrRefused, "no HTTP answer to CONNECT: EOF"},
		"HTTP/1.1 200 OK\r\n" + strings.Repeat("X: y\r\n", 15000):                                       {"", overlay.ErrUnreachable, "its head is longer than 65536 bytes"},
		strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 5000):                                           {"", overlay.ErrUnreachable, "its head is longer than 65536 bytes"},
	} {
		proxy, _ := script(t, answer)
		c, err := DialTCP(t.Context(), "192.0.2.1:443", HTTPProxy{Addr: proxy, User: want.user})
		if err == nil {
			c.Close()
		}
		prefix := fmt.Sprintf("HTTP proxy %s on the path to 192.0.2.1:443: ", proxy)
		if !errors.Is(err, want.class) || !strings.Contains(err.Error(), want.text) || !strings.HasPrefix(err.Error(), prefix) {
			t.Errorf("%.40q: %v, want %q", answer, err, want.text)
		}
	}
}

func TestConnectInvalidAddress(t *testing.T) {
	proxy, _ := script(t, "HTTP/1.1 200 OK\r\n\r\n")
	_, err := DialTCP(t.Context(), "host:1\r\nEvil: yes", HTTPProxy{Addr: proxy})
	if !errors.Is(err, overlay.ErrUnreachable) || !strings.Contains(err.Error(), "is not an address") {
		t.Errorf("%v", err)
	}
}

// timed is a context that ends when the test says so.
type timed struct {
	context.Context
	over chan struct{}
}

func (c timed) Done() <-chan struct{} { return c.over }

func (c timed) Err() error {
	select {
	case <-c.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// A proxy that accepts and sends nothing costs the context's time, no more.
func TestConnectSilent(t *testing.T) {
	proxy, asked := script(t, "")
	late := timed{t.Context(), make(chan struct{})}
	go func() {
		select {
		case <-asked:
		case <-time.After(30 * time.Second):
		}
		close(late.over)
	}()
	_, err := DialTCP(late, "192.0.2.1:443", HTTPProxy{Addr: proxy})
	if !errors.Is(err, overlay.ErrTimeout) || !strings.Contains(err.Error(), "did not answer CONNECT in time") {
		t.Errorf("%v", err)
	}

	proxy, asked = script(t, "")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	go func() { <-asked; cancel() }()
	if _, err := DialTCP(ctx, "192.0.2.1:443", HTTPProxy{Addr: proxy}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// A deadline that passes before the proxy was asked is no refusal.
func TestConnectTooLate(t *testing.T) {
	proxy, _ := script(t, "")
	c, err := net.Dial("tcp", proxy)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Unix(1, 0))
	err = HTTPProxy{Addr: proxy}.connect(t.Context(), c.(*net.TCPConn), "192.0.2.1:443")
	if !errors.Is(err, overlay.ErrTimeout) || errors.Is(err, overlay.ErrRefused) || !strings.Contains(err.Error(), "did not take CONNECT in time") {
		t.Errorf("%v", err)
	}
}

func TestDialErrors(t *testing.T) {
	ln, err := ListenIn(t.Context(), loopback, overlay.Ports{})
	if err != nil {
		t.Fatal(err)
	}
	closed := ln.Addr().String()
	ln.Close()
	_, err = DialTCP(t.Context(), closed, HTTPProxy{})
	if !errors.Is(err, overlay.ErrRefused) || err.Error() != "dial "+closed+": refused: nothing listens there, or a firewall resets" {
		t.Errorf("closed port: %v", err)
	}
	_, err = DialTCP(t.Context(), "192.0.2.1:443", HTTPProxy{Addr: closed})
	if !errors.Is(err, overlay.ErrRefused) || !strings.HasPrefix(err.Error(), "HTTP proxy on the path to 192.0.2.1:443: dial "+closed) {
		t.Errorf("no HTTP proxy there: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := DialTCP(ctx, closed, HTTPProxy{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := DialTCP(t.Context(), "127.0.0.1:x", HTTPProxy{}); !errors.Is(err, overlay.ErrUnreachable) {
		t.Errorf("no port: %v", err)
	}
}

// The error classes that cannot be provoked on loopback.
func TestDialErrorClasses(t *testing.T) {
	op := func(err error) error {
		return &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 443}, Err: err}
	}
	for text, tc := range map[string]struct{ err, class error }{
		"dial a:1: timed out: no answer within 3s":           {op(context.DeadlineExceeded), overlay.ErrTimeout},
		"dial a:1: unreachable: network is down":             {op(errors.New("network is down")), overlay.ErrUnreachable},
		`dial a:1: unreachable: the name "a" has no address`: {op(&net.DNSError{Name: "a", IsNotFound: true}), overlay.ErrUnreachable},
		"dial a:1: given up after 3s: context canceled":      {op(context.Canceled), context.Canceled},
	} {
		if err := dialError("a:1", 3*time.Second, tc.err); !errors.Is(err, tc.class) || err.Error() != text {
			t.Errorf("%v, want %s", err, text)
		}
	}
}

func TestListenIn(t *testing.T) {
	// A range that is free right now: the kernel's choice and its neighbours.
	probe, err := ListenIn(t.Context(), loopback, overlay.Ports{})
	if err != nil {
		t.Fatal(err)
	}
	last := netip.MustParseAddrPort(probe.Addr().String()).Port()
	probe.Close()
	ports := overlay.Ports{First: last - 3, Last: last}
	taken := map[uint16]bool{}
	for range 4 {
		ln, err := ListenIn(t.Context(), loopback, ports)
		if errors.Is(err, overlay.ErrPortRangeFull) {
			break // another program has one of them
		}
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		port := netip.MustParseAddrPort(ln.Addr().String()).Port()
		if !ports.Contains(port) || taken[port] {
			t.Errorf("listening on %d, range %v, taken %v", port, ports, taken)
		}
		taken[port] = true
	}
	_, err = ListenIn(t.Context(), loopback, ports)
	want := fmt.Sprintf("no free port in the site's range: all 4 ports of %v are in use; widen the range", ports)
	if !errors.Is(err, overlay.ErrPortRangeFull) || !strings.Contains(err.Error(), want) {
		t.Errorf("a fifth of four: %v", err)
	}
}

func TestListenInWrong(t *testing.T) {
	if _, err := ListenIn(t.Context(), loopback, overlay.Ports{First: 9, Last: 8}); err == nil {
		t.Error("a range that ends before it begins")
	}
	_, err := ListenIn(t.Context(), netip.MustParseAddr("192.0.2.1"), overlay.Ports{First: 20000, Last: 20999})
	if err == nil || errors.Is(err, overlay.ErrPortRangeFull) || !strings.Contains(err.Error(), "no interface of this host has the address 192.0.2.1") {
		t.Errorf("a foreign address: %v", err)
	}
}

func FuzzReadHead(f *testing.F) {
	f.Add([]byte("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 407 No\r\nProxy-Authenticate: Digest realm=\"a, b\", NTLM\r\n\r\nrest"))
	f.Add([]byte("HTTP/1.1 200\n\n\x16\x03"))
	f.Fuzz(func(t *testing.T, answer []byte) {
		r := bytes.NewReader(answer)
		head, err := readHead(r)
		if err != nil {
			return
		}
		if end := len(answer) - r.Len(); !bytes.HasSuffix(answer[:end], head) || !bytes.HasSuffix(head, []byte("\n")) {
			t.Errorf("%q: the head %q ends at %d", answer, head, end)
		}
		for _, s := range challenges(head) {
			if s == "" || len(s) > 20 || strings.Trim(s, tokenChars) != "" {
				t.Errorf("%q: scheme %q", answer, s)
			}
		}
	})
}

func FuzzParseStatus(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\n\r\n"))
	f.Add([]byte("HTTP/1.0 407\n\n"))
	f.Fuzz(func(t *testing.T, head []byte) {
		status, reason, err := parseStatus(head)
		if err == nil && (status < 0 || status > 999 || len(reason) > 100 || strings.ContainsAny(reason, "\r\n\x1b")) {
			t.Errorf("%q: %d %q", head, status, reason)
		}
	})
}
