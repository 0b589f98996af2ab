package outcomes

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// ab is a pair of nodes.
var ab = Pair{Own: "a1", Far: "siteb/b1"}

// memoryTest is a memory of siteb at a time that the test sets.
type memoryTest struct {
	*testing.T
	m *Memory
}

// expect compares the advice at a time.
func (t memoryTest) expect(when time.Time, plan uint64, winner overlay.Technique, barred ...overlay.Technique) {
	t.Helper()
	w, bs := t.m.Advice("siteb", ab, plan, when)
	var got []overlay.Technique
	for _, b := range bs {
		got = append(got, b.Technique)
	}
	if w.Technique != winner || !slices.Equal(got, barred) {
		t.Fatalf("winner %v, barred %v; want %v, %v", w.Technique, bs, winner, barred)
	}
}

// fail records a number of failures under plan 1.
func (t memoryTest) fail(tech overlay.Technique, n int, when time.Time) {
	for range n {
		t.m.Failed("siteb", ab, 1, tech, "silence", when)
	}
}

func TestMemory(t *testing.T) {
	m := memoryTest{t, New()}
	t0 := time.Unix(1_000_000, 0)
	m.expect(t0, 1, 0)
	m.fail(overlay.SimultaneousOpen, 2, t0)
	m.m.Connected("siteb", ab, 1, overlay.Relay, 40*time.Millisecond, t0)
	m.expect(t0, 1, overlay.Relay)
	m.fail(overlay.SimultaneousOpen, 1, t0)
	m.expect(t0, 1, overlay.Relay, overlay.SimultaneousOpen)
	if w, _ := m.m.Advice("siteb", ab, 1, t0); w.Setup != 40*time.Millisecond {
		t.Errorf("the relay took %v", w.Setup)
	}
	if _, bs := m.m.Advice("siteb", ab, 1, t0.Add(4*time.Second)); !strings.Contains(bs[0].Reason, "failed 3 times in a row, to be tried again in 11s: silence") {
		t.Errorf("reason %q", bs[0].Reason)
	}

	// A success ends the bar. The winner is forgotten after an hour.
	m.expect(t0.Add(14*time.Second), 1, overlay.Relay, overlay.SimultaneousOpen)
	m.expect(t0.Add(15*time.Second), 1, overlay.Relay)
	m.expect(t0.Add(61*time.Minute), 1, 0)
	m.m.Connected("siteb", ab, 1, overlay.SimultaneousOpen, time.Millisecond, t0.Add(63*time.Minute))
	m.expect(t0.Add(63*time.Minute), 1, overlay.SimultaneousOpen)

	// A winner that fails is no longer the winner; the relay is never barred.
	later := t0.Add(64 * time.Minute)
	m.fail(overlay.SimultaneousOpen, 1, later)
	m.expect(later, 1, 0)
	m.fail(overlay.Relay, 2, later)
	m.expect(later, 1, 0)

	// One that has worked is barred for a short time only, each time.
	m.fail(overlay.SimultaneousOpen, 2, later)
	m.expect(later.Add(14*time.Second), 1, 0, overlay.SimultaneousOpen)
	m.expect(later.Add(15*time.Second), 1, 0)
	m.fail(overlay.SimultaneousOpen, 1, later.Add(time.Minute))
	m.expect(later.Add(74*time.Second), 1, 0, overlay.SimultaneousOpen)
	m.expect(later.Add(75*time.Second), 1, 0)

	// Another plan means another network: the old outcomes are discarded.
	m.fail(overlay.HolePunching, 3, later)
	m.expect(later, 1, 0, overlay.SimultaneousOpen, overlay.HolePunching)
	m.expect(later, 2, 0)
	m.m.Failed("siteb", ab, 2, overlay.HolePunching, "silence", later)
	m.expect(later, 2, 0)
	if st := m.m.Status(later); len(st) != 1 || len(st[0].Techniques) != 1 || st[0].Techniques[0].Failures != 1 {
		t.Errorf("status %+v", st)
	}
}

// A technique that never works is tried ever more rarely, up to once an hour, regardless of how many
// links fail at once and of how many try it as their last resort meanwhile.
func TestBarsDouble(t *testing.T) {
	m := memoryTest{t, New()}
	now := time.Unix(1_000_000, 0)
	m.m.Connected("siteb", ab, 1, overlay.Relay, time.Millisecond, now)
	for _, want := range []time.Duration{
		15 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 16 * time.Minute, 32 * time.Minute, time.Hour, time.Hour,
	} {
		m.fail(overlay.Direct, 1000, now)
		m.fail(overlay.Direct, 1000, now.Add(want/2))
		m.expect(now.Add(want-time.Second), 1, overlay.Relay, overlay.Direct)
		if now = now.Add(want); want < time.Hour {
			m.expect(now, 1, overlay.Relay)
		}
		m.m.Connected("siteb", ab, 1, overlay.Relay, time.Millisecond, now)
	}
}

// Where all that was tried has failed nothing is barred: not the only technique, and not one beside a
// relay that connects and then carries nothing.
func TestNothingIsBarredWhereNothingWorks(t *testing.T) {
	m := memoryTest{t, New()}
	t0 := time.Unix(1_000_000, 0)
	m.fail(overlay.Direct, 5, t0)
	m.expect(t0, 1, 0)
	m.m.Connected("siteb", ab, 1, overlay.Relay, time.Millisecond, t0)
	m.expect(t0, 1, overlay.Relay, overlay.Direct)
	m.fail(overlay.Relay, 2, t0)
	m.expect(t0, 1, 0, overlay.Direct)
	m.fail(overlay.Relay, 1, t0)
	m.expect(t0, 1, 0)
}

// A bar ends with news that the disturbance is over in which it was set, and with nothing else.
func TestNewsEndBars(t *testing.T) {
	const direct, reversed, punching, relay = overlay.Direct, overlay.Reversed, overlay.HolePunching, overlay.Relay
	t0 := time.Unix(1_000_000, 0)
	at := func(seconds int) time.Time { return t0.Add(time.Duration(seconds) * time.Second) }
	// Direct fails from second 105 on and is barred a third time in second 152, for a minute. Punching
	// has connected before.
	for _, tc := range []struct {
		name   string
		before func(m *Memory) // until second 100
		news   func(m *Memory) // in second 160, or later
		ends   bool
	}{
		{name: "none", news: func(*Memory) {}},
		{name: "a call by the same technique", news: func(m *Memory) { m.Called("siteb", ab.Own, direct, at(160)) }, ends: true},
		{name: "a call by another one", news: func(m *Memory) { m.Called("siteb", ab.Own, punching, at(160)) }, ends: true},
		{name: "a call by relay", news: func(m *Memory) { m.Called("siteb", ab.Own, relay, at(160)) }},
		{name: "a call by relay, which had failed", news: func(m *Memory) {
			m.Failed("siteb", ab, 1, relay, "silence", at(110))
			m.Called("siteb", ab.Own, relay, at(160))
		}, ends: true},
		{name: "a call of another site", news: func(m *Memory) { m.Called("sitec", ab.Own, direct, at(160)) }},
		{name: "a call in the meantime", news: func(m *Memory) {
			m.Called("siteb", ab.Own, punching, at(106))
			m.Called("siteb", ab.Own, punching, at(160))
		}},
		{name: "a call before", before: func(m *Memory) { m.Called("siteb", ab.Own, punching, at(100)) }, news: func(m *Memory) { m.Called("siteb", ab.Own, punching, at(160)) }, ends: true},
		{name: "a relay that works all the time", news: func(m *Memory) { m.Connected("siteb", ab, 1, relay, time.Millisecond, at(160)) }},
		{name: "a relay that works again", news: func(m *Memory) {
			m.Failed("siteb", ab, 1, relay, "silence", at(110))
			m.Connected("siteb", ab, 1, relay, time.Millisecond, at(160))
		}, ends: true},
		{name: "a relay that works again, and had failed long before", before: func(m *Memory) {
			m.Failed("siteb", ab, 1, relay, "silence", at(0))
		}, news: func(m *Memory) { m.Connected("siteb", ab, 1, relay, time.Millisecond, at(160)) }, ends: true},
		{name: "a relay that failed later and works again", news: func(m *Memory) {
			m.Failed("siteb", ab, 1, relay, "silence", at(190))
			m.Connected("siteb", ab, 1, relay, time.Millisecond, at(200))
		}},
		{name: "another technique that works again", news: func(m *Memory) {
			m.Failed("siteb", ab, 1, reversed, "silence", at(110))
			m.Connected("siteb", ab, 1, reversed, time.Millisecond, at(160))
		}, ends: true},
		{name: "another technique that works all the time", news: func(m *Memory) { m.Connected("siteb", ab, 1, punching, time.Millisecond, at(160)) }},
		{name: "a broker after an outage", news: func(m *Memory) { m.Rejoined(at(104), at(160)) }, ends: true},
		{name: "a broker after a later outage", news: func(m *Memory) { m.Rejoined(at(190), at(200)) }},
		{name: "a site that was away", news: func(m *Memory) {
			m.Away("siteb", at(110))
			m.Away("siteb", at(190))
			m.Present("siteb", at(160))
		}, ends: true},
		{name: "a site that was not away", news: func(m *Memory) { m.Present("siteb", at(160)) }},
		{name: "another site that was away", news: func(m *Memory) {
			m.Away("sitec", at(110))
			m.Present("sitec", at(160))
		}},
		{name: "a site that was away later", news: func(m *Memory) {
			m.Away("siteb", at(190))
			m.Present("siteb", at(200))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := memoryTest{t, New()}
			m.m.Connected("siteb", ab, 1, punching, time.Millisecond, t0)
			if tc.before != nil {
				tc.before(m.m)
			}
			for _, second := range []int{105, 106, 107, 122, 152} {
				m.fail(direct, 1, at(second))
			}
			if _, bs := m.m.Advice("siteb", ab, 1, at(205)); len(bs) != 1 {
				t.Fatalf("barred before the news: %v", bs)
			}
			tc.news(m.m)
			if _, bs := m.m.Advice("siteb", ab, 1, at(205)); (len(bs) == 0) != tc.ends {
				t.Errorf("barred after the news: %v", bs)
			}
			if tc.ends { // and what failed before counts no more
				m.fail(direct, 2, at(205))
				if _, bs := m.m.Advice("siteb", ab, 1, at(205)); len(bs) != 0 {
					t.Errorf("barred by two failures after the news: %v", bs)
				}
			}
		})
	}
}

// Failures just before another technique connects are of the same dials, and no disturbance: a
// technique that a firewall refuses at once stays barred, however many links dial together.
func TestRefusalsAreNoDisturbance(t *testing.T) {
	m := memoryTest{t, New()}
	now := time.Unix(1_000_000, 0)
	m.fail(overlay.Direct, 100, now)
	m.m.Called("siteb", ab.Own, overlay.Reversed, now.Add(time.Second))
	m.m.Connected("siteb", ab, 1, overlay.Reversed, time.Millisecond, now.Add(time.Second))
	m.expect(now.Add(2*time.Second), 1, overlay.Reversed, overlay.Direct)
	m.m.Called("siteb", ab.Own, overlay.Reversed, now.Add(10*time.Second))
	m.expect(now.Add(11*time.Second), 1, overlay.Reversed, overlay.Direct)
}

// TestInferiorMemory: a technique that is slower than another is skipped for a time that doubles
// while that is so, regardless of how many links report it at once.
func TestInferiorMemory(t *testing.T) {
	m := New()
	now := time.Unix(1_000_000, 0)
	m.Connected("siteb", ab, 1, overlay.HolePunching, time.Millisecond, now)
	for _, step := range []struct{ after, want time.Duration }{
		{0, 30 * time.Second},
		{time.Minute, time.Minute},
		{3 * time.Minute, 2 * time.Minute},
		{24 * time.Hour, 30 * time.Second},
	} {
		now = now.Add(step.after)
		for range 20 {
			m.Inferior("siteb", ab.Own, 1, overlay.HolePunching, "it carried 0.3 Mb/s", now)
		}
		winner, barred := m.Advice("siteb", ab, 1, now.Add(step.want-time.Second))
		if winner.Technique != 0 || len(barred) != 1 || !barred[0].Inferior || barred[0].Reason != "it carried 0.3 Mb/s; to be tried again in 1s" {
			t.Errorf("after %v: winner %v, barred %+v", step.after, winner, barred)
		}
		if _, barred := m.Advice("siteb", ab, 1, now.Add(step.want)); len(barred) > 0 {
			t.Errorf("after %v: still barred %+v", step.after, barred)
		}
	}
	m.Inferior("siteb", ab.Own, 1, overlay.Relay, "what is left without it", now)
	if st := m.Status(now); st[0].Techniques[0].Reason == "" || !slices.Equal(st[0].Techniques[0].BarredFor, []string{ab.Own}) || st[0].Techniques[0].Barred || st[0].Techniques[1].BarredFor != nil {
		t.Errorf("status %+v", st)
	}
	for now = now.Add(time.Hour); ; now = now.Add(2 * time.Minute) {
		m.Inferior("siteb", ab.Own, 1, overlay.HolePunching, "it carried 0.3 Mb/s", now)
		if m.of("siteb", 1, now).tech(overlay.HolePunching).inferior[ab.Own].length > maxInferior {
			t.Fatal("left out for ever longer")
		}
		if now.Unix() > 2_000_000 {
			break
		}
	}
}

// No node can by itself take a technique from all: what one says is slow is skipped by that one, and by others
// once a second one says so.
func TestOneNodeIsNoWitness(t *testing.T) {
	m := New()
	now := time.Unix(1_000_000, 0)
	for _, own := range []string{"a2", "a4"} {
		m.Connected("siteb", Pair{own, "b1"}, 1, overlay.Relay, time.Millisecond, now.Add(-time.Second))
		m.Connected("siteb", Pair{own, "b1"}, 1, overlay.Direct, time.Millisecond, now)
	}
	expect := func(own string, skipped bool) {
		t.Helper()
		winner, barred := m.Advice("siteb", Pair{own, "b1"}, 1, now)
		if is := len(barred) > 0; is != skipped || (winner.Technique == overlay.Direct) == skipped {
			t.Errorf("%s: winner %v, barred %+v", own, winner, barred)
		}
	}
	for range 100 { // of a hostile node
		for far := range 10 {
			m.Failed("siteb", Pair{"a1", fmt.Sprint("b", far)}, 1, overlay.Direct, "so it says", now)
		}
		m.Inferior("siteb", "a1", 1, overlay.Direct, "so it says", now)
	}
	expect("a1", true)
	expect("a2", false)
	expect("a3", false)
	m.Inferior("siteb", "a2", 1, overlay.Direct, "it carried 0.3 Mb/s", now)
	expect("a3", true)
	for i := range 10 * maxCounted {
		m.Inferior("siteb", fmt.Sprint("n", i), 1, overlay.Direct, "so it says", now)
	}
	if n := len(m.of("siteb", 1, now).tech(overlay.Direct).inferior); n != maxCounted {
		t.Errorf("%d nodes are remembered", n)
	}
	now = now.Add(12 * firstInferior)
	m.Connected("siteb", Pair{"a2", "b1"}, 1, overlay.Direct, time.Millisecond, now)
	m.Inferior("siteb", "new", 1, overlay.Direct, "it carried 0.3 Mb/s", now)
	expect("new", true)
	expect("a3", false)
}

// What fails for reasons of one node is barred for that node and for no other; what fails between
// several nodes of both sites is barred for all of them.
func TestBarsOfNodes(t *testing.T) {
	const direct, relay = overlay.Direct, overlay.Relay
	now := time.Unix(1_000_000, 0)
	pair := func(own, far string) Pair { return Pair{own, far} }
	for _, tc := range []struct {
		name         string
		worked       []Pair // before the failures
		fails        []Pair
		works        []Pair // after them
		barred, free []Pair
	}{
		{
			name: "a node with the wrong address", fails: []Pair{{"a1", "b1"}, {"a1", "b2"}, {"a1", "b3"}},
			barred: []Pair{{"a1", "b1"}, {"a1", "b4"}}, free: []Pair{{"a2", "b1"}, {"a2", "b4"}},
		},
		{
			name: "a target with the wrong address", fails: []Pair{{"a1", "b1"}, {"a2", "b1"}, {"a3", "b1"}},
			barred: []Pair{{"a1", "b1"}, {"a4", "b1"}}, free: []Pair{{"a1", "b2"}, {"a4", "b2"}},
		},
		{
			name: "two nodes only", fails: []Pair{{"a1", "b1"}, {"a1", "b1"}, {"a1", "b1"}},
			barred: []Pair{{"a1", "b1"}}, free: []Pair{{"a1", "b2"}, {"a2", "b1"}, {"a2", "b2"}},
		},
		{
			name: "both sites", fails: []Pair{{"a1", "b1"}, {"a2", "b2"}, {"a3", "b3"}},
			barred: []Pair{{"a1", "b1"}, {"a4", "b4"}, {"a1", "b9"}},
		},
		{
			name: "a node with the wrong address, and one failure of another", fails: slices.Concat(slices.Repeat([]Pair{{"a1", "b1"}, {"a1", "b2"}, {"a1", "b3"}}, 20), []Pair{{"a2", "b3"}}),
			barred: []Pair{{"a1", "b1"}, {"a1", "b4"}}, free: []Pair{{"a2", "b3"}, {"a2", "b1"}, {"a3", "b3"}},
		},
		{
			name: "a node with the wrong address among nodes that connect", fails: slices.Repeat([]Pair{{"a1", "b1"}, {"a1", "b2"}}, 3), works: []Pair{{"a2", "b1"}, {"a2", "b2"}},
			barred: []Pair{{"a1", "b3"}}, free: []Pair{{"a2", "b1"}, {"a3", "b3"}},
		},
		{
			name: "a site that works again", fails: []Pair{{"a1", "b1"}, {"a2", "b2"}, {"a3", "b3"}}, works: []Pair{{"a4", "b4"}, {"a5", "b4"}},
			free: []Pair{{"a1", "b1"}, {"a2", "b2"}, {"a4", "b4"}},
		},
		{
			name: "a site that works again, as one node says", fails: []Pair{{"a1", "b1"}, {"a2", "b2"}, {"a3", "b3"}}, works: slices.Repeat([]Pair{{"a4", "b4"}}, 3),
			barred: []Pair{{"a1", "b1"}, {"a2", "b2"}, {"a5", "b4"}}, free: []Pair{{"a4", "b4"}},
		},
		{
			name: "a node that works again with another", fails: []Pair{{"a1", "b1"}, {"a1", "b2"}, {"a1", "b3"}}, works: []Pair{{"a1", "b4"}},
			free: []Pair{{"a1", "b1"}, {"a1", "b4"}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := New()
			m.Connected("siteb", pair("a9", "b9"), 1, relay, time.Millisecond, now)
			for _, p := range tc.fails {
				m.Failed("siteb", p, 1, direct, "invalid argument", now)
			}
			later := now.Add(minSilence)
			for _, p := range tc.works {
				m.Connected("siteb", p, 1, direct, time.Millisecond, later)
			}
			for _, p := range tc.barred {
				if _, bars := m.Advice("siteb", p, 1, later); len(bars) != 1 || bars[0].Technique != direct || !strings.Contains(bars[0].Reason, "invalid argument") {
					t.Errorf("%v: barred %v", p, bars)
				}
			}
			for _, p := range tc.free {
				if _, bars := m.Advice("siteb", p, 1, later); len(bars) > 0 {
					t.Errorf("%v: barred %v", p, bars)
				}
			}
			st := m.Status(later)[0].Techniques
			if i := slices.IndexFunc(st, func(s TechniqueStatus) bool { return s.Technique == direct }); i < 0 || len(tc.barred) > 0 != (st[i].Barred || len(st[i].BarredFor) > 0) {
				t.Errorf("status %+v", st)
			}
		})
	}
}

// A node's failure takes the winner from no other, and what one says has connected comes first for no other.
func TestWinnerOfOthers(t *testing.T) {
	m, now := New(), time.Unix(1_000_000, 0)
	expect := func(what string, want map[string]overlay.Technique) {
		t.Helper()
		for own, technique := range want {
			if w, _ := m.Advice("siteb", Pair{own, "b1"}, 1, now); w.Technique != technique {
				t.Errorf("%s: %s: winner %v, want %v", what, own, w.Technique, technique)
			}
		}
	}
	m.Connected("siteb", Pair{"a5", "b2"}, 1, overlay.Relay, time.Millisecond, now.Add(-time.Minute))
	for _, own := range []string{"a2", "a4"} {
		expect("before "+own, map[string]overlay.Technique{own: 0, "a3": 0})
		m.Connected("siteb", Pair{own, "b2"}, 1, overlay.Direct, time.Millisecond, now)
	}
	for range 5 {
		m.Failed("siteb", Pair{"a1", "b1"}, 1, overlay.Direct, "silence", now)
	}
	expect("after a node's failures", map[string]overlay.Technique{"a1": 0, "a2": overlay.Direct, "a3": overlay.Direct})
	now = now.Add(time.Minute)
	for range 5 { // of a hostile node
		m.Connected("siteb", Pair{"a9", "b1"}, 1, overlay.Relay, time.Millisecond, now)
	}
	expect("after a node's word", map[string]overlay.Technique{"a9": overlay.Relay, "a2": overlay.Direct, "a3": overlay.Direct})
	if st := m.Status(now); st[0].Winner != overlay.Relay.String() {
		t.Errorf("status %+v", st)
	}
	m.Connected("siteb", Pair{"a2", "b1"}, 1, overlay.Relay, time.Millisecond, now)
	expect("after another's", map[string]overlay.Technique{"a2": overlay.Relay, "a3": overlay.Relay, "a4": overlay.Direct})
	now = now.Add(winnerLife)
	expect("later", map[string]overlay.Technique{"a2": 0, "a3": 0})
}

// What one node says of calls and of techniques that connect again ends no bars of others, and keeps none of theirs.
func TestNewsOfOneNode(t *testing.T) {
	const direct, relay = overlay.Direct, overlay.Relay
	t0 := time.Unix(1_000_000, 0)
	at := func(seconds int) time.Time { return t0.Add(time.Duration(seconds) * time.Second) }
	for _, tc := range []struct {
		name string
		news func(m *Memory)
		ends bool // the bar of a1
	}{
		{"calls of another node", func(m *Memory) {
			for second := range 10 {
				m.Called("siteb", "a9", direct, at(20+second))
			}
		}, false},
		{"calls of two others", func(m *Memory) {
			m.Called("siteb", "a8", direct, at(20))
			m.Called("siteb", "a9", direct, at(20))
		}, true},
		{"an own call, though another node says that it was called all the time", func(m *Memory) {
			for second := range 20 {
				m.Called("siteb", "a9", direct, at(second))
			}
			m.Called("siteb", "a1", overlay.HolePunching, at(20))
		}, true},
		{"a relay that fails and works again, as another node says", func(m *Memory) {
			m.Failed("siteb", Pair{"a9", "b1"}, 1, relay, "so it says", at(11))
			m.Connected("siteb", Pair{"a9", "b1"}, 1, relay, time.Millisecond, at(20))
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := New()
			m.Connected("siteb", Pair{"a1", "b9"}, 1, relay, time.Millisecond, t0)
			for i := range 4 {
				for _, own := range []string{"a1", "a2", "a3"} {
					m.Failed("siteb", Pair{own, fmt.Sprint("b", i)}, 1, direct, "silence", at(10))
				}
			}
			tc.news(m)
			if _, bars := m.Advice("siteb", Pair{"a1", "b1"}, 1, at(20)); (len(bars) == 0) != tc.ends {
				t.Errorf("barred: %v", bars)
			}
		})
	}
}

// A site without news for a day is forgotten as soon as there are some of a site that was not known.
func TestSitesAreForgotten(t *testing.T) {
	m, now := New(), time.Unix(1_000_000, 0)
	for i, after := range []time.Duration{0, siteLife, time.Second} {
		now = now.Add(after)
		m.Failed(overlay.SiteID(fmt.Sprint("site", i)), ab, 1, overlay.Direct, "silence", now)
	}
	if st := m.Status(now); len(st) != 2 || st[0].Site != "site1" || st[1].Site != "site2" {
		t.Errorf("remembered: %+v", st)
	}
}

// However many nodes fail, what is kept of them is bounded.
func TestRunsAreBounded(t *testing.T) {
	m, now := New(), time.Unix(1_000_000, 0)
	for i := range 2 * maxRuns {
		m.Failed("siteb", Pair{fmt.Sprint("a", i), fmt.Sprint("b", i)}, 1, overlay.Relay, "silence", now)
		m.Connected("siteb", Pair{fmt.Sprint("a", i), "b"}, 1, overlay.Direct, time.Millisecond, now)
	}
	if s := m.of("siteb", 1, now); len(s.tech(overlay.Direct).won) != maxRuns || len(s.connected) != maxRuns {
		t.Errorf("%d nodes by which it connected, %d that did", len(s.tech(overlay.Direct).won), len(s.connected))
	}
	tm := m.of("siteb", 1, now).tech(overlay.Relay)
	if r := tm.runs[Pair{}]; len(tm.runs) > maxRuns || r == nil || len(r.own) > maxCounted || len(r.far) > maxCounted || !r.fails(Pair{}) {
		t.Errorf("%d runs, %+v", len(tm.runs), r)
	}
}

// A technique that connects, as one node says, is barred for others as long as one that does not.
func TestWordOfOneNodeShortensNoBars(t *testing.T) {
	for witnesses, want := range []time.Duration{2 * firstBar, 2 * firstBar, firstBar} {
		m, now := New(), time.Unix(1_000_000, 0)
		for i := range witnesses {
			m.Connected("siteb", Pair{fmt.Sprint("a", i), "b1"}, 1, overlay.Direct, time.Millisecond, now)
		}
		for range 2 {
			for i := range 4 {
				m.Failed("siteb", Pair{fmt.Sprint("n", i), fmt.Sprint("b", i)}, 1, overlay.Direct, "silence", now)
			}
			now = now.Add(maxBar)
		}
		if got := m.of("siteb", 1, now).tech(overlay.Direct).runs[Pair{}].barredFor; got != want {
			t.Errorf("%d nodes say that it connects: barred for %v, want %v", witnesses, got, want)
		}
	}
}

// A node's success, or call, ends its own failures, so that they do not count with later ones of others.
func TestOwnFailuresEnd(t *testing.T) {
	const direct = overlay.Direct
	for name, news := range map[string]func(m *Memory, now time.Time){
		"none": nil,
		"a success": func(m *Memory, now time.Time) {
			m.Connected("siteb", Pair{"a1", "b1"}, 1, direct, time.Millisecond, now)
		},
		"a call": func(m *Memory, now time.Time) { m.Called("siteb", "a1", direct, now) },
	} {
		m, now := New(), time.Unix(1_000_000, 0)
		m.Connected("siteb", Pair{"a9", "b9"}, 1, overlay.Relay, time.Millisecond, now)
		for i := range 3 {
			m.Failed("siteb", Pair{"a1", fmt.Sprint("b", i)}, 1, direct, "silence", now)
		}
		if name == "a call" { // one soon after is no news
			now = now.Add(minSilence)
		}
		if news != nil {
			news(m, now)
		}
		m.Failed("siteb", Pair{"a2", "b2"}, 1, direct, "silence", now)
		m.Failed("siteb", Pair{"a3", "b3"}, 1, direct, "silence", now)
		if _, bars := m.Advice("siteb", Pair{"a4", "b4"}, 1, now); (len(bars) > 0) != (news == nil) {
			t.Errorf("after %s and two failures of others: barred %v", name, bars)
		}
	}
}

// Nodes that lie together take no technique from others by which the gateway itself makes links that carry; whoever fails
// has it barred for itself, and so has everybody when the gateway has made none for some minutes.
func TestGatewayOutweighsNodes(t *testing.T) {
	const opened = overlay.SimultaneousOpen
	m, now := New(), time.Unix(1_000_000, 0)
	m.Connected("siteb", Pair{"a9", "siteb/b9"}, 1, overlay.Relay, time.Millisecond, now)
	lie := func() {
		for far := range 3 {
			for _, own := range []string{"a1", "a2"} {
				m.Failed("siteb", Pair{own, fmt.Sprint("siteb/b", far)}, 1, opened, "so they say", now)
			}
		}
	}
	expect := func(when string, barred bool, pairs ...Pair) {
		t.Helper()
		for _, p := range pairs {
			if _, bars := m.Advice("siteb", p, 1, now); (len(bars) > 0) != barred {
				t.Errorf("%s: %v: barred %v", when, p, bars)
			}
		}
	}
	m.Seen("siteb", "siteb/b7", opened, now) // of a technique that nobody has failed with
	lie()
	expect("as they say", true, Pair{"a1", "siteb/b1"}, Pair{"a3", "siteb/b1"}, Pair{"a3", "siteb/b7"})
	m.Seen("siteb", "siteb/b7", opened, now)
	m.Seen("siteb", "siteb/b7", opened, now.Add(-time.Hour)) // an older link
	expect("as the gateway saw", false, Pair{"a3", "siteb/b1"}, Pair{"a3", "siteb/b7"})
	now = now.Add(SeenLife - time.Second)
	lie()
	lie()
	expect("as they say again", true, Pair{"a1", "siteb/b1"}, Pair{"a1", "siteb/b7"}, Pair{"a3", "siteb/b1"})
	expect("as the gateway saw some minutes ago", false, Pair{"a3", "siteb/b7"})
	m.Seen("siteb", "siteb/b1", opened, now)
	expect("as it saw with that node", false, Pair{"a3", "siteb/b1"})
	now = now.Add(SeenLife)
	lie()
	expect("as it has not seen for long", true, Pair{"a3", "siteb/b1"}, Pair{"a3", "siteb/b7"})
	for i := range 2 * maxRuns {
		m.Seen("siteb", fmt.Sprint("siteb/n", i), opened, now)
	}
	if n := len(m.of("siteb", 1, now).tech(opened).seen); n != maxRuns {
		t.Errorf("%d nodes are remembered", n)
	}
	m.Seen("sitec", "sitec/c1", opened, now)
	if len(m.sites) != 1 {
		t.Error("a site is remembered of which nothing is known")
	}
}
