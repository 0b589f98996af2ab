package gossip

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/isthmus-grid/isthmus/internal/testload"
	"github.com/isthmus-grid/isthmus/overlay"
)

// seeds returns how many of all worlds a test is to try.
func seeds(all uint64) uint64 {
	if testload.Full() {
		return all
	}
	return max(1, all/8)
}

// All survivors are told once and in time of each death, and of nothing else, whatever the clocks,
// with delays and losses.
func TestDeathsAreTold(t *testing.T) {
	for _, pattern := range []Pattern{Double, Single} {
		t.Run(pattern.String(), func(t *testing.T) {
			for seed := range seeds(100) {
				rng := rand.New(rand.NewPCG(seed, 3))
				n := 2 + rng.IntN(30)
				w := newWorld(t, Config{Pattern: pattern}, n, seed)
				w.loss = 0.05 * rng.Float64()
				died := map[overlay.NodeID]time.Duration{}
				for range 1 + rng.IntN(max(1, n/4)) {
					h, when := w.hosts[rng.IntN(n-1)], 3*time.Second+time.Duration(rng.Int64N(int64(8*time.Second)))
					if _, twice := died[h.id]; !twice {
						died[h.id] = when
						w.at(when, func() { w.kill(h) })
					}
				}
				w.run(30 * time.Second)
				if w.survivors(died); t.Failed() {
					t.Fatalf("seed %d: %d hosts, loss %.3f", seed, n, w.loss)
				}
			}
		})
	}
}

// A stall of three seconds is not a death: of the network, whether it then delivers or has lost
// everything, or of some hosts.
func TestStallIsNoDeath(t *testing.T) {
	const from, to = 6 * time.Second, 9 * time.Second
	for name, stall := range map[string]func(w *world){
		"delayed": func(w *world) {
			w.way = func(*host, *host) (time.Duration, bool) {
				if w.now < from || w.now >= to {
					return 0, false
				}
				return to - w.now, false
			}
		},
		"lost": func(w *world) {
			w.way = func(*host, *host) (time.Duration, bool) { return 0, w.now >= from && w.now < to }
		},
		"one site": func(w *world) {
			w.way = func(a, b *host) (time.Duration, bool) {
				return 0, w.now >= from && w.now < to && (a.id.Site == "s00") != (b.id.Site == "s00")
			}
		},
		"hosts": func(w *world) {
			w.at(from, func() {
				for i, h := range w.hosts {
					if i%3 == 0 {
						h.stopped = to
					}
				}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, pattern := range []Pattern{Double, Single} {
				for seed := range seeds(25) {
					w := newWorld(t, Config{Pattern: pattern}, 24, seed)
					stall(w)
					w.run(25 * time.Second)
					if w.calm(); t.Failed() {
						t.Fatalf("seed %d, %v", seed, pattern)
					}
				}
			}
		})
	}
}

// A host sends one message each period, whether others live or not.
func TestMessagesPerPeriod(t *testing.T) {
	for _, pattern := range []Pattern{Double, Single} {
		for _, n := range []int{2, 3, 16, 21} {
			w := newWorld(t, Config{Pattern: pattern}, n, 1)
			for _, h := range w.hosts {
				h.rate = 1
			}
			w.run(2 * time.Second)
			before := w.gossips
			w.run(12 * time.Second)
			if got := w.gossips - before; got != 20*n {
				t.Errorf("%v, %d hosts: %d messages in 20 periods, want %d", pattern, n, got, 20*n)
			}
		}
	}
}

// Each side of a partition declares the other failed, and no host of its own side. When the
// partition ends and a registry lists the hosts again, all return.
func TestPartition(t *testing.T) {
	for seed := range seeds(10) {
		w := newWorld(t, Config{}, 16, seed)
		cut, mended := 5*time.Second, 30*time.Second
		w.way = func(a, b *host) (time.Duration, bool) {
			return 0, a.id.Site != b.id.Site && w.now >= cut && w.now < mended
		}
		w.run(mended)
		for _, h := range w.hosts {
			failed := 0
			for _, v := range h.verdicts {
				if v.Kind != Failed || v.ID.Site == h.id.Site || v.at-cut > 11*time.Second+period { // among 16 hosts
					t.Errorf("%v was told at %v: %+v", h.id, v.at, v.Verdict)
				}
				failed++
			}
			if failed != 8 {
				t.Errorf("%v was told of %d deaths, want 8", h.id, failed)
			}
			h.verdicts = nil
		}
		for _, h := range w.hosts {
			w.at(mended, func() {
				for _, o := range w.hosts {
					w.take(h, h.d.Add(o.id, h.clock(w.now)))
				}
			})
		}
		w.run(mended + 20*time.Second)
		for _, h := range w.hosts {
			for _, v := range h.verdicts {
				if v.Kind != Returned {
					t.Errorf("%v was told at %v: %+v", h.id, v.at, v.Verdict)
				}
			}
			if len(h.verdicts) != 8 || len(h.d.Living()) != 16 {
				t.Errorf("%v was told %d times, and %d live", h.id, len(h.verdicts), len(h.d.Living()))
			}
		}
	}
}

// A host that was suspended for long is declared failed, declares no other, and returns.
func TestLongStop(t *testing.T) {
	w := newWorld(t, Config{}, 16, 1)
	sleeper := w.hosts[5]
	w.at(5*time.Second, func() { sleeper.stopped = 35 * time.Second })
	w.run(34 * time.Second)
	for _, h := range w.hosts {
		if h != sleeper && (len(h.verdicts) != 1 || h.verdicts[0].Kind != Failed || h.verdicts[0].ID != sleeper.id) {
			t.Errorf("%v: %+v", h.id, h.verdicts)
		}
	}
	w.run(50 * time.Second)
	if len(sleeper.verdicts) > 0 || sleeper.d.Stats().Stalls != 1 {
		t.Errorf("the sleeper: %+v, %+v", sleeper.verdicts, sleeper.d.Stats())
	}
	for _, h := range w.hosts {
		if h != sleeper && (len(h.verdicts) != 2 || h.verdicts[1].Kind != Returned) {
			t.Errorf("%v: %+v", h.id, h.verdicts)
		}
	}
}

// The restart of a host is detected at once: its earlier processes are gone.
func TestRestart(t *testing.T) {
	for seed := range seeds(10) {
		w := newWorld(t, Config{}, 16, seed)
		h := w.hosts[3]
		w.at(5*time.Second, func() { w.kill(h) })
		w.at(6*time.Second, func() { w.start(h, []overlay.NodeID{w.hosts[9].id}) })
		w.run(20 * time.Second)
		for _, o := range w.hosts {
			if o == h {
				continue
			}
			if len(o.verdicts) != 2 || o.verdicts[0].Kind != Failed || o.verdicts[0].Incarnation != 1 ||
				o.verdicts[1].Kind != Joined || o.verdicts[1].Incarnation != 2 || o.verdicts[1].ID != h.id {
				t.Fatalf("seed %d: %v was told %+v", seed, o.id, o.verdicts)
			}
			if wait := o.verdicts[0].at - 6*time.Second; wait > 4500*time.Millisecond {
				t.Errorf("seed %d: %v was told %v after the start", seed, o.id, wait)
			}
		}
		if len(h.d.Living()) != 16 {
			t.Errorf("seed %d: who came back knows %d", seed, len(h.d.Living()))
		}
	}
}

// A host that joins late and knows one host is soon known to all, and knows all; a host that leaves
// does not count as dead.
func TestJoinAndLeave(t *testing.T) {
	for seed := range seeds(10) {
		w := newWorld(t, Config{}, 20, seed)
		late, gone := w.host(overlay.NodeID{Site: "zz", Name: "late"}), w.hosts[4]
		w.at(4*time.Second, func() { w.start(late, []overlay.NodeID{w.hosts[0].id}) })
		w.at(10*time.Second, func() { w.take(gone, gone.d.Leave(gone.clock(w.now))) })
		w.run(120 * time.Second)
		for _, h := range w.hosts {
			if h == gone || h == late {
				continue
			}
			if len(h.verdicts) != 2 || h.verdicts[0].Kind != Joined || h.verdicts[0].ID != late.id ||
				h.verdicts[1].Kind != Left || h.verdicts[1].ID != gone.id {
				t.Fatalf("seed %d: %v was told %+v", seed, h.id, h.verdicts)
			}
			if wait := h.verdicts[0].at - 4*time.Second; wait > 5*time.Second {
				t.Errorf("seed %d: %v met the late one after %v", seed, h.id, wait)
			}
			if slices.Contains(h.d.Living(), gone.id) || len(h.d.peers) != 19 {
				t.Errorf("seed %d: %v still knows %d others", seed, h.id, len(h.d.peers))
			}
		}
		if len(late.d.Living()) != 20 {
			t.Errorf("seed %d: the late one knows %d", seed, len(late.d.Living()))
		}
	}
}

// A host that a registry lists and that never starts is declared failed, too, though later than one that was heard of.
func TestNeverHeardOf(t *testing.T) {
	w := newWorld(t, Config{}, 4, 1)
	ghost := w.host(overlay.NodeID{Site: "s00", Name: "ghost"})
	w.kill(ghost)
	w.at(2*time.Second, func() {
		for _, h := range w.hosts[:4] {
			w.take(h, h.d.Add(ghost.id, h.clock(w.now)))
		}
	})
	w.run(35 * time.Second)
	for _, h := range w.hosts[:4] {
		if len(h.verdicts) != 1 || h.verdicts[0].Incarnation != 0 || !strings.Contains(h.verdicts[0].Reason, "never heard of") {
			t.Errorf("%v: %+v", h.id, h.verdicts)
			continue
		}
		// 9.5 s for 5 hosts, and 15 s for a start, of clocks that are up to 2 % off.
		if wait := h.verdicts[0].at - 2*time.Second; wait < 24*time.Second || wait > 25500*time.Millisecond {
			t.Errorf("%v gave it up after %v", h.id, wait)
		}
	}
}

// The first messages of hosts that all start at once are late, for longer than a host that was heard of may be silent: nobody
// is declared failed, and one that dies soon after its first message is, within the bound.
func TestSlowStart(t *testing.T) {
	for seed := range seeds(10) {
		w := newWorld(t, Config{}, 20, seed)
		w.way = func(*host, *host) (time.Duration, bool) { return 0, w.now < 20*time.Second }
		w.run(26 * time.Second)
		if w.calm(); t.Failed() {
			t.Fatalf("seed %d", seed)
		}
		w.kill(w.hosts[3])
		w.run(45 * time.Second)
		if w.survivors(map[overlay.NodeID]time.Duration{w.hosts[3].id: 26 * time.Second}); t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// A host whose incarnation did not increase, because its clock was set back, exceeds the one that
// others remember, so that its restart is detected.
func TestClockSetBack(t *testing.T) {
	w := newWorld(t, Config{}, 8, 1)
	h := w.hosts[2]
	w.at(30*time.Second, func() { w.kill(h) })
	w.at(32*time.Second, func() {
		h.life = 0 // so that the next incarnation is 1 again
		w.start(h, []overlay.NodeID{w.hosts[0].id, w.hosts[1].id})
	})
	w.run(60 * time.Second)
	for _, o := range w.hosts {
		if o == h {
			continue
		}
		if len(o.verdicts) != 2 || o.verdicts[0].Kind != Failed || o.verdicts[1].Kind != Joined || o.verdicts[1].Incarnation != 2 ||
			o.verdicts[0].at > 36*time.Second {
			t.Errorf("%v: %+v", o.id, o.verdicts)
		}
	}
}

// A host that answers pings is alive, even if none of its other messages arrives.
func TestPongAverts(t *testing.T) {
	now := time.Unix(1e9, 0)
	ids := []overlay.NodeID{{Site: "a", Name: "x"}, {Site: "b", Name: "y"}}
	var ds [2]*Detector
	for i := range ds {
		d, err := New(Config{Start: 1}, ids[i], 1, ids, now)
		if err != nil {
			t.Fatal(err)
		}
		ds[i] = d
	}
	pongs := 0
	var carry func(i int, out Output)
	carry = func(i int, out Output) {
		if len(out.Verdicts) > 0 {
			t.Fatalf("%v was told %+v", ids[i], out.Verdicts)
		}
		for _, m := range out.Send {
			if m.Kind == Pong {
				pongs++
			}
			if m.Kind != Gossip {
				carry(1-i, ds[1-i].Receive(m, now))
			}
		}
	}
	for range 600 {
		now = now.Add(100 * time.Millisecond)
		for i, d := range ds {
			carry(i, d.Step(now))
		}
	}
	// Each of the two is doubted at least once in the bound of two hosts, 6.5 s, and not three times.
	if pongs < 9 || pongs > 27 {
		t.Errorf("%d pongs in a minute, want 9 to 27", pongs)
	}
}

// Stale gossip does not revive a host that the detector has forgotten, or never knew.
func TestStaleGossip(t *testing.T) {
	now := time.Unix(1e9, 0)
	self, other, gone := overlay.NodeID{Name: "me"}, overlay.NodeID{Name: "other"}, overlay.NodeID{Name: "gone"}
	d, err := New(Config{}, self, 1, []overlay.NodeID{self, other}, now)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []Entry{
		{ID: gone, Incarnation: 1, Heartbeat: 9, Age: time.Minute},
		{ID: gone, Incarnation: 1, Heartbeat: 9, Left: true},
		{ID: gone, Heartbeat: 9},
	} {
		out := d.Receive(Message{From: other, To: self, Kind: Gossip, Entries: []Entry{e}}, now)
		if len(out.Verdicts) > 0 || len(d.Living()) != 2 {
			t.Errorf("%+v: %+v, %v", e, out, d.Living())
		}
	}
}

// Hosts that start at different times soon step together, whatever their clocks.
func TestRoundsConverge(t *testing.T) {
	for seed := range seeds(10) {
		w := newWorld(t, Config{}, 32, seed)
		w.run(10 * time.Second)
		least, most := w.hosts[0].d.round, uint64(0)
		for _, h := range w.hosts {
			least, most = min(least, h.d.round), max(most, h.d.round)
		}
		if most-least > 2 { // one for the phase, one for news in flight
			t.Errorf("seed %d: rounds %d to %d", seed, least, most)
		}
	}
}

// In step, news of one host reaches all after one cycle of the pattern.
func TestPatternReachesAll(t *testing.T) {
	for n := 2; n <= 70; n++ {
		l := steps(n)
		for turn, c := range []Config{{Pattern: Single}, {Pattern: Double}, {Pattern: Double}} {
			first := 3 * l // the third cycle: for Double the second of its two
			if turn == 1 {
				first = 4 * l
			}
			knows := map[int]bool{0: true}
			for r := first; r < first+l; r++ {
				next := map[int]bool{}
				for h := range knows {
					places := c.target(uint64(r), n)
					if places < 1 || places >= n {
						t.Fatalf("%d hosts, round %d: %d places", n, r, places)
					}
					if forwards := c.Pattern == Single || turn == 1; forwards != (places == 1<<(r-first)) && n > 3 && 2*places != n {
						t.Errorf("%d hosts, %v, round %d: %d places", n, c.Pattern, r, places)
					}
					next[h], next[(h+places)%n] = true, true
				}
				knows = next
			}
			if len(knows) != n {
				t.Errorf("%d of %d hosts know after a turn of %v", len(knows), n, c.Pattern)
			}
		}
	}
}

// Messages from elsewhere are bounded and harmless.
func TestHostileMessages(t *testing.T) {
	now := time.Unix(1e9, 0)
	self := overlay.NodeID{Site: "s", Name: "me"}
	d, err := New(Config{}, self, 5, nil, now)
	if err != nil {
		t.Fatal(err)
	}
	other := overlay.NodeID{Site: "s", Name: "other"}
	for _, m := range []Message{
		{From: other, To: other, Kind: Gossip},
		{From: self, To: self, Kind: Gossip},
		{From: other, To: self, Kind: Gossip, Entries: make([]Entry, MaxMembers+2)},
	} {
		if out := d.Receive(m, now); len(out.Send)+len(out.Verdicts) > 0 {
			t.Errorf("%+v", out)
		}
	}
	if d.Stats().Refused != 3 {
		t.Errorf("%+v", d.Stats())
	}
	crowd := make([]Entry, 0, MaxMembers+1)
	for i := range MaxMembers + 1 {
		crowd = append(crowd, Entry{ID: overlay.NodeID{Site: "x", Name: fmt.Sprint(i)}, Incarnation: 1, Heartbeat: 1, Age: -time.Hour})
	}
	d.Receive(Message{From: other, To: self, Kind: Gossip, Round: 1, Entries: crowd[:10]}, now)
	for _, p := range d.peers {
		if p.fresh.After(now) {
			t.Errorf("%v has news of the future", p.ID)
		}
	}
	d.peers = map[overlay.NodeID]*peer{}
	for _, e := range crowd {
		d.peers[e.ID] = &peer{Entry: e, fresh: now}
	}
	delete(d.peers, crowd[0].ID)
	if out := d.Receive(Message{From: other, To: self, Kind: Gossip, Entries: crowd[:1]}, now); len(out.Verdicts) > 0 || len(d.peers) != MaxMembers {
		t.Errorf("one more than the most was taken: %d", len(d.peers))
	}
}

func TestConfig(t *testing.T) {
	// Seconds for 16, 64 and 256 hosts, without and with the hang.
	for n, want := range map[int][4]time.Duration{16: {4, 6, 9, 11}, 64: {6, 9, 11, 14}, 256: {8, 12, 13, 17}} {
		for i, c := range []Config{{Pattern: Single, Hang: 1}, {Pattern: Double, Hang: 1}, {Pattern: Single}, {Pattern: Double}} {
			if got := c.Bound(n).Truncate(time.Millisecond); got != want[i]*time.Second {
				t.Errorf("%d hosts, %+v: %v, want %v", n, c, got, want[i]*time.Second)
			}
		}
	}
	for _, c := range []Config{{Period: 1}, {Ping: 9 * time.Second}, {Hang: -1}, {Start: -1}, {Pattern: 2}} {
		if _, err := New(c, overlay.NodeID{}, 1, nil, time.Unix(0, 0)); err == nil {
			t.Errorf("%+v taken", c)
		}
	}
	if _, err := New(Config{}, overlay.NodeID{}, 0, nil, time.Unix(0, 0)); err == nil {
		t.Error("incarnation 0 taken")
	}
}

// TestTable prints, with -v, the cost and the duration of detection.
func TestTable(t *testing.T) {
	sizes := []int{16}
	if testload.Full() {
		sizes = append(sizes, 64)
	}
	t.Log(table(t, sizes...))
}

// BenchmarkTable prints, with -v, the table for more hosts.
func BenchmarkTable(b *testing.B) {
	for b.Loop() {
		b.Log(table(b, 256))
	}
}

func table(t testing.TB, sizes ...int) string {
	var b strings.Builder
	b.WriteString("500 ms, 5 s hang, 1 s ping, 1% loss, 4-9 ms between sites of eight, clocks 2% off:\n")
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "HOSTS\tPATTERN\tBOUND\tTOLD MEAN\tTOLD WORST\tNEWS MEAN\tNEWS OLDEST\tMESSAGES/PERIOD")
	for _, n := range sizes {
		for _, pattern := range []Pattern{Single, Double} {
			w := newWorld(t, Config{Pattern: pattern}, n, uint64(n))
			w.loss = 0.01
			w.run(7 * time.Second)
			before := w.gossips
			mean, oldest := ages(w)
			w.run(9 * time.Second)
			messages := float64(w.gossips-before) / 4
			h := w.hosts[n/3]
			w.kill(h)
			w.run(9*time.Second + w.bound(n) + 2*period)
			waits := w.survivors(map[overlay.NodeID]time.Duration{h.id: 9 * time.Second})
			var sum time.Duration
			for _, d := range waits {
				sum += d
			}
			fmt.Fprintf(tw, "%d\t%v\t%v\t%.1fs\t%.1fs\t%.2fs\t%.2fs\t%.1f\n", n, pattern, w.cfg.Bound(n),
				(sum / time.Duration(max(1, len(waits)))).Seconds(), slices.Max(append(waits, 0)).Seconds(), mean.Seconds(), oldest.Seconds(), messages)
		}
	}
	tw.Flush()
	return b.String()
}

// ages returns the age of the hosts' information about each other.
func ages(w *world) (mean, oldest time.Duration) {
	count := 0
	for _, h := range w.hosts {
		for _, p := range h.d.peers {
			age := h.clock(w.now).Sub(p.fresh)
			mean += age
			oldest = max(oldest, age)
			count++
		}
	}
	return mean / time.Duration(max(1, count)), oldest
}
