package probe

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/pion/stun/v4"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/nat/reflector"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// port is one port of this host that asks and is called back. A TCP port listens and dials at the
// same time. Only the holder of a nonce gets a reaction from it: it drops what is neither an answer
// nor a nonce.
type port struct {
	number uint16
	ln     *net.TCPListener
	pc     *net.UDPConn
	served sync.WaitGroup
	waits  *patience

	mu      sync.Mutex // guards the fields below
	conns   []net.Conn // to reflectors, open until the end
	nonces  map[[reflector.NonceLen]byte]chan struct{}
	answers map[[stun.TransactionIDSize]byte]chan netip.AddrPort
}

// open opens a port of the given number, 0 for any, until the measurement ends.
func (m *measurement) open(udp bool, number uint16) (*port, error) {
	p := &port{
		waits:   m.waits,
		nonces:  make(map[[reflector.NonceLen]byte]chan struct{}),
		answers: make(map[[stun.TransactionIDSize]byte]chan netip.AddrPort),
	}
	lc := net.ListenConfig{Control: share, KeepAlive: -1}
	lc.SetMultipathTCP(false)
	at := fmt.Sprintf(":%d", number)
	err := m.opts.Do(func() error {
		if udp {
			pc, err := lc.ListenPacket(context.Background(), "udp"+m.version(), at)
			if err == nil {
				p.pc = pc.(*net.UDPConn)
				p.number = addrOf(pc.LocalAddr()).Port()
			}
			return err
		}
		ln, err := lc.Listen(context.Background(), "tcp"+m.version(), at)
		if err == nil {
			p.ln = ln.(*net.TCPListener)
			p.number = addrOf(ln.Addr()).Port()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if udp {
		p.served.Go(p.receive)
	} else {
		p.served.Go(p.accept)
	}
	m.closers = append(m.closers, p.close)
	return p, nil
}

// version returns the suffix of network names by which package net limits a socket to one version
// of IP.
func (m *measurement) version() string {
	if m.ipv6 {
		return "6"
	}
	return "4"
}

func (p *port) close() {
	p.mu.Lock()
	for _, c := range p.conns {
		carrier.Reset(c) // TIME-WAIT would keep the port for a minute
	}
	p.mu.Unlock()
	if p.ln != nil {
		p.ln.Close()
	}
	if p.pc != nil {
		p.pc.Close()
	}
	p.served.Wait()
}

// expect returns a new nonce and a channel that is closed when it arrives.
func (p *port) expect() (nonce []byte, arrived <-chan struct{}) {
	var n [reflector.NonceLen]byte
	rand.Read(n[:])
	ch := make(chan struct{})
	p.mu.Lock()
	p.nonces[n] = ch
	p.mu.Unlock()
	return n[:], ch
}

// arrived records a nonce; it proves that the sender is the reflector that was asked.
func (p *port) arrived(nonce []byte) {
	if len(nonce) != reflector.NonceLen {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if ch, ok := p.nonces[[reflector.NonceLen]byte(nonce)]; ok {
		close(ch)
		delete(p.nonces, [reflector.NonceLen]byte(nonce))
	}
}

// acceptPause is how long accept waits after an error that may be transient.
const acceptPause = 50 * time.Millisecond

// accept accepts connections until the port is closed. Serving them sequentially suffices: a
// reflector sends its nonce at once.
func (p *port) accept() {
	for {
		c, err := p.ln.AcceptTCP()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(acceptPause) // for example, until a descriptor is free
			continue
		}
		nonce := make([]byte, reflector.NonceLen)
		c.SetDeadline(time.Now().Add(max(arriveTime/2, p.waits.estimate().RTO(0))))
		if _, err := io.ReadFull(c, nonce); err == nil {
			p.arrived(nonce)
		}
		c.SetLinger(0)
		c.Close()
	}
}

// receive processes datagrams until the port is closed.
func (p *port) receive() {
	b := make([]byte, 1500)
	for {
		n, err := p.pc.Read(b)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			continue // an ICMP error for something sent earlier
		case n == reflector.NonceLen:
			p.arrived(b[:n])
		default:
			p.answered(b[:n])
		}
	}
}

// answered records a STUN server's answer.
func (p *port) answered(b []byte) {
	seen, id, ok := mappedAddress(b)
	if !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if ch, ok := p.answers[id]; ok {
		ch <- seen
		delete(p.answers, id)
	}
}

// mappedAddress decodes a STUN server's answer.
func mappedAddress(b []byte) (seen netip.AddrPort, id [stun.TransactionIDSize]byte, ok bool) {
	m := &stun.Message{Raw: append([]byte(nil), b...)}
	var mapped stun.XORMappedAddress
	if m.Decode() != nil || m.Type != stun.BindingSuccess || mapped.GetFrom(m) != nil {
		return seen, id, false
	}
	ip, ok := netip.AddrFromSlice(mapped.IP)
	return netip.AddrPortFrom(ip.Unmap(), uint16(mapped.Port)), m.TransactionID, ok
}

// askTCP dials a reflector from the port and asks it, if secure is set and plain text fails
// also in TLS; the connection stays open.
func (p *port) askTCP(ctx context.Context, opts Options, secure bool, v *View) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{Port: int(p.number)}, Control: share, KeepAlive: -1}
	d.SetMultipathTCP(false)
	open := func(ctx context.Context) (c net.Conn, err error) {
		err = opts.Do(func() (err error) {
			c, err = d.DialContext(ctx, "tcp", v.To.String())
			return err
		})
		return c, err
	}
	cfg := opts.TLS
	if !secure {
		cfg = nil
	}
	c, err := v.ask(ctx, p.waits, open, cfg)
	if c != nil {
		p.mu.Lock()
		p.conns = append(p.conns, c)
		p.mu.Unlock()
	}
	if err != nil {
		v.Err = shortError(err)
	}
}

// ask asks the reflector on a connection that open makes. If that connects but gets no answer, it
// asks once more, since the reflector or this host may have been busy, and then in TLS, unless cfg is nil:
// an inspecting middlebox lets a connection begin and then drops what is not TLS. The connection is
// returned open, for the caller to close; nil if there is none.
func (v *View) ask(ctx context.Context, waits *patience, open func(context.Context) (net.Conn, error), cfg *tls.Config) (net.Conn, error) {
	c, err := v.askOnce(ctx, waits, open, nil)
	if c != nil && isLate(err) && ctx.Err() == nil {
		carrier.Reset(c) // the same port is needed again, and unacknowledged data is not
		c, err = v.askOnce(ctx, waits, open, nil)
	}
	_, refused := errors.AsType[refusedError](err)
	if err == nil || cfg == nil || c == nil || refused || ctx.Err() != nil {
		return c, err
	}
	carrier.Reset(c)
	c, terr := v.askOnce(ctx, waits, open, cfg)
	if terr != nil {
		return c, bothFailed{err, terr}
	}
	v.TLS = true
	return c, nil
}

// isLate reports whether an answer did not come in time.
func isLate(err error) bool {
	ne, ok := errors.AsType[net.Error](err)
	return ok && ne.Timeout()
}

func (v *View) askOnce(ctx context.Context, waits *patience, open func(context.Context) (net.Conn, error), cfg *tls.Config) (c net.Conn, err error) {
	trips := 2 // to connect, and to ask
	if cfg != nil {
		trips++
	}
	ctx, cancel := waits.context(ctx, trips)
	defer cancel()
	defer func() {
		if err != nil && context.Cause(ctx) == os.ErrDeadlineExceeded {
			err = os.ErrDeadlineExceeded
		}
	}()
	if c, err = open(ctx); err != nil {
		return nil, err
	}
	v.Local, v.Options = addrOf(c.LocalAddr()), OptionsOf(c)
	if cfg != nil {
		t := tls.Client(c, cfg)
		if err = t.HandshakeContext(ctx); err != nil {
			return c, err
		}
		c = t
	}
	begun := time.Now()
	if v.Seen, err = observe(ctx, c); err == nil {
		waits.took(time.Since(begun)) // connecting may have taken less: to a middlebox, or an HTTP proxy
	}
	return c, err
}

// askUDP asks a STUN server from the port.
func (p *port) askUDP(ctx context.Context, do func(func() error) error, v *View) {
	ip, err := source(do, v.To)
	if err != nil {
		v.Err = shortError(err)
		return
	}
	v.Local = netip.AddrPortFrom(ip, p.number)
	request := stun.MustBuild(stun.TransactionID, stun.BindingRequest)
	answer := make(chan netip.AddrPort, 1)
	p.mu.Lock()
	p.answers[request.TransactionID] = answer
	p.mu.Unlock()
	for n := range stunTries {
		if _, err := p.pc.WriteToUDPAddrPort(request.Raw, v.To); err != nil {
			v.Err = shortError(err) // a local firewall may reject one datagram and let the next out
		}
		begun := time.Now()
		over, stop := p.waits.again(n)
		select {
		case v.Seen = <-answer:
			v.Err = ""
			if n == 0 { // a later one may be the answer to either (RFC 6298, section 3)
				p.waits.took(time.Since(begun))
			}
		case <-over:
		case <-ctx.Done():
		}
		stop()
		if v.Seen.IsValid() {
			return
		}
	}
	if v.Err == "" {
		v.Err = fmt.Sprintf("no answer to %d datagrams", stunTries)
	}
}

// source returns the address from which this host sends to another. It sends nothing.
func source(do func(func() error) error, to netip.AddrPort) (netip.Addr, error) {
	var c net.Conn
	err := do(func() (err error) {
		c, err = net.Dial("udp", to.String())
		return err
	})
	if err != nil {
		return netip.Addr{}, err
	}
	defer c.Close()
	return addrOf(c.LocalAddr()).Addr(), nil
}

// observe asks over a connection for its source address.
func observe(ctx context.Context, c net.Conn) (netip.AddrPort, error) {
	defer context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })()
	if _, err := c.Write(wire.Append(nil, &wire.Observe{})); err != nil {
		return netip.AddrPort{}, err
	}
	f, err := wire.Read(c)
	switch f := f.(type) {
	case *wire.Observed:
		return f.From, nil
	case *wire.Refuse:
		return netip.AddrPort{}, refusedError{f.Err()}
	}
	if err == nil {
		err = fmt.Errorf("%w: a %v in place of the answer", wire.ErrType, f.Type())
	}
	return netip.AddrPort{}, err
}

// refusedError is a reflector's refusal in place of an address.
type refusedError struct{ error }

func (e refusedError) Unwrap() error { return e.error }

// bothFailed means that neither a plain question nor one in TLS was answered.
type bothFailed struct{ plain, inside error }

func (e bothFailed) Error() string {
	return fmt.Sprintf("%s (inside of TLS: %s)", shortError(e.plain), shortError(e.inside))
}

// shortError returns a short text for an error, without the addresses that net adds.
func shortError(err error) string {
	var ne net.Error
	var op *net.OpError
	both, ok := err.(bothFailed)
	switch {
	case ok:
		return both.Error()
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET):
		return overlay.ErrRefused.Error() + ": reset"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &ne) && ne.Timeout():
		return overlay.ErrTimeout.Error()
	case errors.As(err, &op):
		return op.Err.Error()
	}
	return err.Error()
}

func addrOf(a net.Addr) netip.AddrPort {
	switch a := a.(type) {
	case *net.TCPAddr:
		return netip.AddrPortFrom(a.AddrPort().Addr().Unmap(), uint16(a.Port))
	case *net.UDPAddr:
		return netip.AddrPortFrom(a.AddrPort().Addr().Unmap(), uint16(a.Port))
	}
	return netip.AddrPort{}
}
