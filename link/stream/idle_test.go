package stream

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/internal/testkit"
)

// pass makes n ticks pass.
func (w *world) pass(n int) {
	for range n {
		time.Sleep(Tick)
		w.tick()
	}
}

// counted waits until an end has sent and received the given bytes on its only carrier.
func (e *end) counted(t *testing.T, sent, received uint64) {
	t.Helper()
	testkit.Until(t, fmt.Sprintf("%d bytes to be sent and %d to come", sent, received), func() bool {
		c := e.Carriers()[0]
		if c.Sent > sent || c.Received > received {
			t.Fatalf("%d bytes sent and %d received, want %d and %d", c.Sent, c.Received, sent, received)
		}
		return c.Sent == sent && c.Received == received
	})
}

// An idle carrier carries one question and one answer in each period of the end that asks sooner,
// and nothing else.
func TestIdleCarriersAreAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const period, periods = 1500 * time.Millisecond, 25 // more than two of AskIdle
		w := newWorld(t)
		w.ends[0].o.AskAfter = func(*Carrier) time.Duration { return period }
		w.with("tcp")
		for i := range uint64(periods) {
			w.pass(int(period/Tick) - 1)
			for _, e := range w.ends {
				e.counted(t, i*headerLen, i*headerLen)
			}
			w.pass(1)
			for _, e := range w.ends {
				e.counted(t, (i+1)*headerLen, (i+1)*headerLen)
			}
		}
	})
}

// A carrier that dies at the first traffic after it was idle is lost with an error that gives the
// idle time; one that dies otherwise is not.
func TestDeathAfterIdling(t *testing.T) {
	for _, tc := range []struct {
		name  string
		idle  time.Duration
		speak bool
		want  time.Duration
	}{
		{"a word after a rest", 4 * time.Second, true, 4 * time.Second},
		{"a question after a rest", AskIdle, false, AskIdle},
		{"a word without a rest", shortIdle - Tick, true, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				r := w.with("middle")
				w.pass(int(tc.idle/Tick) - 1)
				r.mute()
				w.pass(1)
				sent := uint64(headerLen)
				if tc.speak {
					if _, err := w.ends[0].Write([]byte("still there?")); err != nil {
						t.Fatal(err)
					}
					w.ends[0].counted(t, sent+12, 0)
					w.pass(1) // the question that follows, before the next ticks pass it by
					sent += 12 + headerLen
				}
				w.ends[0].counted(t, sent, 0)
				w.pass(int(AskIdle/Tick) + int(giveUp/Tick))
				e := w.ends[0]
				e.lostMu.Lock()
				defer e.lostMu.Unlock()
				if len(e.lost) != 1 {
					t.Fatalf("lost %v", e.lost)
				}
				var got *IdleError
				if errors.As(e.lost[0], &got) != (tc.want > 0) || tc.want > 0 && got.Idle != tc.want {
					t.Errorf("lost for %v, want it idle for %v", e.lost[0], tc.want)
				}
				if !errors.Is(e.lost[0], ErrSilent) {
					t.Errorf("the cause is lost in %v", e.lost[0])
				}
			})
		})
	}
}

// A carrier that ends while this end waits for an answer has fallen silent, whichever end gives it up first.
func TestSilenceEndsWithAClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tc := range []struct {
			ticks  int
			silent bool
		}{{int((askLoaded+lateAfter)/Tick) + 2, true}, {2, false}} {
			w := newWorld(t)
			r := w.with("middle")
			w.pass(int(time.Second / Tick))
			r.mute()
			if _, err := w.ends[0].Write([]byte("still there?")); err != nil {
				t.Fatal(err)
			}
			w.pass(tc.ticks)
			r.cut()
			e := w.ends[0]
			testkit.Until(t, "the loss", func() bool { return e.losses() == 1 })
			e.lostMu.Lock()
			if errors.Is(e.lost[0], ErrSilent) != tc.silent {
				t.Errorf("after %d ticks: lost for %v", tc.ticks, e.lost[0])
			}
			e.lostMu.Unlock()
		}
	})
}

// Where a carrier and the standby fall silent at the same time, another is requested as soon as the
// first is in doubt.
func TestCarriersFallSilentTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		used, spare := w.with("middle"), w.with("middle")
		for i, e := range w.ends {
			e.Use(used.carriers[i], 1)
			e.Use(spare.carriers[i], 0)
		}
		w.pass(int(time.Second / Tick))
		used.mute()
		spare.mute()
		if _, err := w.ends[0].Write([]byte("still there?")); err != nil {
			t.Fatal(err)
		}
		w.pass(int(doubtAfter/Tick) + 3) // one to ask, one for the round trip
		select {
		case <-w.ends[0].want:
		default:
			t.Errorf("nothing is called for, with carriers %+v", w.ends[0].Carriers())
		}
	})
}

// The same if something arrived on the standby just before, because it was in flight.
func TestCarriersFallSilentOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		used, spare := w.with("middle"), w.with("middle")
		for i, e := range w.ends {
			e.Use(used.carriers[i], 1)
			e.Use(spare.carriers[i], 0)
		}
		w.pass(int(time.Second / Tick))
		used.mute()
		if _, err := w.ends[0].Write([]byte("still there?")); err != nil {
			t.Fatal(err)
		}
		w.pass(int(askLoaded/Tick) - 1)
		e := w.ends[0]
		e.Ask(spare.carriers[0])
		testkit.Until(t, "the answer on the one that stands by", func() bool {
			e.mu.Lock()
			defer e.mu.Unlock()
			return e.carriers[1].asked.at.IsZero() && e.carriers[1].asked.number > 0
		})
		spare.mute()
		w.pass(2*int(doubtAfter/Tick) + 4)
		select {
		case <-e.want:
		default:
			t.Errorf("nothing is called for, with carriers %+v", e.Carriers())
		}
	})
}

// A carrier that is attached while all others are silent takes over at once: what those carried
// goes first on it, before anything newer.
func TestNewCarrierDismissesSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		old := w.with("middle")
		old.mute()
		if _, err := w.ends[0].Write([]byte("still there?")); err != nil {
			t.Fatal(err)
		}
		for range int((askLoaded + lateAfter + doubtAfter) / Tick) {
			w.pass(1)
		}
		if all := w.ends[0].Carriers(); len(all) != 1 || !all[0].Silent {
			t.Fatalf("the carriers are %+v", all)
		}
		w.with("tcp")
		if all := w.ends[0].Carriers(); len(all) != 1 || all[0].Silent { // before any tick
			t.Errorf("the carriers are %+v", all)
		}
		if _, err := io.ReadFull(w.ends[1], make([]byte, len("still there?"))); err != nil {
			t.Fatal(err)
		}
	})
}

// A link uses what it has ready before its path has been silent for long enough to look for
// another.
func TestLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var said []string
		e := w.ends[0]
		e.o.Late = func() { said = append(said, "late") }
		e.o.Silent = func(bool) { said = append(said, "silent") }
		r := w.with("middle")
		e.mu.Lock()
		e.carriers[0].least = 4 * lateAfter
		e.mu.Unlock()
		r.mute()
		if _, err := e.Write([]byte("still there?")); err != nil {
			t.Fatal(err)
		}
		w.pass(int((askLoaded + 9*lateAfter) / Tick))
		if n := slices.Index(said, "silent"); n != int(3*lateAfter/Tick) || slices.Contains(said[n:], "late") {
			t.Errorf("it was told %v", said)
		}
	})
}

// A single carrier is not doubted either while the peer's system acknowledges what arrives on it: no other
// path is looked for, until it is given up.
func TestRecoveringSingleCarrierIsNotDoubted(t *testing.T) {
	for _, age := range []time.Duration{0, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			said := 0
			e := w.ends[0]
			e.o.Late = func() { said++ }
			e.o.Silent = func(bool) { said++ }
			e.o.Acked = func(*Carrier) (time.Duration, bool) { return age, true }
			r := w.with("middle")
			e.mu.Lock()
			e.carriers[0].least = 2 * lateAfter // so that it is late before it is in doubt
			e.mu.Unlock()
			r.mute()
			if _, err := e.Write([]byte("still there?")); err != nil {
				t.Fatal(err)
			}
			w.pass(int((askLoaded+giveUp)/Tick) - 2)
			if kept := len(e.Carriers()) == 1; !kept || (said > 0) != (age > 0) {
				t.Errorf("acknowledged %v ago: kept %v, told %d times", age, kept, said)
			}
			w.pass(4)
			if len(e.Carriers()) > 0 {
				t.Errorf("acknowledged %v ago: it is not given up", age)
			}
		})
	}
}

// Of several carriers, one whose answer is late is not dropped while the peer's system acknowledges
// what arrives on it, until it is given up like any other; a carrier on which nothing is acknowledged
// is.
func TestRecoveringCarrierIsKept(t *testing.T) {
	for _, tc := range []struct {
		name  string
		age   time.Duration
		known bool
		kept  int // ticks after the question
	}{
		{"acknowledged", 0, true, int(giveUp / Tick)},
		{"acknowledged before a retransmission timeout", 250 * time.Millisecond, true, int(giveUp / Tick)},
		{"not acknowledged for longer", askLoaded + doubtAfter, true, int(doubtAfter / Tick)},
		{"not acknowledged", time.Second, true, int(doubtAfter / Tick)},
		{"unknown", 0, false, int(doubtAfter / Tick)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				e := w.ends[0]
				e.o.Acked = func(*Carrier) (time.Duration, bool) { return tc.age, tc.known }
				roads := []*road{w.with("middle"), w.with("middle")}
				for _, r := range roads {
					for i, e := range w.ends {
						e.Use(r.carriers[i], 1)
					}
				}
				w.pass(int(time.Second / Tick))
				roads[0].mute()
				n := 0
				for began := int64(0); len(e.Carriers()) == 2 && n < 2*int(giveUp/Tick); n++ {
					e.mu.Lock()
					if c := e.carriers[0]; c.heard >= began { // at first, and if something in flight has arrived
						n, began = 0, e.ticks.Load()
						c.asked.since, c.least, c.heard = began, 0, began-int64(askLoaded/Tick)
					}
					e.mu.Unlock()
					w.pass(1)
				}
				if n < tc.kept || n > tc.kept+1 {
					t.Errorf("the carrier was dropped after %d ticks, want %d", n, tc.kept)
				}
			})
		})
	}
}
