package carrier

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier/multihome"
)

// How dials overlap ("Happy Eyeballs", RFC 8305).
const (
	// attemptDelay is how long an attempt may stay alone without an answer (section 5).
	attemptDelay = 250 * time.Millisecond

	// urgentDelay is attemptDelay where a path is known to have died just now (Urgent): more than
	// section 5's minimum, because each attempt costs the network a SYN.
	urgentDelay = 50 * time.Millisecond

	// attemptTime ends an attempt of the first round where there are others: a SYN, a retransmission after
	// a second, and their answer. A socket keeps the source address and the route with which it began, so
	// waiting longer for a changed path would be useless. It doubles from round to round, since the path may be longer.
	attemptTime = 3 * time.Second

	maxDoublings = 3 // of attemptTime

	// maxAttempts bounds the attempts that overlap.
	maxAttempts = 8
)

// urgentKey marks a context of Urgent.
type urgentKey struct{}

// Urgent returns a context in which dials wait only briefly for one of this host's uplinks before
// they try another: data is blocked, perhaps because an uplink has died.
func Urgent(ctx context.Context) context.Context { return context.WithValue(ctx, urgentKey{}, true) }

// delay returns how long an attempt stays alone.
func delay(ctx context.Context) time.Duration {
	if ctx.Value(urgentKey{}) != nil {
		return urgentDelay
	}
	return attemptDelay
}

// An attempt is one way to connect.
type attempt struct {
	to   netip.AddrPort
	from multihome.Source // the zero Source: as the kernel selects
}

// A connected is the result of an attempt.
type connected[C io.Closer] struct {
	conn C
	by   attempt
}

// Close implements io.Closer, for a connection that another was faster than: a NAT forgets it sooner
// after a reset.
func (c connected[C]) Close() error {
	if conn, is := any(c.conn).(net.Conn); is {
		Reset(conn)
		return nil
	}
	return c.conn.Close()
}

// A dialling makes an attempt. It calls reached whenever the other end has answered although more is
// to be done.
type dialling[C io.Closer] = func(ctx context.Context, a attempt, reached func()) (C, error)

// overlap makes the attempts of a round until one succeeds. An attempt begins when the previous one
// has failed or has stayed without an answer for a while. If all stayed without an answer they begin
// again, until ctx ends or the given time.
func overlap[C io.Closer](ctx context.Context, until time.Time, round func() func() (attempt, bool), dial dialling[C]) (connected[C], error) {
	for n := 0; ; n++ {
		conn, err := once(ctx, attemptTime<<min(n, maxDoublings), round(), dial)
		_, isReached := errors.AsType[*finishError](err)
		if err == nil || ctx.Err() != nil || isReached || !isTimeout(err) || !time.Now().Before(until) {
			return conn, err
		}
	}
}

// attempts returns a function that returns the attempts of a round one by one, to addresses of one
// peer: to each in turn from the source that the kernel selects and then, because one of this host's
// uplinks may be dead, from the others; from via, if that is one of them, before all. It looks for
// other sources, which costs system calls, only after the kernel's selection is used up.
func attempts(to []netip.AddrPort, via multihome.Source, others func(netip.Addr) []multihome.Source) func() func() (attempt, bool) {
	return func() func() (attempt, bool) { return roundOf(to, via, others) }
}

func roundOf(to []netip.AddrPort, via multihome.Source, others func(netip.Addr) []multihome.Source) func() (attempt, bool) {
	var queue []attempt
	from := func(wanted func(multihome.Source) bool) {
		for _, a := range interleaved(to) {
			for _, s := range others(a.Addr()) {
				if wanted(s) {
					queue = append(queue, attempt{a, s})
				}
			}
		}
	}
	if via.Addr.IsValid() {
		from(func(s multihome.Source) bool { return s == via })
	}
	for _, a := range interleaved(to) {
		queue = append(queue, attempt{to: a})
	}
	looked, begun := false, 0
	return func() (attempt, bool) {
		if len(queue) == 0 && !looked {
			looked = true
			from(func(s multihome.Source) bool { return s != via })
		}
		if len(queue) == 0 || begun == maxAttempts {
			return attempt{}, false
		}
		begun++
		next := queue[0]
		queue = queue[1:]
		return next, true
	}
}

// A detour is a source that connected where the one that the kernel selects did not.
type detour struct {
	by    multihome.Source
	until time.Time
}

// detourTime is how long a detour is used before the kernel's selection is tried again.
const detourTime = 30 * time.Second

// lately is the process's detour, so that not every dial first waits in vain.
var lately atomic.Pointer[detour]

// sourceFor returns the source to try first for one of addresses; the zero Source is the kernel's
// selection.
func (d *detour) sourceFor(t time.Time, to []netip.AddrPort, others func(netip.Addr) []multihome.Source) multihome.Source {
	if d == nil || t.After(d.until) || !slices.ContainsFunc(to, func(a netip.AddrPort) bool {
		return slices.Contains(others(a.Addr()), d.by)
	}) {
		return multihome.Source{}
	}
	return d.by
}

// update returns the detour after an attempt has won, in a dial that tried via first. Using a
// detour does not extend it.
func (d *detour) update(won, via multihome.Source, t time.Time) *detour {
	switch {
	case won == via:
		return d
	case won.Addr.IsValid():
		return &detour{won, t.Add(detourTime)}
	}
	return nil
}

// interleaved returns addresses with the IP versions alternating (RFC 8305, section 4), that of the
// first address leading.
func interleaved(all []netip.AddrPort) []netip.AddrPort {
	var lead, rest []netip.AddrPort
	for _, a := range all {
		if a.Addr().Is4() == all[0].Addr().Is4() {
			lead = append(lead, a)
		} else {
			rest = append(rest, a)
		}
	}
	var turns []netip.AddrPort
	for i := range max(len(lead), len(rest)) {
		if i < len(lead) {
			turns = append(turns, lead[i])
		}
		if i < len(rest) {
			turns = append(turns, rest[i])
		}
	}
	return turns
}

// finishTime is how long an attempt that has reached the other end after the given time may stay
// alone with what is to be done there: a handshake takes some round trips.
func finishTime(took time.Duration) time.Duration { return 4*took + time.Second }

// once makes each attempt once, for at most the given time where there are others. Its error is that of the attempt that got farthest. A single attempt may take until ctx ends:
// the kernel retransmits its SYN at growing intervals, whereas new attempts would not slow down, which
// makes it worse at a firewall that counts SYNs.
func once[C io.Closer](ctx context.Context, most time.Duration, next func() (attempt, bool), dial dialling[C]) (connected[C], error) {
	var alone, answered atomic.Bool
	begun := 0
	conn, errs := race(ctx, delay(ctx), func() (attempt, bool) {
		if answered.Load() {
			return attempt{}, false
		}
		a, ok := next()
		if ok {
			begun++
		}
		alone.Store(!ok && begun == 1)
		return a, ok
	}, func(ctx context.Context, a attempt, wait func(time.Duration)) (connected[C], error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var over atomic.Bool
		start, bound := time.Now(), time.AfterFunc(most, func() {
			if !alone.Load() {
				over.Store(true)
				cancel()
			}
		})
		defer bound.Stop()
		conn, err := dial(ctx, a, func() {
			bound.Stop() // what is reached may take its time: others are tried beside it
			wait(finishTime(time.Since(start)))
		})
		if err != nil && over.Load() {
			err = os.ErrDeadlineExceeded
		}
		if _, ok := errors.AsType[*answeredError](err); ok {
			answered.Store(true)
		}
		return connected[C]{conn, a}, err
	})
	if errs == nil {
		return conn, nil
	}
	return connected[C]{}, farthest(errs)
}

// farthest returns the error of the attempt that got farthest: one that reached the other end, one that
// was refused, otherwise the first.
func farthest(errs []error) error {
	i := slices.IndexFunc(errs, func(err error) bool { _, ok := errors.AsType[*finishError](err); return ok })
	if i < 0 {
		i = max(slices.IndexFunc(errs, isRefusal), 0)
	}
	return errs[i]
}

// reachedKey has the function that FirstOf wants Dial to call.
type reachedKey struct{}

// noteReached tells the FirstOf that ctx is of, if any, that the other end has answered.
func noteReached(ctx context.Context) {
	if note, ok := ctx.Value(reachedKey{}).(func()); ok {
		note()
	}
}

// FirstOf dials each of addresses that belong to one peer, the next when the previous one has
// failed or has not been answered for a while, and returns the first connection: one of the addresses
// may lead over a dead uplink, or a version of IP that leads nowhere. A dial that has been answered, by
// Dial with its context, may take some round trips more before the next one begins. The error names all
// failures.
func FirstOf[A any, C io.Closer](ctx context.Context, addrs []A, dial func(context.Context, A) (C, error)) (C, error) {
	conn, errs := race(ctx, delay(ctx), func() (next A, ok bool) {
		if len(addrs) == 0 {
			return next, false
		}
		next, addrs = addrs[0], addrs[1:]
		return next, true
	}, func(ctx context.Context, a A, wait func(time.Duration)) (C, error) {
		start := time.Now()
		return dial(context.WithValue(ctx, reachedKey{}, func() { wait(finishTime(time.Since(start))) }), a)
	})
	return conn, errors.Join(errs...)
}

// race dials what next returns one by one, each when the previous one has failed or after a delay; a
// dial calls wait to hold the next one up for that long from now. It returns the first connection, or the errors in the order of the dials. All other dials have
// ended, and their connections are closed. The first dial, usually the only one, runs on the
// caller's goroutine: its thread may be in a network namespace.
func race[A any, C io.Closer](ctx context.Context, delay time.Duration, next func() (A, bool), dial func(ctx context.Context, a A, wait func(time.Duration)) (C, error)) (won C, errs []error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	first, ok := next()
	if !ok {
		return won, []error{errNothing}
	}
	results := make(chan result[C])
	waits := make(chan time.Duration)
	wait := func(d time.Duration) {
		select {
		case waits <- d:
		case <-ctx.Done():
		}
	}
	over := make(chan struct{})
	go func() { // ends with all dials
		defer close(over)
		won, errs = judge(cancel, delay, results, waits, func(i int) bool {
			a, ok := next()
			if ok {
				go func() { // ends with ctx
					conn, err := dial(ctx, a, wait)
					results <- result[C]{i, conn, err}
				}()
			}
			return ok
		})
	}()
	conn, err := dial(ctx, first, wait)
	results <- result[C]{0, conn, err}
	<-over
	return won, errs
}

var errNothing = errors.New("there is nothing to dial")

// A result is the outcome of the i-th dial of a race.
type result[C io.Closer] struct {
	i    int
	conn C
	err  error
}

// judge processes the results of a race whose first dial is under way, and starts the i-th by
// begin, which reports whether there is one, or later if it receives a wait. After the first
// connection it ends the others by cancel.
func judge[C io.Closer](cancel func(), delay time.Duration, results <-chan result[C], waits <-chan time.Duration, begin func(i int) bool) (won C, errs []error) {
	running := 1
	errs = []error{nil}
	defer func() {
		cancel()
		for range running {
			if r := <-results; r.err == nil {
				r.conn.Close()
			}
		}
	}()
	due := time.NewTimer(delay)
	defer due.Stop()
	for more := true; more || running > 0; {
		select {
		case <-due.C:
			if more = begin(len(errs)); !more {
				break
			}
			errs, running = append(errs, nil), running+1
			due.Reset(delay)
		case d := <-waits:
			if more {
				due.Reset(d)
			}
		case r := <-results:
			running--
			if r.err == nil {
				return r.conn, nil
			}
			errs[r.i] = r.err
			if more {
				due.Reset(0)
			}
		}
	}
	return won, errs
}

func isRefusal(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET)
}
