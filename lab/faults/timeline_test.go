package faults

import (
	"slices"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

var epoch = time.Unix(1000, 0)

// at returns the time ms milliseconds after epoch.
func at(ms int) time.Time { return epoch.Add(time.Duration(ms) * time.Millisecond) }

// step is what a carrier carried until a time, every 50 ms.
type step struct {
	until     int // ms
	carrier   int
	technique overlay.Technique
}

// lineOf makes a timeline of reports.
func lineOf(steps ...step) timeline {
	var l timeline
	var before report
	now := 0
	for _, s := range steps {
		for ; now < s.until; now += 50 {
			r := report{At: at(now), Bytes: before.Bytes}
			r.Carriers = append(r.Carriers, before.Carriers...)
			if s.carrier >= 0 {
				for len(r.Carriers) <= s.carrier {
					r.Carriers = append(r.Carriers, carrierState{Number: len(r.Carriers), Technique: s.technique})
				}
				r.Carriers[s.carrier].In += carries + 100
				r.Bytes += carries
			}
			l.samples = append(l.samples, sampleOf(before, r))
			before = r
		}
	}
	return l
}

const (
	direct = overlay.Direct
	relay  = overlay.Relay
)

func TestTimeline(t *testing.T) {
	l := lineOf(step{1000, 0, direct}, step{2000, -1, 0}, step{5000, 1, relay}, step{8000, 2, direct})
	l.gaps = []gap{{at(300), 30 * time.Millisecond}, {at(950), 1050 * time.Millisecond}, {at(7000), 2 * time.Second}}
	if s, ok := l.latest(at(1500)); !ok || s.Carrier != 0 || s.Technique != direct {
		t.Errorf("before 1.5 s: %+v, %v", s, ok)
	}
	if s, ok := l.resumed(at(500), at(600)); !ok || s.Carrier != 0 || !s.At.Equal(at(550)) {
		t.Errorf("after a cut that nobody noticed: %+v, %v", s, ok)
	}
	if s, ok := l.resumed(at(940), at(2000)); !ok || s.Carrier != 1 || s.Technique != relay {
		t.Errorf("after the cut: %+v, %v", s, ok)
	}
	if g, ok := l.stall(at(960), at(3000)); !ok || g.Length != 1050*time.Millisecond {
		t.Errorf("the stall at the cut: %v, %v", g, ok)
	}
	if g, ok := l.stall(at(2500), at(3000)); ok {
		t.Errorf("a stall where none is: %v", g)
	}
	if since, ok := l.steady(at(3000), direct); !ok || !since.Equal(at(4950)) {
		t.Errorf("back on direct since %v, %v", since.Sub(epoch), ok)
	}
	if _, ok := l.steady(at(3000), overlay.Reversed); !ok {
		t.Error("a target that dials is not as good as one that is asked to")
	}
	if _, ok := l.steady(at(3000), relay); ok {
		t.Error("still on the relay")
	}
	moves := l.moves()
	if len(moves) != 2 || !moves[0].At.Equal(at(2000)) || moves[1].Carrier != 2 || l.used() != 3 {
		t.Errorf("moves %v among %d carriers", moves, l.used())
	}
}

// TestWhoseEnd distinguishes a carrier that broke while the stream used it from one that the link
// had left, and follows a stream over several carriers.
func TestWhoseEnd(t *testing.T) {
	var l timeline
	var before report
	for now := 0; now <= 10000; now += 50 {
		r := report{At: at(now)}
		for n := range 4 {
			c := carrierState{Number: n, Technique: direct}
			if n < len(before.Carriers) {
				c.In = before.Carriers[n].In
			}
			switch {
			case n == 0, // always
				n == 1 && now < 3000,                    // left, and closed later
				n == 2 && now < 6000,                    // broken
				n == 3 && now >= 7000 && now/50%10 == 0: // at intervals
				c.In += carries
			}
			c.Closed = n == 1 && now >= 5000 || n == 2 && now >= 6000
			r.Carriers = append(r.Carriers, c)
		}
		l.samples = append(l.samples, sampleOf(before, r))
		before = r
	}
	if got := l.by(at(2500)); !slices.Equal(got, []int{0, 1, 2}) {
		t.Errorf("at 2.5 s it comes by %v", got)
	}
	if got := l.by(at(10000)); !slices.Equal(got, []int{0, 3}) {
		t.Errorf("at the end it comes by %v", got)
	}
	if got := l.broken([]int{0, 1, 2, 3}, at(2500)); !slices.Equal(got, []int{2}) {
		t.Errorf("broken: %v", got)
	}
	if got := l.broken([]int{0, 1, 2, 3}, at(6500)); len(got) > 0 {
		t.Errorf("broken after 6.5 s: %v", got)
	}
	if l.used() != 4 {
		t.Errorf("%d carriers", l.used())
	}
}

// A busy machine is not a break; silence is, at the end too.
func TestSteadyThroughPauses(t *testing.T) {
	l := lineOf(step{1000, 0, direct}, step{1400, -1, 0}, step{2000, 0, direct})
	if since, ok := l.steady(at(0), direct); !ok || !since.Equal(at(0)) {
		t.Errorf("with a pause: since %v, %v", since.Sub(epoch), ok)
	}
	l = lineOf(step{1000, 0, direct}, step{2000, -1, 0}, step{3000, 0, direct})
	if since, ok := l.steady(at(0), direct); !ok || !since.Equal(at(1950)) {
		t.Errorf("with a break: since %v, %v", since.Sub(epoch), ok)
	}
	l = lineOf(step{1000, 0, direct}, step{3000, -1, 0})
	if _, ok := l.steady(at(0), direct); ok {
		t.Error("steady though nothing comes")
	}
	if _, ok := l.steady(at(9000), direct); ok {
		t.Error("steady where there is no sample")
	}
}

// Keepalives and handshakes are not part of the stream.
func TestSampleIgnoresHandshakes(t *testing.T) {
	before := report{Carriers: []carrierState{{Number: 0, In: 100, Technique: relay}}}
	r := report{At: at(50), Carriers: []carrierState{{Number: 0, In: 3000, Technique: relay}}}
	if s := sampleOf(before, r); s.Carrier != -1 {
		t.Errorf("a sample of a handshake: %+v", s)
	}
	r.Carriers[0].In += carries
	if s := sampleOf(before, r); s.Carrier != 0 || s.Technique != relay {
		t.Errorf("a sample of more: %+v", s)
	}
}
