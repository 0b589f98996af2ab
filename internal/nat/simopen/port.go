package simopen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/rtt"
	"github.com/isthmus-grid/isthmus/overlay"
)

// A Port is a TCP port of this host that listens and dials at the same time. It carries out one
// Open at a time; its other methods are safe for concurrent use.
type Port struct {
	listener *net.TCPListener
	local    netip.AddrPort

	mu         sync.Mutex
	closed     bool
	reflectors []*net.TCPConn // keep the NAT's mapping alive
	mapping    *Mapping       // the latest observation, or nil
}

// Prepare opens a port on the address local, inside ports or any when that is zero. For a peer
// whose site lets out only port 443 it must be 443. The port is not shared with any other Port; an
// error is one of overlay.ErrPortRangeFull, ErrNotLinux and those of listen(2). Close it.
func Prepare(ctx context.Context, local netip.Addr, ports overlay.Ports) (*Port, error) {
	local = local.Unmap()
	if !local.IsValid() || local.IsUnspecified() {
		return nil, fmt.Errorf("preparing a port: the address %v is not one of this host's; name the one that the peer's segments reach", local)
	}
	ln, err := carrier.ListenIn(ctx, local, ports)
	if err != nil {
		return nil, fmt.Errorf("preparing a port: %w", err)
	}
	raw, err := ln.SyscallConn()
	if err == nil {
		var shared error
		err = errors.Join(raw.Control(func(fd uintptr) { shared = share(fd) }), shared)
	}
	if err != nil {
		ln.Close()
		return nil, fmt.Errorf("preparing port %v: %w", ln.Addr(), err)
	}
	bound := ln.Addr().(*net.TCPAddr).AddrPort()
	return &Port{listener: ln, local: netip.AddrPortFrom(bound.Addr().Unmap(), bound.Port())}, nil
}

// Local returns the port's address.
func (p *Port) Local() netip.AddrPort { return p.local }

// Close closes the listener and the connections to reflectors. It does not affect connections
// that the Port returned. An Open under way fails.
func (p *Port) Close() error {
	p.mu.Lock()
	p.closed = true
	held := p.reflectors
	p.reflectors = nil
	p.mu.Unlock()
	for _, c := range held {
		c.SetLinger(0) // TIME-WAIT would keep the port from asking again for a minute
		c.Close()
	}
	return p.listener.Close()
}

// keepOpen keeps a connection open until Close.
func (p *Port) keepOpen(c *net.TCPConn) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		c.Close()
		return net.ErrClosed
	}
	p.reflectors = append(p.reflectors, c)
	return nil
}

const (
	maxReflectors = 8 // of one observation
	askTrips      = 2 // round trips that it takes
)

// Observe asks every reflector, at once and from the port itself, for the port's public
// address, and keeps the connections until Close. It ends with ctx and after some seconds in any
// case, sooner if only some do not answer. It fails when no reflector answers; Mapping.Failed says which others did not.
func (p *Port) Observe(ctx context.Context, reflectors []netip.AddrPort) (Mapping, error) {
	if len(reflectors) == 0 || len(reflectors) > maxReflectors {
		return Mapping{}, fmt.Errorf("observing port %v: %d reflectors, want 1 to %d (2 to know whether they agree)", p.local, len(reflectors), maxReflectors)
	}
	outer := ctx
	ctx, cancel := context.WithTimeout(outer, askPatience)
	defer cancel()
	begin, answered := time.Now(), sync.Once{}
	seen := make([]netip.AddrPort, len(reflectors))
	samples := make([]Sample, len(reflectors))
	failed := make([]error, len(reflectors))
	var asked sync.WaitGroup
	for i, v := range reflectors {
		c, err := startConnect(ctx, p.local, v)
		if err != nil {
			failed[i] = fmt.Errorf("reflector %v: %w", v, explain(err, p.local))
			continue
		}
		asked.Go(func() {
			if seen[i], samples[i], failed[i] = p.ask(ctx, c, v); failed[i] == nil {
				answered.Do(func() { time.AfterFunc(stragglers(time.Since(begin)), cancel) })
			}
		})
	}
	asked.Wait()
	for i, err := range failed {
		if errors.Is(err, context.Canceled) && outer.Err() == nil {
			failed[i] = fmt.Errorf("reflector %v: %w: another has answered long before", reflectors[i], overlay.ErrTimeout)
		}
	}
	m := newMapping(p.local, seen, samples, errors.Join(failed...))
	if !m.Outside.IsValid() {
		return m, fmt.Errorf("observing port %v: no reflector answered: %w", p.local, m.Failed)
	}
	p.mu.Lock()
	p.mapping = &m
	p.mu.Unlock()
	m.Seen, m.Samples = slices.Clone(seen), slices.Clone(samples)
	return m, nil
}

// stragglers returns how long to wait for other reflectors after one has answered in the given time, which a connection and a
// question took.
func stragglers(took time.Duration) time.Duration {
	return rtt.Estimate{}.Add(took / askTrips).Answer(askTrips)
}

// ask asks one reflector. Its results are stored by the caller.
func (p *Port) ask(ctx context.Context, c *connecting, reflector netip.AddrPort) (netip.AddrPort, Sample, error) {
	conn, err := c.wait(ctx)
	if err != nil {
		return netip.AddrPort{}, Sample{}, fmt.Errorf("reflector %v: %w", reflector, outcomeError(ctx, err))
	}
	seen, sample, err := Ask(ctx, conn)
	if err != nil {
		carrier.Reset(conn)
		return netip.AddrPort{}, Sample{}, err
	}
	if err := p.keepOpen(conn); err != nil {
		return netip.AddrPort{}, Sample{}, err
	}
	return seen, sample, nil
}

// Dial makes an ordinary connection from the port, as a client that needs the port's mapping does.
// It ends with ctx. The error is one of overlay.ErrRefused, ErrTimeout and ErrUnreachable, or
// context.Canceled.
func (p *Port) Dial(ctx context.Context, remote netip.AddrPort) (*net.TCPConn, error) {
	c, err := startConnect(ctx, p.local, remote)
	var conn *net.TCPConn
	if err == nil {
		conn, err = c.wait(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("dialling %v from %v: %w", remote, p.local, outcomeError(ctx, explain(err, p.local)))
	}
	return conn, nil
}

// limit makes connections that are accepted from now on use small packets, if ctx requests that. A
// port is for one traversal, and never needs large ones again.
func (p *Port) limit(ctx context.Context) (err error) {
	if !carrier.SmallPackets(ctx) {
		return nil
	}
	raw, err := p.listener.SyscallConn()
	if err != nil {
		return err
	}
	outer := raw.Control(func(fd uintptr) { err = carrier.LimitSocket(ctx, fd, p.local.Addr().Is6()) })
	return errors.Join(outer, err)
}

// Accept waits for a connection from remote, whose port may be 0 for any, and resets all others. It
// ends with ctx, then with overlay.ErrTimeout or context.Canceled.
func (p *Port) Accept(ctx context.Context, remote netip.AddrPort) (*net.TCPConn, error) {
	if err := p.limit(ctx); err != nil {
		return nil, fmt.Errorf("waiting on %v: %w", p.local, err)
	}
	p.listener.SetDeadline(time.Time{})
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		p.listener.SetDeadline(time.Unix(1, 0))
	})
	defer func() {
		if !stop() {
			<-interrupted // otherwise it would end the next Accept
		}
	}()
	for {
		conn, err := p.listener.AcceptTCP()
		if err != nil {
			return nil, fmt.Errorf("waiting on %v for a connection from %v: %w", p.local, remote, outcomeError(ctx, err))
		}
		from := conn.RemoteAddr().(*net.TCPAddr).AddrPort()
		if from.Addr().Unmap() == remote.Addr().Unmap() && (remote.Port() == 0 || from.Port() == remote.Port()) {
			return conn, nil
		}
		conn.SetLinger(0) // a stranger: no orderly end, and no TIME-WAIT here
		conn.Close()
	}
}
