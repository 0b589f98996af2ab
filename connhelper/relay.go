package connhelper

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-grid/isthmus/connhelper/race"
	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// ticketTime is how long a proxy is relied on to wait for a ticket, which takes time to arrive; it waits 10 s, and an older
// one 5 s. After that it is dialled anew.
const ticketTime = 4 * time.Second

// A proxy may be silent, or swallow what it is sent, whatever it says of itself. So one that has not answered relayDoubt
// after it was assigned, or doubtTrips times as long as that took, gets another one for a rival, and so does one to which
// a link of the last doubtLife was assigned and has not been made since: package link asks for another relay while a
// handshake takes long.
const (
	relayDoubt = 500 * time.Millisecond
	doubtTrips = 4 // a connection, and TLS or a request to a proxy of the site's
	doubtLife  = 10 * time.Second
)

// latestRelay is the relay that was assigned last for the links of a process to a rank.
type latestRelay struct {
	proxy string
	since time.Time
	works bool // a link was made
}

// doubtedProxy returns the proxy that is in doubt for links of p to a rank; "" if none is.
func (p *process) doubtedProxy(rank uint32, now time.Time) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.relay[rank]; !r.works && now.Sub(r.since) < doubtLife {
		return r.proxy
	}
	return ""
}

// relayedElsewhere reports whether a relay to a rank was assigned after one through that proxy, which is another's.
func (p *process) relayedElsewhere(rank uint32, proxy string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	latest := p.relay[rank].proxy
	return proxy != "" && latest != "" && latest != proxy
}

// noteRelay records the relay that was assigned last for links of p to a rank.
func (p *process) noteRelay(rank uint32, r latestRelay) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.relay == nil {
		p.relay = map[uint32]latestRelay{}
	}
	p.relay[rank] = r
}

// relayAttempt is one of the two proxies that race.
type relayAttempt struct {
	begun    time.Time
	assigned chan struct{} // closed when what follows is set, or will not be
	close    func()        // closes it, once
	proxy    string
	took     time.Duration // until it was assigned

	over    chan struct{} // closed when the attempt has failed or succeeded
	reached atomic.Bool   // the proxy answers
}

func newRelayAttempt() *relayAttempt {
	a := &relayAttempt{begun: time.Now(), assigned: make(chan struct{}), over: make(chan struct{})}
	a.close = sync.OnceFunc(func() { close(a.assigned) })
	return a
}

// awaitDoubt waits until the attempt is over, or its proxy ought to have answered.
func (a *relayAttempt) awaitDoubt(ctx context.Context) error {
	select {
	case <-a.assigned:
	case <-ctx.Done():
		return ctx.Err()
	}
	doubt := time.NewTimer(time.Until(a.begun.Add(a.took + max(relayDoubt, doubtTrips*a.took))))
	defer doubt.Stop()
	select {
	case <-a.over:
	case <-doubt.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

var (
	errNoDoubt   = errors.New("the proxy is in no doubt")
	errProxySlow = fmt.Errorf("%w: another proxy was ready first", overlay.ErrTimeout)
)

// relay gets a proxy and two tickets from the broker. Both ends then dial the proxy at once; the
// process gets the connection when the target's helper has accepted its part. Later failures there
// reach the process as a fault of the carrier. A proxy that does not answer races with another one.
func (d *dialler) relay(ctx context.Context, f *frontal, p *process, to target, step overlay.Step) (readyConn, error) {
	first := newRelayAttempt()
	var begun atomic.Bool
	entries := []race.Entry{{Step: step}, {Step: step, Start: relayDoubt}}
	got, won := race.Run(ctx, d.work.Go, entries, func(ctx context.Context, _ overlay.Step) (readyConn, error) {
		if begun.Swap(true) { // the rival, if the first was assigned, and is silent or failed
			if err := first.awaitDoubt(ctx); err != nil {
				return readyConn{}, err
			}
			if first.proxy == "" || first.reached.Load() {
				return readyConn{}, errNoDoubt
			}
			return d.relayOtherThan(ctx, f, p, to, first.proxy, newRelayAttempt())
		}
		defer close(first.over)
		defer first.close()
		other := p.doubtedProxy(to.point.Process.Rank, time.Now())
		c, err := d.relayOtherThan(ctx, f, p, to, other, first)
		if other != "" && errors.Is(err, overlay.ErrNoRelay) {
			c, err = d.relayOtherThan(ctx, f, p, to, "", first)
		}
		return c, err
	})
	if won == 1 && !first.reached.Load() {
		d.reports.outcome(to, overlay.Relay, 0, &proxyError{first.proxy, errProxySlow})
	}
	for _, o := range got {
		if o.Entry == max(won, 0) {
			return o.Conn, o.Err
		}
	}
	return readyConn{}, context.Cause(ctx) // it had ended already
}

// relayOtherThan makes a relay through another proxy than that one, "" for any, and sets in a how far it is.
func (d *dialler) relayOtherThan(ctx context.Context, f *frontal, p *process, to target, other string, a *relayAttempt) (readyConn, error) {
	request := d.signalRequest(p, to, overlay.Relay)
	request.OtherThan = other
	out := d.signal(ctx, f, request, nil)
	m, err := d.relayCarrier(ctx, f, p, to, out, a)
	if err != nil {
		out.End()
		return readyConn{}, err
	}
	out.detach()
	m.handed = d.watch(out, nil)
	return m, nil
}

func (d *dialler) relayCarrier(ctx context.Context, f *frontal, p *process, to target, out *outgoing, a *relayAttempt) (readyConn, error) {
	assigned, err := out.Await(ctx, controlpb.SignalEvent_ASSIGNED)
	if err != nil {
		return readyConn{}, err
	}
	if assigned.Relay == nil {
		return readyConn{}, fmt.Errorf("%v assigned no proxy", f.session.Peer())
	}
	proxy := assigned.Relay.Proxy
	p.noteRelay(to.point.Process.Rank, latestRelay{proxy: proxy, since: time.Now()})
	a.proxy, a.took = proxy, time.Since(a.begun)
	a.close()
	j := journey{addrs: assigned.Relay.Addresses, proxy: true, asker: p.name, target: to.point.Process, link: out.link}
	c, limits, err := d.outbound.reach(ctx, f, j)
	if err != nil {
		return readyConn{}, &proxyError{proxy, err}
	}
	a.reached.Store(true)
	begun := time.Now()
	if _, err := out.Await(ctx, controlpb.SignalEvent_ACCEPTED); err != nil {
		carrier.Reset(c)
		return readyConn{}, err
	}
	if time.Since(begun) > ticketTime { // the target waited for its turn
		carrier.Reset(c)
		if c, limits, err = d.outbound.reach(ctx, f, j); err != nil {
			return readyConn{}, &proxyError{proxy, err}
		}
	}
	s, err := d.socketFor(c)
	if err != nil {
		return readyConn{}, err
	}
	// The ticket is sent only when the relay is taken: until then the proxy joins nothing and
	// relays no bytes.
	commit := func(ctx context.Context) error {
		if err := write(ctx, c, assigned.Relay.Ticket); err != nil {
			return &proxyError{proxy, err}
		}
		return nil
	}
	limits = append(limits, relayLimit(assigned.Relay))
	useless := func() { d.outbound.forget(assigned.Relay.Addresses) }
	return readyConn{conn: s, path: overlay.Path{Proxy: proxy}, limits: limits, commit: commit, useless: useless}, nil
}

// relayLimit describes the rate limit of the proxy for the link.
func relayLimit(a *controlpb.Assignment) string {
	return control.HeldTo(a.GetLimit(), "proxy "+a.GetProxy())
}

// proxyError is the error of a relay, with the proxy that did not carry it.
type proxyError struct {
	proxy string
	err   error
}

func (e *proxyError) Error() string { return "proxy " + e.proxy + ": " + e.err.Error() }

// Unwrap returns the reason.
func (e *proxyError) Unwrap() error { return e.err }
