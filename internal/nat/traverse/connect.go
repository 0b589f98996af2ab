package traverse

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// A Request is the asker's part of a traversing connection.
type Request struct {
	Level  Level
	Local  netip.AddrPort // where Dial dials from
	Remote netip.AddrPort // where it dials to: the target's address as seen from here

	// Dial connects Local with Remote, as any program would. It must end with its context.
	Dial func(context.Context) (*net.TCPConn, error)

	// Carry delivers the packet to the target's Inject. It may return when the packet is in flight,
	// but preferably returns when it has been injected.
	Carry func(ctx context.Context, syn []byte) error
}

// resends are the times after its capture at which an asker sends its SYN again for TravEcho. The
// first one was dropped at the target's firewall; once the echo has opened that, it passes. One
// that arrives before the echo is dropped as well, and when one has arrived the kernel there
// ignores the others for half a second; the times are for carrying that takes 15 ms longer than the
// direct path, and more.
var resends = []time.Duration{
	15 * time.Millisecond, 25 * time.Millisecond, 40 * time.Millisecond, 60 * time.Millisecond, 90 * time.Millisecond,
	130 * time.Millisecond, 190 * time.Millisecond, 280 * time.Millisecond, 400 * time.Millisecond, 600 * time.Millisecond,
}

// Connect dials while it carries the SYN to the target, and returns the connection. It ends with
// ctx, and after flowLife in any case. That the client is connected does not prove that the target
// is: with too low a level a firewall may let the SYN/ACK out but not the ACK in.
//
// In addition to the errors of Carry, it returns overlay.ErrRefused when a reset was received,
// overlay.ErrTimeout when there was no answer, overlay.ErrUnreachable and overlay.ErrOverloaded;
// the errors say what to check.
func (e *Engine) Connect(ctx context.Context, r Request) (*net.TCPConn, error) {
	w, err := e.watch(r.Local, r.Remote, r.Level == TravEcho)
	if err != nil {
		return nil, fmt.Errorf("traversing from %v to %v: %w", r.Local, r.Remote, err)
	}
	dialling, cancel := context.WithTimeout(ctx, flowLife)
	defer cancel()
	d := delivery{engine: e, request: r}
	var delivering sync.WaitGroup
	delivering.Go(func() {
		if d.run(dialling, w) != nil {
			cancel()
		}
	})
	conn, err := r.Dial(dialling)
	cancel()
	delivering.Wait()
	if err == nil {
		if w.repeats {
			w.endAfterRepeats() // the target's tracker may not be satisfied yet
		} else {
			w.Close()
		}
		return conn, nil // whatever happened to the rest
	}
	w.Close()
	switch {
	case d.err != nil && ctx.Err() == nil && !refused(err):
		err = d.err
	default:
		err = explain(ctx, err, r.Level)
	}
	return nil, fmt.Errorf("traversing from %v to %v (%v): %w", r.Local, r.Remote, r.Level, err)
}

// A delivery runs in parallel to a dial. Its results may be read when run has returned.
type delivery struct {
	engine  *Engine
	request Request

	err error // why the dial cannot succeed; nil when the dial ended first
}

// run captures the SYN and carries it, and for TravEcho sends it again meanwhile.
func (d *delivery) run(ctx context.Context, w *Watch) error {
	syn, err := w.SYN(ctx)
	if err == nil {
		var resending sync.WaitGroup
		if d.request.Level == TravEcho {
			resending.Go(func() { d.resend(ctx, syn) })
		}
		err = d.request.Carry(ctx, syn.Append(nil))
		resending.Wait()
	}
	if ctx.Err() == nil {
		d.err = err
	}
	return d.err
}

// resend sends the SYN again at the times in resends. A failed send counts as a lost packet: the
// dial shows the result.
func (d *delivery) resend(ctx context.Context, syn Segment) {
	captured := time.Now()
	for _, after := range resends {
		timer := time.NewTimer(time.Until(captured.Add(after)))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		d.engine.sockets.send(syn)
	}
}

func refused(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, overlay.ErrRefused)
}

// explain returns the error for a failed dial, with its likely cause.
func explain(ctx context.Context, err error, l Level) error {
	switch {
	case ctx.Err() == context.Canceled:
		return context.Canceled
	case refused(err):
		return fmt.Errorf("%w: a reset answered: the target's site answers SYNs by itself, so the carried one always comes too late, "+
			"or no process listens; use simultaneous open or a relay (%v)", overlay.ErrRefused, err)
	}
	if errors.Is(err, overlay.ErrUnreachable) || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH) {
		return fmt.Errorf("%w: %v", overlay.ErrUnreachable, err)
	}
	hint := "the target's firewall lets no such answer out"
	switch l {
	case Trav:
		hint = "a firewall there follows connections, and drops an answer to a SYN it did not see; use trav+ack or trav+echo"
	case TravAck:
		hint = "a firewall there does not pick connections up from their middle, or translates addresses; use trav+echo"
	}
	return fmt.Errorf("%w: the SYN was carried, and no answer was received: %s", overlay.ErrTimeout, hint)
}

// A Watch waits for the SYN of one connect.
type Watch struct {
	engine *Engine
	key    endpoints
	flow   *flow
	syn    chan Segment // buffered for one: the first SYN; retransmissions are identical

	repeats  bool // for TravEcho, see seen
	first    *Segment
	repeated int // times; both are guarded by engine.mu
}

// maxRepeats bounds how often a Watch sends the SYN again.
const maxRepeats = 6

// lingering is how long a Watch continues its repeats after the client is connected: beyond the
// first retransmission of the target's kernel.
const lingering = 2 * time.Second

// Watch starts to look for the SYN of a connect from local to remote. Close it.
func (e *Engine) Watch(local, remote netip.AddrPort) (*Watch, error) {
	return e.watch(local, remote, false)
}

func (e *Engine) watch(local, remote netip.AddrPort, repeats bool) (*Watch, error) {
	w := &Watch{engine: e, syn: make(chan Segment, 1), repeats: repeats}
	w.key = endpoints{
		local:  netip.AddrPortFrom(local.Addr().Unmap(), local.Port()),
		remote: netip.AddrPortFrom(remote.Addr().Unmap(), remote.Port()),
	}
	if err := sameVersion(w.key.local.Addr(), w.key.remote.Addr()); err != nil {
		return nil, err
	}
	w.flow = &flow{seen: w.seen, failed: func(error) {}}
	e.mu.Lock()
	defer e.mu.Unlock()
	return w, e.add(time.Now(), w.key, w.flow)
}

// seen is flow.seen. For TravEcho it sends the SYN again for each SYN/ACK that arrives. If the
// target's firewall lets the kernel's SYN/ACK out although it has no state of the connection, the
// client is satisfied, but for the tracker there the echo remains a SYN without an answer: data
// pass, a FIN does not. The target's helper sends the SYN/ACK once more after the echo. The SYN
// that answers it finds the tracker ready, and the SYN/ACK that answers that SYN completes the
// simultaneous open for the tracker. To both kernels these are old duplicates.
func (w *Watch) seen(_ time.Time, s Segment, outgoing bool) []Segment {
	switch {
	case outgoing && s.hasFlags(flagSYN):
		if w.first == nil {
			w.first = &s
			w.syn <- s
		}
	case !outgoing && s.hasFlags(flagSYN|flagACK) && w.repeats && w.first != nil && s.Ack == w.first.Seq+1 && w.repeated < maxRepeats:
		w.repeated++
		return []Segment{*w.first}
	}
	return nil
}

// SYN returns the copied SYN. It ends with ctx, and with overlay.ErrTimeout after a second.
func (w *Watch) SYN(ctx context.Context) (Segment, error) {
	timer := time.NewTimer(synWait)
	defer timer.Stop()
	select {
	case s := <-w.syn:
		return s, nil
	case <-ctx.Done():
		return Segment{}, fmt.Errorf("waiting for the SYN from %v to %v: %w", w.key.local, w.key.remote, context.Cause(ctx))
	case <-timer.C:
		return Segment{}, fmt.Errorf("%w: no SYN from %v to %v left this host within %v; did the program connect, and does this host's own firewall let it?",
			overlay.ErrTimeout, w.key.local, w.key.remote, synWait)
	}
}

// Close ends the watch.
func (w *Watch) Close() { w.engine.remove(w.key, w.flow) }

// endAfterRepeats ends the watch after its last repeats.
func (w *Watch) endAfterRepeats() {
	w.engine.mu.Lock()
	defer w.engine.mu.Unlock()
	w.flow.expires = time.Now().Add(lingering)
}
