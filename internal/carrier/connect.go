package carrier

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// HTTPProxy is an HTTP proxy that opens tunnels with CONNECT (RFC 9110,
// section 9.3.6). The zero value means no proxy.
type HTTPProxy struct {
	Addr     string // host:port; empty for none
	User     string // for Basic credentials (RFC 7617); empty for none
	Password string
}

// maxAnswer bounds the head of the proxy's answer, in bytes.
const maxAnswer = 8 << 10

// connect asks the proxy at the other end of conn for a tunnel to addr.
func (p HTTPProxy) connect(ctx context.Context, conn *net.TCPConn, addr string) error {
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	fail := func(class error, format string, args ...any) error {
		if ctx.Err() == context.Canceled {
			class = context.Canceled
		}
		return fmt.Errorf("HTTP proxy %s on the path to %s: %w: %s", p.Addr, addr, class, fmt.Sprintf(format, args...))
	}
	if strings.ContainsAny(addr, " \r\n") {
		return fail(overlay.ErrUnreachable, "%q is not an address", addr)
	}
	if _, err := conn.Write(p.request(addr)); isTimeout(err) {
		return fail(overlay.ErrTimeout, "it accepted the connection but did not take CONNECT in time")
	} else if err != nil {
		return fail(overlay.ErrRefused, "it closed the connection before the request: %v", err)
	}
	head, err := readHead(conn)
	switch {
	case isTimeout(err):
		return fail(overlay.ErrTimeout, "it accepted the connection but did not answer CONNECT in time")
	case err != nil:
		return fail(overlay.ErrRefused, "no HTTP answer to CONNECT: %v", err)
	}
	if !stop() { // ctx ended just now; the deadline may already be set
		return fail(overlay.ErrTimeout, "the answer to CONNECT came too late")
	}
	status, reason, err := parseStatus(head)
	switch {
	case err != nil:
		return fail(overlay.ErrRefused, "%v", err)
	case status/100 == 2:
		return nil
	case status == 407 && p.User == "":
		return fail(overlay.ErrRefused, "it requires credentials (%s); set the proxy's user and password", reason)
	case status == 407:
		return fail(overlay.ErrRefused, "it does not accept the credentials of user %q (%s)", p.User, reason)
	case status == 504:
		return fail(overlay.ErrTimeout, "it got no answer from there (%s)", reason)
	case status/100 == 5:
		return fail(overlay.ErrUnreachable, "it cannot connect (%s)", reason)
	}
	return fail(overlay.ErrRefused, "it does not allow the tunnel (%s)", reason)
}

func (p HTTPProxy) request(addr string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n", addr)
	if p.User != "" {
		fmt.Fprintf(&b, "Proxy-Authorization: Basic %s\r\n",
			base64.StdEncoding.EncodeToString([]byte(p.User+":"+p.Password)))
	}
	b.WriteString("\r\n")
	return b.Bytes()
}

// readHead reads up to the empty line and not a byte more: what follows belongs to the tunnel. It
// reads byte by byte, once per connection, which is the cost of leaving the rest in the socket.
func readHead(conn *net.TCPConn) ([]byte, error) {
	head := make([]byte, 0, 256)
	for {
		head = append(head, 0)
		if _, err := conn.Read(head[len(head)-1:]); err != nil {
			return nil, err
		}
		if bytes.HasSuffix(head, []byte("\r\n\r\n")) || bytes.HasSuffix(head, []byte("\n\n")) {
			return head, nil
		}
		if len(head) == maxAnswer {
			return nil, fmt.Errorf("the head is longer than %d bytes", maxAnswer)
		}
	}
}

// parseStatus parses "HTTP/1.1 200 Connection established". It returns the reason as "200
// Connection established", made printable.
func parseStatus(head []byte) (status int, reason string, err error) {
	line, _, _ := bytes.Cut(head, []byte("\n"))
	proto, rest, _ := strings.Cut(strings.TrimRight(string(line), "\r"), " ")
	if !strings.HasPrefix(proto, "HTTP/1.") || len(rest) < 3 || strings.Trim(rest[:3], "0123456789") != "" {
		return 0, "", fmt.Errorf("its answer is not HTTP: %.40q", line)
	}
	for _, c := range []byte(rest[:3]) {
		status = status*10 + int(c-'0')
	}
	rest = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, rest)
	return status, rest[:min(len(rest), 100)], nil
}

// Tunnel asks the proxy at the other end of conn for a tunnel to addr, host:port, as DialTCP does;
// the caller keeps conn.
func (p HTTPProxy) Tunnel(ctx context.Context, conn *net.TCPConn, addr string) error {
	return p.connect(ctx, conn, addr)
}
