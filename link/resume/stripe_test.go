package resume

import (
	"fmt"
	"testing"
)

// TestShares runs a long stream over carriers that can always be written on: each must be given its
// share of the bytes within 1 %, whatever the sizes of frames, and no carrier may run ahead by more
// than a frame meanwhile.
func TestShares(t *testing.T) {
	for _, weights := range [][]uint32{{1, 1}, {1, 2, 3, 4}, {1000, 1}, {MaxWeight, 9999, 12345}, {7, 7, 7, 7, 7, 7, 7, 3}} {
		for _, max := range []int{1460, 65536} {
			t.Run(fmt.Sprintf("%v/%d", weights, max), func(t *testing.T) {
				s := NewSender(1 << 20)
				given, total, all := map[Carrier]uint64{}, uint64(0), uint64(0)
				var ready []Carrier
				for i, w := range weights {
					id := Carrier(i + 1)
					if _, err := s.Up(id, w, 0); err != nil {
						t.Fatal(err)
					}
					ready, all = append(ready, id), all+uint64(w)
				}
				want := func(id Carrier) float64 { return float64(total) * float64(weights[id-1]) / float64(all) }
				for k := 0; total < 1<<33/uint64(65536/max); k++ {
					s.Push(s.Room())
					id, ok := s.Pick(ready)
					if !ok {
						t.Fatalf("%v: none picked", s)
					}
					f, ok := s.Next(id, max-k%max/2) // frames of all sizes
					if !ok {
						t.Fatalf("%v: nothing for %d", s, id)
					}
					given[id] += uint64(f.N)
					total += uint64(f.N)
					if ahead := float64(given[id]) - want(id); ahead > float64(max)+float64(total)/4096 { // the precision of a share
						t.Fatalf("carrier %d is %v bytes ahead after %d", id, ahead, total)
					}
					if _, err := s.Ack(s.Sent()); err != nil {
						t.Fatal(err)
					}
				}
				for _, id := range ready {
					if got := float64(given[id]); got < 0.99*want(id) || got > 1.01*want(id) {
						t.Errorf("carrier %d was given %v bytes of %d, want %v", id, got, total, want(id))
					}
				}
			})
		}
	}
}

// send pushes, picks among ready and acknowledges until n bytes were sent.
func send(t *testing.T, s *Sender, n, max int, ready ...Carrier) map[Carrier]int {
	t.Helper()
	given := map[Carrier]int{}
	for sent := 0; sent < n; {
		s.Push(s.Room())
		id, ok := s.Pick(ready)
		f, ok2 := s.Next(id, max)
		if !ok || !ok2 {
			t.Fatalf("%v: nothing for any of %v", s, ready)
		}
		given[id] += f.N
		sent += f.N
		if _, err := s.Ack(s.Sent()); err != nil {
			t.Fatal(err)
		}
	}
	return given
}

func up(t *testing.T, s *Sender, id Carrier, weight uint32) {
	t.Helper()
	if _, err := s.Up(id, weight, s.Acked()); err != nil {
		t.Fatal(err)
	}
}

// TestCatchUp holds one of two equal carriers back: it then catches up by at most a window, and a
// newcomer has no credit.
func TestCatchUp(t *testing.T) {
	const window, max = 1 << 16, 1 << 10
	s := NewSender(window)
	up(t, s, 1, 5)
	up(t, s, 2, 5)
	send(t, s, 100*window, max, 1)
	given := send(t, s, window, max, 1, 2)
	if given[2] < window-2*max {
		t.Errorf("the late carrier was given %v, want a window of %d", given, window)
	}
	given = send(t, s, 10*window, max, 1, 2)
	if d := given[1] - given[2]; d < -2*max || d > 2*max {
		t.Errorf("after it caught up: %v, want equal shares", given)
	}
	up(t, s, 3, 5)
	given = send(t, s, 3*window, max, 1, 2, 3)
	for id, n := range given {
		if n < window-2*max || n > window+2*max {
			t.Errorf("with a newcomer carrier %d was given %d, want %d", id, n, window)
		}
	}
}

// TestStates goes through active, standby and draining.
func TestStates(t *testing.T) {
	s := NewSender(1 << 16)
	uses := func(when string, want ...Carrier) {
		t.Helper()
		var got []Carrier
		for id := Carrier(1); id <= 4; id++ {
			if s.Uses(id) {
				got = append(got, id)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v are given data, want %v", when, got, want)
		}
		s.Push(1)
		for id := Carrier(1); id <= 4; id++ {
			s.Push(1)
			if _, ok := s.Next(id, 1); ok != s.Uses(id) {
				t.Errorf("%s: Next(%d) = %v", when, id, ok)
			}
		}
	}
	uses("no carrier")
	up(t, s, 3, 0)
	up(t, s, 2, 0)
	uses("two standbys: the older one", 3)
	up(t, s, 1, 4)
	uses("an active carrier", 1)
	up(t, s, 4, 1)
	uses("two active carriers", 1, 4)
	s.Drain(1)
	uses("one drains", 4)
	if s.Weight(1, 9); s.InFlight(1) == 0 {
		t.Error("what the draining carrier carries is not under way any more")
	}
	uses("a weight does not end draining", 4)
	s.Weight(4, 0)
	uses("all stand by: the oldest", 3)
	s.Weight(2, 7)
	uses("a standby is promoted", 2)
	s.Down(2)
	if s.Lost() == 0 {
		t.Error("nothing was lost with carrier 2")
	}
	uses("it dies", 3)
	s.Down(3)
	uses("and the next", 4)
	s.Down(4)
	uses("only the draining one is left")
}
