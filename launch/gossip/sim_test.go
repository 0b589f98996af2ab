package gossip

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// A world is hosts and the network between them, in virtual time.
type world struct {
	t     testing.TB
	rng   *rand.Rand
	cfg   Config
	now   time.Duration // the true time; no host's clock shows it
	queue events
	order int // breaks ties of time, so that runs are reproducible
	hosts []*host

	loss float64
	// way returns a message's delay in addition to the usual one, and whether the message is lost.
	way func(from, to *host) (extra time.Duration, lost bool)

	gossips int
}

// A host has a detector and a clock with an offset and a rate.
type host struct {
	id       overlay.NodeID
	ahead    time.Duration
	rate     float64
	d        *Detector
	dead     bool
	stopped  time.Duration // it is suspended until then
	life     int           // number of starts
	verdicts []told
}

// told is a verdict and its true time.
type told struct {
	at time.Duration
	Verdict
}

func (h *host) clock(now time.Duration) time.Time {
	return time.Unix(1e9, 0).Add(h.ahead + time.Duration(float64(now)*h.rate))
}

type event struct {
	at    time.Duration
	order int
	do    func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].order < e[j].order
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func (w *world) at(when time.Duration, do func()) {
	w.order++
	heap.Push(&w.queue, event{max(when, w.now), w.order, do})
}

func (w *world) run(until time.Duration) {
	for len(w.queue) > 0 && w.queue[0].at <= until {
		e := heap.Pop(&w.queue).(event)
		w.now = e.at
		e.do()
	}
	w.now = until
}

// newWorld makes n hosts at sites of eight, all of which start within one period and know each
// other.
func newWorld(t testing.TB, cfg Config, n int, seed uint64) *world {
	cfg, err := cfg.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, cfg: cfg, rng: rand.New(rand.NewPCG(seed, 7))}
	var ids []overlay.NodeID
	for i := range n {
		ids = append(ids, overlay.NodeID{Site: overlay.SiteID(fmt.Sprintf("s%02d", i/8)), Name: fmt.Sprintf("n%d", i%8)})
	}
	for _, id := range ids {
		h := w.host(id)
		w.at(time.Duration(w.rng.Int64N(int64(cfg.Period))), func() { w.start(h, ids) })
	}
	return w
}

func (w *world) host(id overlay.NodeID) *host {
	h := &host{id: id, ahead: time.Duration(w.rng.Int64N(int64(time.Hour))), rate: 0.98 + 0.04*w.rng.Float64()}
	w.hosts = append(w.hosts, h)
	return h
}

func (w *world) start(h *host, members []overlay.NodeID) {
	h.life++
	h.dead = false
	d, err := New(w.cfg, h.id, uint64(h.life), members, h.clock(w.now))
	if err != nil {
		w.t.Fatal(err)
	}
	d.round = w.rng.Uint64N(64) // as if it had run for a while
	h.d = d
	w.step(h, h.life)
}

// step steps a host, and schedules its next step.
func (w *world) step(h *host, life int) {
	if h.dead || h.life != life {
		return
	}
	if w.now < h.stopped {
		w.at(h.stopped, func() { w.step(h, life) })
		return
	}
	w.take(h, h.d.Step(h.clock(w.now)))
	wait := h.d.Next().Sub(h.clock(w.now))
	w.at(w.now+time.Duration(float64(wait)/h.rate)+time.Microsecond, func() { w.step(h, life) })
}

func (w *world) take(h *host, out Output) {
	for _, v := range out.Verdicts {
		h.verdicts = append(h.verdicts, told{w.now, v})
	}
	for _, m := range out.Send {
		if m.Kind == Gossip {
			w.gossips++
		}
		w.send(h, m)
	}
}

func (w *world) send(from *host, m Message) {
	to := w.find(m.To)
	delay := time.Duration(100+w.rng.IntN(200)) * time.Microsecond
	if from.id.Site != to.id.Site {
		delay = time.Duration(4000+w.rng.IntN(5000)+int(3000*w.rng.ExpFloat64())) * time.Microsecond
	}
	lost := w.rng.Float64() < w.loss
	if w.way != nil {
		extra, cut := w.way(from, to)
		delay, lost = delay+extra, lost || cut
	}
	if !lost {
		w.at(w.now+delay, func() { w.deliver(to, m) })
	}
}

func (w *world) deliver(to *host, m Message) {
	switch {
	case to.dead || to.d == nil:
	case w.now < to.stopped:
		w.at(to.stopped, func() { w.deliver(to, m) })
	default:
		w.take(to, to.d.Receive(m, to.clock(w.now)))
	}
}

func (w *world) find(id overlay.NodeID) *host {
	return w.hosts[slices.IndexFunc(w.hosts, func(h *host) bool { return h.id == id })]
}

// period is the time between two messages of a host, of the default settings.
const period = 500 * time.Millisecond

// bounds are how long after its last heartbeat a host is declared failed among up to so many hosts,
// by the default settings. News takes 1, 2, 3 ... periods of half a second to reach 2, 4, 8 ...
// hosts. Its age is two such times with the pattern Single and three with Double, and 5 s more.
var bounds = []struct {
	hosts          int
	single, double time.Duration
}{
	{2, 6000 * time.Millisecond, 6500 * time.Millisecond},
	{4, 7000 * time.Millisecond, 8000 * time.Millisecond},
	{8, 8000 * time.Millisecond, 9500 * time.Millisecond},
	{16, 9000 * time.Millisecond, 11000 * time.Millisecond},
	{32, 10000 * time.Millisecond, 12500 * time.Millisecond},
	{64, 11000 * time.Millisecond, 14000 * time.Millisecond},
	{256, 13000 * time.Millisecond, 17000 * time.Millisecond},
}

// bound returns the entry of bounds for the world's pattern and n hosts.
func (w *world) bound(n int) time.Duration {
	w.t.Helper()
	for _, b := range bounds {
		switch {
		case n > b.hosts:
		case w.cfg.Pattern == Single:
			return b.single
		default:
			return b.double
		}
	}
	w.t.Fatalf("no bound is known for %d hosts", n)
	return 0
}

// survivors checks that all living hosts were told once that the dead failed, within the bound and
// a period after the death, and of no other failure. It returns how long that took.
func (w *world) survivors(died map[overlay.NodeID]time.Duration) (waits []time.Duration) {
	w.t.Helper()
	bound := w.bound(len(w.hosts))
	for _, h := range w.hosts {
		if h.dead {
			continue
		}
		failed := map[overlay.NodeID]bool{}
		for _, v := range h.verdicts {
			death, dead := died[v.ID]
			if v.Kind != Failed || !dead || v.at < death || failed[v.ID] {
				w.t.Errorf("%v was told at %v: %+v", h.id, v.at, v.Verdict)
				continue
			}
			failed[v.ID] = true
			// By the host's own clock, as Bound is.
			if wait := time.Duration(float64(v.at-death) * h.rate); wait > bound+period {
				w.t.Errorf("%v was told %v after the death of %v; the bound is %v and a period", h.id, wait, v.ID, bound)
			}
			waits = append(waits, v.at-death)
		}
		if len(failed) != len(died) {
			w.t.Errorf("%v was told of %d of %d deaths", h.id, len(failed), len(died))
		}
	}
	return waits
}

// calm checks that there were no verdicts.
func (w *world) calm() {
	w.t.Helper()
	w.survivors(nil)
}

func (w *world) kill(h *host) { h.dead = true }
