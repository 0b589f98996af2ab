package watch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/internal/testload"
	"github.com/isthmus-grid/isthmus/launch/gossip"
	"github.com/isthmus-grid/isthmus/overlay"
)

// grid is hosts with real goroutines in the time of a synctest bubble, and the network between
// them.
type grid struct {
	t     *testing.T
	start time.Time
	hosts []*host
	done  sync.WaitGroup

	mu   sync.Mutex // guards the fields below
	rng  *rand.Rand
	loss float64
	// holds returns until when messages between two hosts are delayed.
	holds func(from, to int) time.Time
	sent  int
}

type host struct {
	g    *grid
	at   int
	w    *Watch
	stop context.CancelFunc
	dead bool // it neither sends nor receives
	over bool // its watch has ended

	reports map[int][]time.Time // by dead host
	why     string
}

func name(i int) overlay.NodeID {
	return overlay.NodeID{Site: overlay.SiteID(fmt.Sprintf("s%d", i/4)), Name: fmt.Sprintf("n%d", i%4)}
}

// newGrid makes n hosts that start within a second, on a network that set configures.
func newGrid(t *testing.T, n int, seed uint64, set func(*grid)) *grid {
	g := &grid{t: t, start: time.Now(), rng: rand.New(rand.NewPCG(seed, 5))}
	var all []Host
	for i := range n {
		all = append(all, Host{Node: name(i), Ranks: []uint32{uint32(2 * i), uint32(2*i + 1)}})
	}
	set(g)
	var waits []time.Duration
	for range n {
		g.add(all)
		waits = append(waits, time.Duration(g.rng.Int64N(int64(time.Second))))
	}
	for i, h := range g.hosts {
		h.run(waits[i])
	}
	return g
}

// add adds a host of those in all, which does not run yet.
func (g *grid) add(all []Host) *host {
	h := &host{g: g, at: len(g.hosts), reports: map[int][]time.Time{}}
	w, err := New(Config{Self: name(h.at), Hosts: all, Carrier: h, Dead: h.hear, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		g.t.Fatal(err)
	}
	h.w = w
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hosts = append(g.hosts, h)
	return h
}

// run starts the host's watch after a time.
func (h *host) run(after time.Duration) {
	ctx, stop := context.WithCancel(context.WithoutCancel(h.g.t.Context()))
	h.stop = stop
	h.g.done.Go(func() {
		time.Sleep(after)
		if err := h.w.Serve(ctx); err != nil {
			h.g.t.Error(err)
		}
		h.g.mu.Lock()
		defer h.g.mu.Unlock()
		h.over = true
	})
}

// join starts one more host, which those that live admit, each after up to most.
func (g *grid) join(most time.Duration) *host {
	newcomer := Host{Node: name(len(g.hosts)), Ranks: []uint32{uint32(2 * len(g.hosts)), uint32(2*len(g.hosts) + 1)}}
	all := []Host{newcomer}
	for i, h := range g.hosts {
		if !h.dead {
			all = append(all, Host{Node: name(i), Ranks: []uint32{uint32(2 * i), uint32(2*i + 1)}})
		}
	}
	for _, h := range g.hosts {
		wait := time.Duration(g.rng.Int64N(int64(most)))
		g.done.Go(func() {
			time.Sleep(wait)
			if err := h.w.Admit(newcomer); err != nil {
				g.t.Error(err)
			}
		})
	}
	h := g.add(all)
	h.run(0)
	return h
}

// end ends all watches.
func (g *grid) end() {
	for _, h := range g.hosts {
		h.stop()
	}
	g.done.Wait()
}

// until lets time pass until d after the start.
func (g *grid) until(d time.Duration) { time.Sleep(time.Until(g.start.Add(d))) }

func (g *grid) kill(i int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hosts[i].dead = true
}

func (h *host) hear(of Host, why string) {
	h.g.mu.Lock()
	defer h.g.mu.Unlock()
	i := int(of.Ranks[0] / 2)
	if of.Node != name(i) || len(of.Ranks) != 2 {
		h.g.t.Errorf("%v is told of %+v", name(h.at), of)
	}
	h.reports[i] = append(h.reports[i], time.Now())
	h.why = why
}

// Send implements Carrier.
func (h *host) Send(ctx context.Context, to overlay.NodeID, message []byte) error {
	g := h.g
	g.mu.Lock()
	j := slices.IndexFunc(g.hosts, func(o *host) bool { return name(o.at) == to })
	peer := g.hosts[j]
	g.sent++
	delay := time.Duration(1+g.rng.IntN(12)) * time.Millisecond
	lost := g.rng.Float64() < g.loss
	if g.holds != nil {
		delay = max(delay, time.Until(g.holds(h.at, j)))
	}
	g.mu.Unlock()
	message = slices.Clone(message)
	select {
	case <-time.After(delay):
	case <-ctx.Done():
		return ctx.Err()
	}
	g.mu.Lock()
	lost = lost || h.dead || peer.dead
	over := peer.over
	g.mu.Unlock()
	if lost {
		return errors.New("lost")
	}
	if over {
		return fmt.Errorf("%v: %w", to, ErrOver)
	}
	return peer.w.Receive(name(h.at), message)
}

// forget discards the reports of a host's death.
func (h *host) forget(i int) {
	h.g.mu.Lock()
	defer h.g.mu.Unlock()
	delete(h.reports, i)
}

// toldOf checks that every living host was told once, in time, of each host that died, at the given
// times after the start, and of no other.
func (g *grid) toldOf(died map[int]time.Duration) {
	g.t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, h := range g.hosts {
		if h.dead {
			continue
		}
		if len(h.reports) != len(died) {
			g.t.Errorf("%v was told of %v; dead are %v", name(h.at), h.reports, died)
		}
		for i, times := range h.reports {
			when, dead := died[i]
			// Bound, a period, and the delay of a message.
			if wait := times[0].Sub(g.start.Add(when)); !dead || len(times) != 1 || wait > h.w.Bound()+520*time.Millisecond {
				g.t.Errorf("%v was told %d times of %v, first %v after its death", name(h.at), len(times), name(i), wait)
			}
		}
	}
}

// inBubble runs f for each of several seeds, each in a bubble of its own; only for the first few where the
// tests are to be short.
func inBubble(t *testing.T, seeds int, f func(t *testing.T, seed uint64)) {
	if !testload.Full() {
		seeds = min(seeds, 4)
	}
	for seed := range uint64(seeds) {
		synctest.Test(t, func(t *testing.T) { f(t, seed) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func TestSurvivorsAreTold(t *testing.T) {
	inBubble(t, 25, func(t *testing.T, seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 1))
		n := 2 + rng.IntN(20)
		g := newGrid(t, n, seed, func(g *grid) { g.loss = 0.05 * rng.Float64() })
		defer g.end()
		when := 3*time.Second + time.Duration(rng.Int64N(int64(3*time.Second)))
		died := map[int]time.Duration{}
		for range 1 + rng.IntN(max(1, n/4)) {
			died[rng.IntN(n-1)] = when // the last one survives
		}
		g.until(when)
		for i := range died {
			g.kill(i)
		}
		g.until(when + g.hosts[0].w.Bound() + 2*time.Second)
		g.toldOf(died)
		if last := g.hosts[n-1]; !strings.Contains(last.why, "is taken for dead: no news and no answer to pings (last news ") {
			t.Errorf("it was told %q", last.why)
		}
	})
}

// A host that joins is watched and watches, whatever the others have admitted so far, and what died
// before stays dead.
func TestJoin(t *testing.T) {
	inBubble(t, 20, func(t *testing.T, seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 2))
		n := 3 + rng.IntN(12)
		g := newGrid(t, n, seed, func(g *grid) { g.loss = 0.05 * rng.Float64() })
		defer g.end()
		first := map[int]time.Duration{0: 3 * time.Second}
		g.until(first[0])
		g.kill(0)
		at := first[0] + g.hosts[1].w.Bound() + 2*time.Second
		g.until(at)
		g.toldOf(first)
		for _, h := range g.hosts {
			h.forget(0)
		}
		const most = 3 * time.Second // for all to admit it
		newcomer := g.join(most)
		if seed%3 == 0 { // nobody ever hears of it
			g.kill(newcomer.at)
			const start = 15 * time.Second // which it has more than others
			g.until(at + most + start + g.hosts[0].w.Bound() + 2*time.Second)
			g.toldOf(map[int]time.Duration{newcomer.at: at + most + start})
			return
		}
		at += 30 * time.Second
		g.until(at)
		g.toldOf(nil)
		victim := 1 + rng.IntN(n) // one of the old hosts, or the newcomer
		died := map[int]time.Duration{victim: at}
		g.kill(victim)
		g.until(at + g.hosts[0].w.Bound() + 2*time.Second)
		g.toldOf(died)
	})
}

// A path that hangs for three seconds, or loses everything, is not a death.
func TestStall(t *testing.T) {
	const from, to = 6 * time.Second, 9 * time.Second
	inBubble(t, 20, func(t *testing.T, seed uint64) {
		g := newGrid(t, 16, seed, func(g *grid) {
			g.holds = func(a, b int) time.Time {
				if now := time.Since(g.start); now >= from && now < to && (seed%2 == 0 || (a < 8) != (b < 8)) {
					return g.start.Add(to)
				}
				return time.Time{}
			}
		})
		defer g.end()
		g.until(30 * time.Second)
		g.toldOf(nil)
	})
}

// A host that is done announces that, and does not count as dead.
func TestLeave(t *testing.T) {
	inBubble(t, 20, func(t *testing.T, seed uint64) {
		g := newGrid(t, 9, seed, func(*grid) {})
		defer g.end()
		for i := range 8 {
			g.until(5*time.Second + time.Duration(i)*time.Second)
			g.hosts[i].stop()
		}
		g.until(40 * time.Second)
		g.toldOf(nil)
	})
}

// A short job costs no messages, and a host that is done before its first message does not count as
// dead either.
func TestShortJobs(t *testing.T) {
	inBubble(t, 10, func(t *testing.T, seed uint64) {
		g := newGrid(t, 9, seed, func(*grid) {})
		defer g.end()
		g.until(1500 * time.Millisecond) // all have started, and none has sent
		for i := range g.hosts {
			if seed%2 == 0 || i < 3 {
				g.hosts[i].stop()
			}
		}
		g.until(40 * time.Second)
		g.toldOf(nil)
		g.mu.Lock()
		defer g.mu.Unlock()
		if seed%2 == 0 && g.sent > 0 {
			t.Errorf("%d messages", g.sent)
		}
	})
}

// Each host sends one message in a period.
func TestMessagesPerPeriod(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, seed uint64) {
		g := newGrid(t, 12, seed, func(*grid) {})
		defer g.end()
		count := func() int {
			g.mu.Lock()
			defer g.mu.Unlock()
			return g.sent
		}
		g.until(5 * time.Second)
		before := count()
		g.until(15 * time.Second)
		if got := count() - before; got != 20*12 {
			t.Errorf("%d messages in 20 periods, want %d", got, 20*12)
		}
	})
}

// A path that hangs delays neither other paths nor the end.
func TestStuckWay(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, seed uint64) {
		g := newGrid(t, 6, seed, func(g *grid) {
			g.holds = func(a, b int) time.Time {
				if a+b == 1 {
					return g.start.Add(24 * time.Hour)
				}
				return time.Time{}
			}
		})
		g.until(60 * time.Second)
		g.toldOf(nil) // they hear of each other through the others
		before := time.Now()
		g.end()
		if took := time.Since(before); took > leaveTimeout {
			t.Errorf("the end took %v", took)
		}
	})
}

// Messages beyond the detector's queue are dropped and counted.
func TestFlood(t *testing.T) {
	w, err := New(Config{Self: name(0), Hosts: []Host{{Node: name(0)}, {Node: name(1)}}})
	if err != nil {
		t.Fatal(err)
	}
	m := gossip.Message{From: name(1), To: name(0), Kind: gossip.Ping}
	for range maxIncoming + 3 {
		if err := w.Receive(name(1), m.Append(nil)); err != nil {
			t.Fatal(err)
		}
	}
	if w.Dropped() != 3 {
		t.Errorf("%d dropped, want 3", w.Dropped())
	}
}

func TestStrangers(t *testing.T) {
	w, err := New(Config{Self: name(0), Hosts: []Host{{Node: name(0)}, {Node: name(1)}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		as, from, to overlay.NodeID
		fault        error
	}{
		{name(1), name(1), name(0), nil},
		{name(2), name(1), name(0), overlay.ErrForbidden},
		{name(2), name(2), name(0), overlay.ErrForbidden},
		{name(1), name(2), name(0), overlay.ErrForbidden},
		{name(1), name(1), name(2), overlay.ErrForbidden},
	} {
		m := gossip.Message{From: tc.from, To: tc.to, Kind: gossip.Ping}
		if err := w.Receive(tc.as, m.Append(nil)); !errors.Is(err, tc.fault) || (err == nil) != (tc.fault == nil) {
			t.Errorf("%v sends a message from %v to %v: %v, want %v", tc.as, tc.from, tc.to, err, tc.fault)
		}
	}
	if err := w.Receive(name(1), []byte("nonsense")); !errors.Is(err, gossip.ErrMalformed) {
		t.Error(err)
	}
	m := gossip.Message{From: name(1), To: name(0), Kind: gossip.Gossip, Entries: []gossip.Entry{{ID: name(3), Incarnation: 1}}}
	if err := w.Receive(name(1), m.Append(nil)); err != nil {
		t.Fatal(err)
	}
	if n := len(w.incoming); n != 2 {
		t.Fatalf("%d messages were taken, want 2", n)
	}
	<-w.incoming
	if got := <-w.incoming; len(got.Entries) > 0 {
		t.Errorf("news of hosts that are none of the job's: %+v", got.Entries)
	}
}

func TestAdmitRefuses(t *testing.T) {
	w, err := New(Config{Self: name(0), Hosts: []Host{{Node: name(0)}, {Node: name(1)}}})
	if err != nil {
		t.Fatal(err)
	}
	m := gossip.Message{From: name(2), To: name(0), Kind: gossip.Ping}
	if err := w.Receive(name(2), m.Append(nil)); !errors.Is(err, overlay.ErrForbidden) {
		t.Errorf("a message before it was admitted: %v", err)
	}
	for _, tc := range []struct {
		node overlay.NodeID
		text string
	}{
		{name(2), ""},
		{name(2), "s0/n2 is there twice"},
		{name(1), "s0/n1 is there twice"},
		{overlay.NodeID{Site: "A", Name: "b"}, `site name "A"`},
	} {
		if err := w.Admit(Host{Node: tc.node}); (err == nil) != (tc.text == "") || err != nil && !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%v: %v, want %q", tc.node, err, tc.text)
		}
	}
	if err := w.Receive(name(2), m.Append(nil)); err != nil {
		t.Errorf("a message after it was admitted: %v", err)
	}
}

func TestBadConfigs(t *testing.T) {
	for _, tc := range []struct {
		cfg  Config
		text string
	}{
		{Config{Self: name(0), Hosts: []Host{{Node: name(1)}}}, "this host, s0/n0, is none of the job's 1"},
		{Config{Self: name(0), Hosts: []Host{{Node: name(0)}, {Node: name(0)}}}, "s0/n0 is there twice"},
		{Config{Self: name(0), Hosts: []Host{{Node: overlay.NodeID{Site: "A", Name: "b"}}}}, `site name "A"`},
		{Config{Self: name(0), Hosts: []Host{{Node: name(0)}}, Gossip: gossip.Config{Ping: time.Hour}}, "ping 1h0m0s"},
	} {
		if _, err := New(tc.cfg); err == nil || !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%v, want %q", err, tc.text)
		}
	}
}
