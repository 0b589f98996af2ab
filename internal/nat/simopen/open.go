package simopen

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// Options of an Open. Zero fields take the defaults given here.
type Options struct {
	// Retries bounds the attempts after the first; default 60.
	Retries int
	// Step is the grid on which both ends retry after a reset, counted from the agreed instant;
	// default 40 ms. It keeps them synchronised where their clocks are good.
	Step time.Duration
	// Jitter is the maximum of the uniformly distributed delay of every second retry; default 30
	// ms. It lets ends meet whose clocks are not good.
	Jitter time.Duration
	// Patience is how long the first attempt may stay without any answer before a new one replaces
	// it; default 300 ms. It should exceed the round trip and be less than the second after which
	// the kernel would retransmit the SYN. It doubles with each silent attempt, so that a longer
	// round trip is found.
	Patience time.Duration
	// Bound limits the total time, counted from the agreed instant; default 4 s.
	Bound time.Duration
	// AnyPort is Start.AnyPort.
	AnyPort bool
}

func (o Options) withDefaults() Options {
	def := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&o.Step, 40*time.Millisecond)
	def(&o.Jitter, 30*time.Millisecond)
	def(&o.Patience, 300*time.Millisecond)
	def(&o.Bound, 4*time.Second)
	if o.Retries <= 0 {
		o.Retries = 60
	}
	return o
}

// Open dials remote at the instant at, by the local clock, and accepts meanwhile; the first
// connection with remote wins. With remote's port 0 it only accepts, from any port of that address.
// It retries on the grid of o.Step, and with new sockets when nothing answers, until o.Bound or ctx
// ends.
//
// The error is ErrUnpredictable at once when the port was observed to be unpredictable and the peer
// needs to predict it; otherwise overlay.ErrRefused when resets were received,
// overlay.ErrUnreachable when the network reported an error, and overlay.ErrTimeout when nothing
// was received, or context.Canceled. The Port can then try a new agreement.
func (p *Port) Open(ctx context.Context, remote netip.AddrPort, at time.Time, o Options) (*net.TCPConn, error) {
	o = o.withDefaults()
	remote = netip.AddrPortFrom(remote.Addr().Unmap(), remote.Port())
	if err := p.predictable(o); err != nil {
		return nil, err
	}
	bounded, cancel := context.WithDeadline(ctx, at.Add(o.Bound))
	defer cancel()
	t := tries{port: p, remote: remote, at: at, o: o}
	conn, err := t.run(bounded)
	if err != nil {
		return nil, t.explain(ctx, err)
	}
	return conn, nil
}

func (p *Port) predictable(o Options) error {
	p.mu.Lock()
	m := p.mapping
	p.mu.Unlock()
	if m == nil || m.Independent || o.AnyPort {
		return nil
	}
	return fmt.Errorf("simultaneous open from %v: %w: %s; use hole punching or a relay", p.local, ErrUnpredictable, m.difference())
}

// tries is one Open under way. Everything but the waiting happens on the goroutine of run.
type tries struct {
	port   *Port
	remote netip.AddrPort
	at     time.Time
	o      Options

	accepted chan outcome

	attempts, refused, silent, taken int

	last error // of an attempt that was answered
}

type outcome struct {
	conn *net.TCPConn
	err  error
}

// errSilent means that an attempt was given up without an answer.
var errSilent = errors.New("no answer")

// run retries until there is a connection, ctx ends, or the retries are used up.
func (t *tries) run(ctx context.Context) (*net.TCPConn, error) {
	ctx, cancel := context.WithCancel(ctx)
	t.accepted = make(chan outcome, 1)
	go func() {
		conn, err := t.port.Accept(ctx, t.remote)
		t.accepted <- outcome{conn, err}
	}()
	conn, err := t.dials(ctx)
	cancel()
	if t.accepted != nil { // the accepting goroutine has not reported yet
		if late := <-t.accepted; late.conn != nil {
			if conn == nil {
				return late.conn, nil
			}
			late.conn.Close() // with port 0: another connection of the same host
		}
	}
	return conn, err
}

// dials returns the first connection, dialled or accepted.
func (t *tries) dials(ctx context.Context) (*net.TCPConn, error) {
	next := t.at
	for try := 0; ; try++ {
		if conn, err := t.sleep(ctx, next); conn != nil || err != nil {
			return conn, err
		}
		if t.remote.Port() == 0 {
			next = t.at.Add(2 * t.o.Bound) // nowhere to dial; ctx ends before
			continue
		}
		conn, err := t.tryOnce(ctx)
		if conn != nil || ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			return conn, err
		}
		t.count(err)
		if try == t.o.Retries {
			return nil, fmt.Errorf("gave up after %d tries", t.attempts)
		}
		next = nextTry(t.at, time.Now(), t.o, try, rand.Float64())
	}
}

// sleep waits for an instant, for an accepted connection or for the end of ctx.
func (t *tries) sleep(ctx context.Context, until time.Time) (*net.TCPConn, error) {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil, nil
	case a := <-t.accepted:
		t.accepted = nil
		return a.conn, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// tryOnce makes one attempt, and watches the listener during it.
func (t *tries) tryOnce(ctx context.Context) (*net.TCPConn, error) {
	t.attempts++
	c, err := startConnect(ctx, t.port.local, t.remote)
	if err != nil {
		return nil, explain(err, t.port.local)
	}
	dialled := make(chan outcome, 1)
	go func() {
		conn, err := c.wait(ctx)
		dialled <- outcome{conn, err}
	}()
	patience := time.NewTimer(t.o.Patience << min(t.silent, 3))
	defer patience.Stop()
	for {
		select {
		case d := <-dialled:
			if errors.Is(d.err, os.ErrDeadlineExceeded) && ctx.Err() == nil {
				d.err = errSilent
			}
			return d.conn, d.err
		case a := <-t.accepted:
			t.accepted = nil
			c.abort()
			if d := <-dialled; d.conn != nil {
				if a.conn != nil {
					a.conn.Close()
				}
				return d.conn, nil
			}
			return a.conn, a.err
		case <-patience.C:
			if c.noAnswer() { // otherwise an answer is in flight: let it continue
				c.abort()
			}
		}
	}
}

// count records how an attempt ended.
func (t *tries) count(err error) {
	switch {
	case errors.Is(err, errSilent):
		t.silent++
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET):
		t.refused++
		t.last = err
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		// The listener is just receiving the connection and will accept it, or the last one between
		// the two ports ended within a minute.
		t.taken++
	default:
		t.last = err
	}
}

// nextTry returns when the attempt after number try, which ended at now, begins. Both ends count
// from the instant they agreed on, so that ends whose attempts were both refused meet again; r, in
// [0, 1), is the random number for the jitter.
func nextTry(at, now time.Time, o Options, try int, r float64) time.Time {
	steps := max(0, now.Sub(at))/o.Step + 1
	next := at.Add(steps * o.Step)
	if try%2 == 1 {
		next = next.Add(time.Duration(r * float64(o.Jitter)))
	}
	return next
}

// explain returns the error for the attempts.
func (t *tries) explain(ctx context.Context, err error) error {
	fail := func(class error, format string, args ...any) error {
		return fmt.Errorf("simultaneous open from %v to %v: %w: %s", t.port.local, t.remote, class, fmt.Sprintf(format, args...))
	}
	switch {
	case ctx.Err() == context.Canceled:
		return fail(context.Canceled, "after %d tries", t.attempts)
	case errors.Is(err, net.ErrClosed):
		return fail(net.ErrClosed, "the port was closed")
	case t.taken > 0 && t.refused+t.silent == 0:
		return fail(overlay.ErrOverloaded, "this host still keeps a connection between these two ports, or its memory of one for a minute (ss -tan); use another port")
	case t.refused > 0:
		return fail(overlay.ErrRefused, "%d of %d tries were answered by a reset, the others by nothing; "+
			"a site that resets needs both ends to dial within the one-way delay: compare the clocks, or use a relay", t.refused, t.attempts)
	case t.last != nil:
		return fail(overlay.ErrUnreachable, "%d tries, the last: %v", t.attempts, t.last)
	case t.remote.Port() == 0:
		return fail(overlay.ErrTimeout, "no SYN arrived from that address, and its port is not known; is the peer still trying?")
	}
	return fail(overlay.ErrTimeout, "nothing answered %d tries; either the peer did not dial, or a filter there refuses every SYN", t.attempts)
}

// outcomeError maps a socket error to the classes of package overlay.
func outcomeError(ctx context.Context, err error) error {
	var timeout net.Error
	switch {
	case ctx.Err() == context.Canceled:
		return context.Canceled
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET):
		return fmt.Errorf("%w: %w", overlay.ErrRefused, err)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, syscall.ETIMEDOUT):
		return fmt.Errorf("%w: nothing answered", overlay.ErrTimeout)
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return fmt.Errorf("%w: %w", overlay.ErrUnreachable, err)
	}
	return err
}
