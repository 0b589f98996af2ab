package link

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/link/stream"
	"github.com/isthmus-grid/isthmus/overlay"
)

// strip waits until both ends of a link send on n carriers.
func strip(t *testing.T, n int, links ...*Link) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(stream.Tick) {
		fewest := n
		for _, l := range links {
			fewest = min(fewest, len(used(l)))
		}
		switch {
		case fewest == n:
			return
		case time.Now().After(end):
			t.Fatalf("waited 30 s for %d carriers, there are %d", n, fewest)
		}
	}
}

func used(l *Link) (all []Carrier) {
	for _, c := range l.Carriers() {
		if c.Used {
			all = append(all, c)
		}
	}
	return all
}

// TestUnequalCarriers: over carriers of unequal speed every byte arrives once and in order, and
// each carries its share.
func TestUnequalCarriers(t *testing.T) {
	for _, sealed := range []bool{false, true} {
		t.Run(map[bool]string{false: "plain", true: "sealed"}[sealed], func(t *testing.T) {
			r := newRoads(t)
			r.seal, r.carriers = sealed, 3
			r.rates = []float64{1e6, 4e6, 2e6}
			all := append([]float64(nil), r.rates...)
			a, b := couple(t, r, 0)
			strip(t, 3, a, b)
			brought(t, a, b, all)
		})
	}
}

// brought checks whether each of a's carriers brings as many of the bytes as its road carries,
// limits in bytes per second. That holds only while the roads limit the link, and not the
// processors: it has to be observed once in a few attempts.
func brought(t *testing.T, a, b *Link, limits []float64) {
	t.Helper()
	const n = 28 << 20
	all := 0.0
	for _, limit := range limits {
		all += limit
	}
	for range 6 {
		before, began := used(a), time.Now()
		pump(t, b, a, n)
		rate := n / time.Since(began).Seconds()
		moved, ok := movedOn(limits, before, used(a))
		if !ok {
			t.Log("a carrier was lost meanwhile") // because the machine stalls
			strip(t, len(limits), a, b)
			continue
		}
		var sum float64
		for _, bytes := range moved {
			sum += bytes
		}
		fits := rate > 0.7*all
		for _, limit := range limits {
			share, want := moved[limit]/sum, limit/all
			fits = fits && share > 0.75*want && share < 1.35*want
			t.Logf("%.1f MB/s, the roads carry %.1f: that of %.0f MB/s brought %.3f of the bytes, want %.3f", rate/1e6, all/1e6, limit/1e6, share, want)
		}
		if fits {
			return
		}
	}
	t.Error("the carriers never brought what their roads carry")
}

// movedOn returns how many bytes the carrier on the road of each limit brought between two samples,
// and whether the carriers are the same.
func movedOn(limits []float64, before, after []Carrier) (map[float64]float64, bool) {
	moved := map[float64]float64{}
	for _, limit := range limits {
		on := func(c Carrier) bool { return c.Path.Reason == reason(limit) }
		i, j := slices.IndexFunc(before, on), slices.IndexFunc(after, on)
		if i < 0 || j < 0 || after[j].Received < before[i].Received {
			return nil, false
		}
		moved[limit] = float64(after[j].Received - before[i].Received)
	}
	return moved, true
}

// TestStripedLinkSurvives: carriers of a striped link are reset and fall silent, one or all at a
// time, and every byte arrives once and in order; then there are as many again.
func TestStripedLinkSurvives(t *testing.T) {
	r := newRoads(t)
	r.carriers = 4
	a, b := couple(t, r, 0)
	strip(t, 4, a, b)
	stop := make(chan struct{})
	var firing sync.WaitGroup
	firing.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(30 * time.Millisecond): // enough for some data to get through
			}
			switch {
			case i%10 == 9:
				r.cut()
			case i%10 == 4:
				r.one(func(w *road) { w.mu.Lock(); w.muted = true; w.mu.Unlock() })
			default:
				r.one((*road).close)
			}
		}
	})
	for r.count(overlay.Direct) < 20 && !t.Failed() {
		pump(t, a, b, 8<<20)
	}
	close(stop)
	firing.Wait()
	strip(t, 4, a, b)
	pump(t, a, b, 8<<20)
}

// one applies do to one connection.
func (r *roads) one(do func(*road)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for w := range r.open {
		do(w)
		return
	}
}

// TestBetterPathTakesOverFromAll: a link striped over relays that finds a direct path moves to
// that, stripes it, and keeps one relay warm.
func TestBetterPathTakesOverFromAll(t *testing.T) {
	r := newRoads(t)
	r.carriers = 3
	r.block(overlay.Direct, overlay.ErrUnreachable)
	a, b := couple(t, r, 0)
	strip(t, 3, a, b)
	pump(t, a, b, 1<<20)
	r.block(overlay.Direct, nil)
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(stream.Tick) {
		relays, direct := 0, 0
		for _, c := range a.Carriers() {
			switch {
			case c.Path.Technique == overlay.Relay:
				relays++
			case c.Used:
				direct++
			}
		}
		if relays == 1 && direct == 3 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d relays and %d direct carriers", relays, direct)
		}
	}
	pump(t, a, b, 1<<20)
}
