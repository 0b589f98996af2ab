package carrier

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
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

// maxAnswer bounds the heads of the proxy's answers, interim ones included, in bytes. Proxies add
// cookies, policies and reports to a 200, and some send more than the 8 KiB of common servers.
const maxAnswer = 64 << 10

// answeredError is a status with which the HTTP proxy refused: it will refuse at its other addresses,
// too, and may lock out a user for asking again.
type answeredError struct{ error }

func (e *answeredError) Unwrap() error { return e.error }

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
	case errors.Is(err, errLongAnswer):
		return fail(overlay.ErrUnreachable, "its answer to CONNECT cannot be used: %v", err)
	case err != nil:
		return fail(overlay.ErrRefused, "no HTTP answer to CONNECT: %v", err)
	}
	if !stop() { // ctx ended just now; the deadline may already be set
		return fail(overlay.ErrTimeout, "the answer to CONNECT came too late")
	}
	status, reason, err := parseStatus(head)
	schemes := challenges(head)
	switch {
	case err != nil:
		return fail(overlay.ErrRefused, "%v", err)
	case status/100 == 2:
		return nil
	case status == 407 && len(schemes) > 0 && !hasBasic(schemes):
		return &answeredError{fail(overlay.ErrRefused, "it offers only %s for credentials (%s), and Basic is the only scheme that there is here; have its administrator allow Basic, or this host without credentials",
			strings.Join(schemes, " and "), reason)}
	case status == 407 && p.User == "":
		return &answeredError{fail(overlay.ErrRefused, "it requires credentials (%s); set the proxy's user and password", reason)}
	case status == 407:
		return &answeredError{fail(overlay.ErrRefused, "it does not accept the credentials of user %q (%s)", p.User, reason)}
	case status == 504:
		return fail(overlay.ErrTimeout, "it got no answer from there (%s)", reason)
	case status/100 == 5:
		return fail(overlay.ErrUnreachable, "it cannot connect (%s)", reason)
	}
	return &answeredError{fail(overlay.ErrRefused, "it does not allow the tunnel (%s)", reason)}
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

var errLongAnswer = fmt.Errorf("its head is longer than %d bytes", maxAnswer)

// readHead reads the head of the proxy's final answer, up to the empty line and not a byte more: what
// follows belongs to the tunnel. Interim answers, such as 100 Continue, precede it and mean nothing
// here (RFC 9110, section 15.2). It reads byte by byte, once per connection, which is the cost of
// leaving the rest in the socket.
func readHead(r io.Reader) ([]byte, error) {
	head := make([]byte, 0, 256)
	for total := 1; ; total++ {
		head = append(head, 0)
		if _, err := io.ReadFull(r, head[len(head)-1:]); err != nil {
			return nil, err
		}
		if bytes.HasSuffix(head, []byte("\r\n\r\n")) || bytes.HasSuffix(head, []byte("\n\n")) {
			if status, _, err := parseStatus(head); err != nil || status/100 != 1 || status == 101 {
				return head, nil // 101 would be another protocol (section 15.2.2)
			}
			head = head[:0]
		}
		if total == maxAnswer {
			return nil, errLongAnswer
		}
	}
}

// challenges returns the schemes of authentication that a head offers (RFC 9110, section 11.7.1), at
// most four, as they may be printed.
func challenges(head []byte) (schemes []string) {
	for line := range strings.Lines(string(head)) {
		name, value, _ := strings.Cut(line, ":")
		if !strings.EqualFold(strings.TrimSpace(name), "Proxy-Authenticate") {
			continue
		}
		quoted := false
		for part := range strings.FieldsFuncSeq(value, func(r rune) bool {
			quoted = quoted != (r == '"')
			return r == ',' && !quoted
		}) {
			part = strings.TrimSpace(part)
			scheme := part[:len(part)-len(strings.TrimLeft(part, tokenChars))]
			rest := strings.TrimSpace(part[len(scheme):])
			scheme = scheme[:min(len(scheme), 20)]
			if scheme != "" && !strings.HasPrefix(rest, "=") && len(schemes) < 4 && !slices.Contains(schemes, scheme) {
				schemes = append(schemes, scheme)
			}
		}
	}
	return schemes
}

// tokenChars are letters, digits and marks of a token that schemes have (RFC 9110, section 5.6.2).
const tokenChars = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~+"

func hasBasic(schemes []string) bool {
	return slices.ContainsFunc(schemes, func(s string) bool { return strings.EqualFold(s, "Basic") })
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
