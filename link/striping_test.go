package link

import (
	"bytes"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
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
			synctest.Test(t, func(t *testing.T) {
				r := newRoads(t)
				r.seal, r.carriers = sealed, 3
				r.rates = []float64{1e6, 4e6, 2e6}
				all := append([]float64(nil), r.rates...)
				a, b := couple(t, r, 0)
				strip(t, 3, a, b)
				brought(t, a, b, all)
			})
		})
	}
}

// brought checks whether each of a's carriers brings as many of the bytes as its road carries,
// limits in bytes per second. That holds only while the roads limit the link, and not the
// processors: it has to be observed once in a few attempts.
func brought(t *testing.T, a, b *Link, limits []float64) {
	t.Helper()
	const n = 7 << 20
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

// TestBehind: who is taken for the carrier that the others wait for.
func TestBehind(t *testing.T) {
	const ms = time.Millisecond
	for name, tc := range map[string]struct {
		least  time.Duration
		holds  time.Duration   // of the second
		quiets []time.Duration // of all
		want   int
	}{
		"it holds them back":     {200 * ms, 2000 * ms, []time.Duration{500 * ms, 0, 9000 * ms}, 1},
		"not for long enough":    {200 * ms, 1950 * ms, []time.Duration{0, 0, 0}, -1},
		"the path is long":       {600 * ms, 4750 * ms, []time.Duration{0, 0, 0}, -1},
		"for long on a long one": {600 * ms, 4800 * ms, []time.Duration{0, 0, 0}, 1},
		"nothing arrives":        {200 * ms, 9000 * ms, []time.Duration{550 * ms, 0, 550 * ms}, -1},
	} {
		var used []stream.State
		for _, quiet := range tc.quiets {
			used = append(used, stream.State{Carrier: new(stream.Carrier), Least: tc.least, Quiet: quiet})
		}
		used[1].Holds = tc.holds
		if got := behind(used); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
	if got := behind([]stream.State{{Carrier: new(stream.Carrier), Holds: time.Minute}}); got != -1 {
		t.Errorf("a single carrier: %d", got)
	}
}

// TestSlowCarrierIsLeft: one of three carriers brings next to nothing. What was sent on it goes again on
// the others, so that the stream goes on.
func TestSlowCarrierIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoads(t)
		r.carriers = 3
		r.blocked[overlay.Relay] = overlay.ErrNoRelay // or the link would move to one
		r.rates = []float64{8e6, 8e6, 1e3}
		a, b := couple(t, r, 0)
		strip(t, 3, a, b)
		sent, got := make([]byte, 8<<20), make([]byte, 8<<20)
		rand.NewChaCha8([32]byte{}).Read(sent)
		b.Conn.SetDeadline(time.Now().Add(40 * time.Second)) // what is sent on that carrier takes more than a minute
		go a.Conn.Write(sent)
		if _, err := io.ReadFull(b.Conn, got); err != nil || !bytes.Equal(got, sent) {
			t.Errorf("it does not go on: %v", err)
		}
	})
}

// TestStripedLinkSurvives: carriers of a striped link are reset and fall silent, one or all at a
// time, and every byte arrives once and in order; then there are as many again.
func TestStripedLinkSurvives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoads(t)
		r.carriers, r.smallBuffers = 4, true
		a, b := couple(t, r, 0)
		strip(t, 4, a, b)
		stop := make(chan struct{})
		var firing sync.WaitGroup
		firing.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(10 * time.Millisecond): // enough for some data to get through
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
			pump(t, a, b, 1<<20)
		}
		close(stop)
		firing.Wait()
		strip(t, 4, a, b)
		pump(t, a, b, 1<<20)
	})
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
	synctest.Test(t, func(t *testing.T) {
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
	})
}
