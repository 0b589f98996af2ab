package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// proxyPort is where a site's CONNECT proxy listens.
const proxyPort = 3128

// Limits of a CONNECT proxy.
const (
	proxyMaxConns = 1024             // further clients get a 503
	proxyHeader   = 16 << 10         // bytes of a request
	proxyPatience = 10 * time.Second // for the request, and for the dial
)

// A ConnectProxy is the HTTP proxy of one site (RFC 9110 section 9.3.6). It supports only CONNECT,
// serves only clients of its site and lets them reach only port 443; some inspect tunnels and let
// only TLS through. Its methods are safe for concurrent use.
type ConnectProxy struct {
	ln      net.Listener
	clients func(netip.Addr) bool                                   // clients that may use it
	resolve func(name string) (netip.Addr, bool)                    // names of the lab
	dial    func(context.Context, netip.AddrPort) (net.Conn, error) // from the proxy's host
	onlyTLS bool                                                    // tunnels whose first bytes are no TLS handshake are cut

	opened, refused, failed, cut atomic.Uint64
	active                       atomic.Int64
}

// ProxyCounts holds the counters of a CONNECT proxy.
type ProxyCounts struct {
	Opened  uint64 // tunnels opened
	Refused uint64 // requests against the proxy's policy
	Failed  uint64 // targets that could not be reached
	Cut     uint64 // tunnels that did not begin with TLS, where required
	Active  int64  // clients connected now
}

// Counts returns the proxy's counters so far.
func (p *ConnectProxy) Counts() ProxyCounts {
	return ProxyCounts{p.opened.Load(), p.refused.Load(), p.failed.Load(), p.cut.Load(), p.active.Load()}
}

// serve accepts clients until ctx is done or its listener fails; see serveClients.
func (p *ConnectProxy) serve(ctx context.Context) error {
	return serveClients(ctx, p.ln, "CONNECT proxy", func(ctx context.Context, c net.Conn) {
		p.active.Add(1)
		defer p.active.Add(-1)
		p.serveClient(ctx, c.(*net.TCPConn))
	})
}

// serveClients accepts connections and serves each in a goroutine until ctx is done or the listener fails, and returns when
// the last of these has ended. It closes the listener; what names its owner in errors.
func serveClients(ctx context.Context, ln net.Listener, what string, serve func(context.Context, net.Conn)) error {
	ctx, cancel := context.WithCancel(ctx)
	var clients sync.WaitGroup
	defer clients.Wait()
	defer cancel()
	defer ln.Close()
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	for {
		c, err := ln.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("%s: %w", what, err)
		}
		clients.Go(func() { serve(ctx, c) })
	}
}

// serveClient owns c until the tunnel ends or ctx is done.
func (p *ConnectProxy) serveClient(ctx context.Context, c *net.TCPConn) {
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	c.SetDeadline(time.Now().Add(proxyPatience))
	limited := &io.LimitedReader{R: c, N: proxyHeader}
	r := bufio.NewReader(limited)
	req, err := http.ReadRequest(r)
	if err != nil {
		p.refused.Add(1)
		refuse(c, http.StatusBadRequest, "no HTTP request")
		return
	}
	target, status, reason := p.admit(c.RemoteAddr(), req)
	if status != http.StatusOK {
		p.refused.Add(1)
		refuse(c, status, reason)
		return
	}
	dialCtx, cancel := context.WithTimeout(ctx, proxyPatience)
	up, err := p.dial(dialCtx, target)
	cancel()
	if err != nil {
		p.failed.Add(1)
		refuse(c, statusOf(err), err.Error())
		return
	}
	defer up.Close()
	defer context.AfterFunc(ctx, func() { up.Close() })()
	c.SetDeadline(time.Time{})
	p.opened.Add(1)
	if _, err := io.WriteString(c, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	if p.onlyTLS {
		limited.N = proxyHeader
		c.SetReadDeadline(time.Now().Add(proxyPatience))
		first, err := r.Peek(2)
		c.SetReadDeadline(time.Time{})
		if err != nil || first[0] != 0x16 || first[1] != 3 { // a handshake record, RFC 8446 section 5.1
			p.cut.Add(1)
			return
		}
	}
	early, _ := r.Peek(r.Buffered()) // what the client sent right after its request
	if _, err := up.Write(early); err != nil {
		return
	}
	splice(c, up.(*net.TCPConn))
}

// admit decides on a request: it returns the target and 200, or a status and the reason.
func (p *ConnectProxy) admit(client net.Addr, req *http.Request) (target netip.AddrPort, status int, reason string) {
	from, err := netip.ParseAddrPort(client.String())
	if err != nil || !p.clients(from.Addr()) {
		return target, http.StatusForbidden, fmt.Sprintf("%v is not a client of this proxy", client)
	}
	if p.active.Load() > proxyMaxConns {
		return target, http.StatusServiceUnavailable, fmt.Sprintf("%d clients are connected already", proxyMaxConns)
	}
	if req.Method != http.MethodConnect {
		return target, http.StatusMethodNotAllowed, "this proxy knows CONNECT only"
	}
	host, portText, err := net.SplitHostPort(req.Host)
	port, portErr := strconv.ParseUint(portText, 10, 16)
	if err != nil || portErr != nil {
		return target, http.StatusBadRequest, fmt.Sprintf("%q is not host:port", req.Host)
	}
	if port != 443 {
		return target, http.StatusForbidden, fmt.Sprintf("port %d is forbidden, only 443 is allowed", port)
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		var ok bool
		if addr, ok = p.resolve(host); !ok {
			return target, http.StatusBadGateway, fmt.Sprintf("the name %q is unknown", host)
		}
	}
	return netip.AddrPortFrom(addr, uint16(port)), http.StatusOK, ""
}

// statusOf distinguishes a target that does not answer from one that cannot be reached.
func statusOf(err error) int {
	if errors.Is(err, context.DeadlineExceeded) {
		return http.StatusGatewayTimeout
	}
	return http.StatusBadGateway
}

// refuse answers and closes the connection. It keeps reading for a moment, because closing with
// unread bytes would reset the connection and discard the answer.
func refuse(c *net.TCPConn, status int, reason string) {
	fmt.Fprintf(c, "HTTP/1.1 %d %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s\n",
		status, http.StatusText(status), len(reason)+1, reason)
	c.CloseWrite()
	c.SetReadDeadline(time.Now().Add(time.Second))
	io.CopyN(io.Discard, c, proxyHeader)
}

// splice copies in both directions until both have ended; it propagates the end of each. Both
// connections are bare TCP, so that the kernel moves the bytes.
func splice(a, b *net.TCPConn) {
	var back sync.WaitGroup
	back.Go(func() { copyHalf(a, b) })
	copyHalf(b, a)
	back.Wait()
}

func copyHalf(dst, src *net.TCPConn) {
	if _, err := io.Copy(dst, src); err != nil {
		dst.Close() // failed, not ended: the other direction must not wait for it
		src.Close()
		return
	}
	dst.CloseWrite() // an error means that it is closed already
}
