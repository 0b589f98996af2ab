package carrier

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier/multihome"
	"github.com/isthmus-grid/isthmus/internal/sleep"
)

func ports(texts ...string) (all []netip.AddrPort) {
	for _, s := range texts {
		all = append(all, netip.MustParseAddrPort(s))
	}
	return all
}

func TestInterleaved(t *testing.T) {
	got := interleaved(ports("[2001:db8::1]:1", "[2001:db8::2]:1", "192.0.2.1:1", "192.0.2.2:1", "192.0.2.3:1"))
	if want := ports("[2001:db8::1]:1", "192.0.2.1:1", "[2001:db8::2]:1", "192.0.2.2:1", "192.0.2.3:1"); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// Other sources come after all addresses, are looked for only then, and the total is bounded.
func TestAttempts(t *testing.T) {
	asked := 0
	next := attempts(ports("192.0.2.1:1", "192.0.2.2:1"), multihome.Source{}, func(netip.Addr) []multihome.Source {
		asked++
		return []multihome.Source{{Interface: "b"}, {Interface: "c"}, {Interface: "d"}, {Interface: "e"}}
	})()
	var got []string
	for a, ok := next(); ok; a, ok = next() {
		if got = append(got, a.to.Addr().String()+a.from.Interface); len(got) == 2 && asked > 0 {
			t.Error("other sources were looked for too early")
		}
	}
	if want := "192.0.2.1 192.0.2.2 192.0.2.1b 192.0.2.1c 192.0.2.1d 192.0.2.1e 192.0.2.2b 192.0.2.2c"; strings.Join(got, " ") != want {
		t.Errorf("%v, want %s", got, want)
	}
}

// A source by which recent dials succeeded goes first, if it is one, and once.
func TestAttemptsVia(t *testing.T) {
	source := func(last byte) multihome.Source {
		return multihome.Source{Addr: netip.AddrFrom4([4]byte{198, 51, 100, last})}
	}
	for via, want := range map[byte]string{1: "1 0 2", 2: "2 0 1", 3: "0 1 2"} {
		next := attempts(ports("192.0.2.1:1"), source(via), func(netip.Addr) []multihome.Source { return []multihome.Source{source(1), source(2)} })()
		var got []string
		for a, ok := next(); ok; a, ok = next() {
			last := byte(0)
			if a.from.Addr.IsValid() {
				last = a.from.Addr.As4()[3]
			}
			got = append(got, fmt.Sprint(last))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("via %d: %v, want %s", via, got, want)
		}
	}
}

func TestDetour(t *testing.T) {
	var none *detour
	b := multihome.Source{Addr: netip.MustParseAddr("198.51.100.1")}
	now := time.Now()
	to, through := ports("192.0.2.1:1"), func(netip.Addr) []multihome.Source { return []multihome.Source{b} }
	if none.sourceFor(now, to, through) != (multihome.Source{}) || none.update(multihome.Source{}, multihome.Source{}, now) != nil {
		t.Error("a detour out of nothing")
	}
	d := none.update(b, multihome.Source{}, now)
	if d.sourceFor(now.Add(detourTime), to, through) != b || d.sourceFor(now.Add(detourTime+1), to, through) != (multihome.Source{}) {
		t.Errorf("%+v", d)
	}
	if d.sourceFor(now, to, fakes{}.others) != (multihome.Source{}) {
		t.Error("a detour to where it does not lead")
	}
	if d.update(multihome.Source{}, multihome.Source{}, now) != d {
		t.Error("a dial that did not go by it ended it")
	}
	if later := d.update(b, b, now.Add(detourTime)); later != d {
		t.Errorf("prolonged to %+v", later)
	}
	if d.update(multihome.Source{}, b, now) != nil {
		t.Error("it goes on though the kernel's selection was the one to answer")
	}
}

// fakes are dials that behave as given for the interface of their source.
type fakes map[string]error

var errSilent = errors.New("it stays silent")

func (p fakes) others(netip.Addr) (all []multihome.Source) {
	for name := range p {
		if name != "" {
			all = append(all, multihome.Source{Interface: name})
		}
	}
	return all
}

func (p fakes) dial(ctx context.Context, a attempt, _ func()) (*net.TCPConn, error) {
	switch err := p[a.from.Interface]; {
	case err == nil:
		return new(net.TCPConn), nil
	case errors.Is(err, errSilent):
		<-ctx.Done()
		return nil, ctx.Err()
	default:
		return nil, fmt.Errorf("by %q: %w", a.from.Interface, err)
	}
}

func TestOverlap(t *testing.T) {
	for _, c := range []struct {
		name string
		of   fakes
		want error
	}{
		{"alive", fakes{"": nil}, nil},
		{"the first is silent", fakes{"": errSilent, "b": nil}, nil},
		{"the first has no route", fakes{"": syscall.ENETUNREACH, "b": nil}, nil},
		{"no route", fakes{"": syscall.ENETUNREACH, "b": syscall.EHOSTUNREACH}, syscall.ENETUNREACH},
		{"refused there", fakes{"": syscall.ENETUNREACH, "b": syscall.ECONNREFUSED}, syscall.ECONNREFUSED},
		{"refused", fakes{"": syscall.ECONNREFUSED, "b": syscall.EHOSTUNREACH}, syscall.ECONNREFUSED},
		{"refused by the silent one's other", fakes{"": errSilent, "b": syscall.ECONNREFUSED}, syscall.ECONNREFUSED},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			conn, err := overlap(t.Context(), time.Now().Add(time.Hour), attempts(ports("192.0.2.1:1"), multihome.Source{}, c.of.others), c.of.dial)
			if !errors.Is(err, c.want) || (conn.conn == nil) != (c.want != nil) {
				t.Errorf("%v, %v; want %v", conn, err, c.want)
			}
		})
	}
}

// Attempts without an answer are repeated until the deadline.
func TestOverlapBeginsAnew(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	made := 0
	_, err := overlap(ctx, time.Now().Add(time.Hour), attempts(ports("192.0.2.1:1"), multihome.Source{}, fakes{}.others), func(context.Context, attempt, func()) (*net.TCPConn, error) {
		if made++; made == 3 {
			cancel()
		}
		return nil, context.DeadlineExceeded
	})
	if made != 3 || err == nil {
		t.Errorf("%d attempts, %v", made, err)
	}
}

// peers are addresses that behave as given when they are dialled.
type peers map[string]struct {
	rtt    time.Duration // until it accepts; 0: never
	refuse error         // in place of accepting
	finish time.Duration // until what follows is done, after accepting; 0: never
	fail   error         // in place of being done
}

func (p peers) dial(ctx context.Context, a attempt, reached func()) (fakeConn, error) {
	wait := func(d time.Duration) error {
		if d == 0 {
			<-ctx.Done()
			return ctx.Err()
		}
		return sleep.For(ctx, d)
	}
	b := p[a.to.Addr().String()]
	switch err := wait(b.rtt); {
	case err != nil:
		return fakeConn{}, err
	case b.refuse != nil:
		return fakeConn{}, b.refuse
	}
	reached()
	if err := wait(b.finish); err != nil {
		return fakeConn{}, &finishError{err}
	}
	if b.fail != nil {
		return fakeConn{}, &finishError{b.fail}
	}
	return fakeConn{make(chan struct{}), a.to.Addr().String()}, nil
}

// A handshake belongs to an attempt: whatever the other addresses of a name do, the one that works has
// the connection soon, and none is tried too early on a long path.
func TestHandshakesOverlap(t *testing.T) {
	const ms, one, two, six = time.Millisecond, "192.0.2.1", "192.0.2.2", "2001:db8::1"
	var ends = errors.New("this is another grid's")
	for _, c := range []struct {
		name   string
		to     []string
		of     peers
		won    string
		within time.Duration
		err    error
	}{
		{"alive", []string{one}, peers{one: {rtt: 20 * ms, finish: 40 * ms}}, one, 60 * ms, nil},
		{"the first is dead", []string{six, one}, peers{one: {rtt: 20 * ms, finish: 40 * ms}}, one, 310 * ms, nil},
		{"the first accepts and stays silent", []string{six, one}, peers{six: {rtt: 20 * ms}, one: {rtt: 20 * ms, finish: 40 * ms}}, one, 1160 * ms, nil},
		{"two accept and stay silent", []string{six, one, two}, peers{six: {rtt: 10 * ms}, one: {rtt: 10 * ms}, two: {rtt: 10 * ms, finish: 10 * ms}}, two, 2120 * ms, nil},
		{"the first is another's", []string{six, one}, peers{six: {rtt: 20 * ms, finish: 20 * ms, fail: ends}, one: {rtt: 20 * ms, finish: 40 * ms}}, one, 100 * ms, nil},
		{"the first is slow, and the second dead", []string{six, one}, peers{six: {rtt: 600 * ms, finish: 1200 * ms}}, six, 1800 * ms, nil},
		{"the first is slow, and the second no faster", []string{six, one}, peers{six: {rtt: 600 * ms, finish: 1200 * ms}, one: {rtt: 600 * ms, finish: 1200 * ms}}, six, 1800 * ms, nil},
		{"both take longer than an attempt", []string{six, one}, peers{six: {rtt: 5000 * ms, finish: 1000 * ms}, one: {rtt: 5000 * ms, finish: 1000 * ms}}, six, 9250 * ms, nil},
		{"refused, and another's", []string{six, one}, peers{six: {rtt: 20 * ms, refuse: syscall.ECONNREFUSED}, one: {rtt: 20 * ms, finish: 40 * ms, fail: ends}}, "", 80 * ms, ends},
		{"another's, and refused", []string{six, one}, peers{six: {rtt: 20 * ms, finish: 40 * ms, fail: ends}, one: {rtt: 20 * ms, refuse: syscall.ECONNREFUSED}}, "", 80 * ms, ends},
		{"all accept and stay silent", []string{six, one}, peers{six: {rtt: 20 * ms}, one: {rtt: 20 * ms}}, "", 20 * time.Second, context.DeadlineExceeded},
		{"a proxy answers that it refuses", []string{six, one}, peers{six: {rtt: 20 * ms, finish: 20 * ms, fail: &answeredError{ends}}, one: {rtt: 20 * ms, finish: 40 * ms}}, "", 40 * ms, ends},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				var to []netip.AddrPort
				for _, a := range c.to {
					to = append(to, netip.AddrPortFrom(netip.MustParseAddr(a), 1))
				}
				start := time.Now()
				conn, err := overlap(ctx, start.Add(10*time.Second), attempts(to, multihome.Source{}, fakes{}.others), c.of.dial)
				if took := time.Since(start); conn.conn.name != c.won || !errors.Is(err, c.err) || took > c.within {
					t.Errorf("%q, %v after %v; want %q, %v within %v", conn.conn.name, err, took, c.won, c.err, c.within)
				}
			})
		})
	}
}

// A name none of whose addresses accepts is given up when that was to have happened.
func TestConnectBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		until := start.Add(10 * time.Second)
		_, err := overlap(t.Context(), until, attempts(ports("192.0.2.1:1", "192.0.2.2:1"), multihome.Source{}, fakes{}.others), func(ctx context.Context, _ attempt, _ func()) (*net.TCPConn, error) {
			ctx, cancel := context.WithDeadline(ctx, until) // as net.Dialer has it
			defer cancel()
			<-ctx.Done()
			return nil, ctx.Err()
		})
		if took := time.Since(start); !isTimeout(err) || took != 10*time.Second {
			t.Errorf("%v after %v", err, took)
		}
	})
}

// fakeConn is closed when it loses.
type fakeConn struct {
	closed chan struct{}
	name   string
}

func (c fakeConn) Close() error {
	close(c.closed)
	return nil
}

// An address that is dead, as over a version of IP that leads nowhere, costs 250 ms, and less where data
// is blocked; one that has answered is left alone for some round trips, and not for ever.
func TestFirstOfDeadAddress(t *testing.T) {
	for _, tc := range []struct {
		name   string
		urgent bool
		first  func(context.Context) error
		won    string
		took   time.Duration
	}{
		{"silent", false, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, "second", attemptDelay},
		{"silent, urgent", true, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, "second", urgentDelay},
		{"no route", false, func(context.Context) error { return syscall.ENETUNREACH }, "second", 0},
		{"answers, then works for 1 s", false, func(ctx context.Context) error {
			sleep.For(ctx, 100*time.Millisecond)
			noteReached(ctx)
			sleep.For(ctx, time.Second)
			return ctx.Err()
		}, "first", 1100 * time.Millisecond},
		{"answers, then silent", false, func(ctx context.Context) error { noteReached(ctx); <-ctx.Done(); return ctx.Err() }, "second", finishTime(0)},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, start := t.Context(), time.Now()
			if tc.urgent {
				ctx = Urgent(ctx)
			}
			got, err := FirstOf(ctx, []string{"first", "second"}, func(ctx context.Context, addr string) (c fakeConn, err error) {
				if addr == "first" {
					err = tc.first(ctx)
				}
				return fakeConn{make(chan struct{}), addr}, err
			})
			if took := time.Since(start); err != nil || got.name != tc.won || took != tc.took {
				t.Errorf("%s: %q after %v, %v; want %q after %v", tc.name, got.name, took, err, tc.won, tc.took)
			}
		})
	}
}

// Of several addresses the first to answer wins, and later connections are closed; an error names
// all.
func TestFirstOf(t *testing.T) {
	late := fakeConn{closed: make(chan struct{})}
	got, err := FirstOf(t.Context(), []string{"gone", "silent", "alive"}, func(ctx context.Context, addr string) (fakeConn, error) {
		switch addr {
		case "gone":
			return fakeConn{}, syscall.ECONNREFUSED
		case "silent":
			<-ctx.Done()
			return late, nil
		}
		return fakeConn{closed: make(chan struct{})}, nil
	})
	if err != nil || got == late {
		t.Fatalf("%v, %v", got, err)
	}
	select {
	case <-late.closed:
	default:
		t.Error("the connection that lost is open")
	}
	_, err = FirstOf(t.Context(), []error{syscall.ECONNREFUSED, syscall.ENETUNREACH}, func(_ context.Context, err error) (fakeConn, error) { return fakeConn{}, err })
	if !errors.Is(err, syscall.ECONNREFUSED) || !errors.Is(err, syscall.ENETUNREACH) {
		t.Errorf("all failed: %v", err)
	}
}

// The urgency of a dial reaches everything that is involved in it.
func TestUrgent(t *testing.T) {
	ctx, cancel := context.WithCancel(Urgent(WithSmallPackets(t.Context())))
	defer cancel()
	if delay(t.Context()) != attemptDelay || delay(ctx) != urgentDelay {
		t.Errorf("%v, urgent %v", delay(t.Context()), delay(ctx))
	}
}
