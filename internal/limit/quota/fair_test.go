package quota

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// mover is a flow with endless data. Like a link that copies what it may, it is absent for a moment
// after each piece and then asks for the next, and it may have less to copy than it was granted.
type mover struct {
	*Flow
	away  func() time.Duration // absence after a piece
	uses  func(pass int) int   // how many of the granted bytes it uses
	back  time.Time            // when it asks next, unless it waits
	moved int
}

func all(n int) int { return n }

func always() time.Duration { return 0 }

// join returns a mover on a new link of a user.
func join(t *testing.T, q *Quota, user string) *mover {
	t.Helper()
	l, err := q.Admit(Owner{User: user, Job: "j"}, noon)
	if err != nil {
		t.Fatal(err)
	}
	return &mover{Flow: l.Flow(0), back: noon, away: always, uses: all}
}

// race runs the movers from one time to another, and may be called again for the time that follows.
func race(q *Quota, movers []*mover, now, end time.Time) {
	of := map[*Flow]*mover{}
	for _, m := range movers {
		of[m.Flow] = m
	}
	pass := func(m *mover, n int) {
		used := m.uses(n)
		if used < n {
			q.Return(m.Flow, n-used)
		}
		m.moved += used
		m.back = now.Add(m.away())
	}
	for now.Before(end) {
		ready, next := q.Advance(nil, now)
		for _, f := range ready {
			pass(of[f], f.Want())
		}
		at := func(when time.Time) {
			if next.IsZero() || when.Before(next) {
				next = when
			}
		}
		for _, m := range movers {
			if m.level < stages {
				continue
			}
			if !m.back.After(now) {
				n, due := q.Ask(m.Flow, 4<<20, now)
				if n == 0 {
					at(due)
					continue
				}
				pass(m, n)
			}
			at(m.back)
		}
		if now = now.Add(1); next.After(now) {
			now = next
		}
	}
}

func sumOf(movers []*mover) (n int) {
	for _, m := range movers {
		n += m.moved
	}
	return n
}

// A user's only link leaves the queue with each piece that it copies, while some of another user's
// links always wait. Both users get the same.
func TestOnlyLinkGetsItsUsersShare(t *testing.T) {
	const seconds = 5
	for _, rate := range []Rate{8e6, 40e6, 400e6, 1e9, 4e9} {
		for _, links := range []int{1, 2, 3, 20} {
			for _, away := range []time.Duration{0, 200 * time.Microsecond, 2 * time.Millisecond} {
				for _, first := range []bool{true, false} {
					q := New(Rules{Rate: rate}, nil, noon)
					rnd := rand.New(rand.NewPCG(1, uint64(links)))
					var alice *mover
					var bob, movers []*mover
					if first {
						alice = join(t, q, "alice")
						movers = append(movers, alice)
					}
					for range links {
						bob = append(bob, join(t, q, "bob"))
					}
					movers = append(movers, bob...)
					if !first {
						alice = join(t, q, "alice")
						movers = append(movers, alice)
					}
					for _, m := range movers {
						m.away = func() time.Duration { return time.Duration(rnd.Int64N(int64(away) + 1)) }
					}
					race(q, movers, noon, noon.Add(seconds*time.Second))
					what := fmt.Sprintf("%v, bob has %d links, away for %v, alice is first: %v: ", rate, links, away, first)
					near(t, what+"alice", alice.moved, rate.bytes()*seconds/2, 0.03)
					near(t, what+"bob", sumOf(bob), rate.bytes()*seconds/2, 0.03)
				}
			}
		}
	}
}

// Granted bytes that were not used do not count.
func TestUnusedBytesCountForNobody(t *testing.T) {
	const seconds = 10
	for _, links := range []int{1, 4} {
		q := New(Rules{Rate: 40e6}, nil, noon)
		var alice, bob []*mover
		for range links {
			a := join(t, q, "alice")
			a.uses = func(n int) int { return n / 4 }
			alice = append(alice, a)
			bob = append(bob, join(t, q, "bob"))
		}
		race(q, append(alice, bob...), noon, noon.Add(seconds*time.Second))
		near(t, fmt.Sprintf("alice with %d links", links), sumOf(alice), 5e6*seconds/2, 0.03)
		near(t, fmt.Sprintf("bob with %d links", links), sumOf(bob), 5e6*seconds/2, 0.03)
	}
}

// An idle class accumulates no right to be served: one that never paused has its share beside
// hundreds that return, or arrive, all at once.
func TestWhoWasAwaySavesNothing(t *testing.T) {
	const rate, others = 50e6, 200 // bytes a second
	for _, before := range []bool{true, false} {
		q := New(Rules{Rate: 8 * rate}, nil, noon)
		bob := join(t, q, "bob")
		back := noon.Add(10 * time.Second)
		movers := []*mover{bob}
		for i := range others {
			m := join(t, q, fmt.Sprint("u", i))
			movers = append(movers, m)
			if before { // each has a piece at first
				m.away = func() time.Duration { return 10 * time.Second }
			} else {
				m.back = back
			}
		}
		race(q, movers, noon, back)
		near(t, "bob, nearly alone,", bob.moved, 10*rate, 0.05)
		for _, m := range movers {
			m.away, m.moved = always, 0
		}
		race(q, movers, back, back.Add(10*time.Second))
		near(t, fmt.Sprintf("bob among 200, who were there before: %v,", before), bob.moved, 10*rate/201., 0.1)
	}
}
