package replica

import (
	"slices"
	"testing"
)

// Replica c of a rank is process c*Ranks + rank, so that the first replicas have the numbers of a
// job without replicas.
func TestLayout(t *testing.T) {
	l := Layout{Ranks: 5, Replicas: 3}
	next := 0
	for c := range l.Replicas {
		for rank := range l.Ranks {
			if q := l.Process(rank, c); q != next || l.Rank(q) != rank || l.Replica(q) != c {
				t.Errorf("replica %d of rank %d is process %d, which is replica %d of rank %d; want %d", c, rank, q, l.Replica(q), l.Rank(q), next)
			}
			next++
		}
	}
	if next != l.Size() {
		t.Errorf("%d processes, want %d", l.Size(), next)
	}
}

func TestNewcomers(t *testing.T) {
	first := Layout{Ranks: 2, Replicas: 3, Spares: 3}
	second := first.next([]Move{{Seat: 2, Process: 6}, {Seat: 1, Process: 7}})
	third := second.next([]Move{{Seat: 4, Process: 8}})
	for _, c := range []struct {
		now, before Layout
		rank        int
		want        []int
	}{
		{first, first, 0, nil},
		{second, first, 0, []int{6}},
		{second, first, 1, []int{7}},
		{third, second, 0, []int{8}},
		{third, second, 1, nil},
		{third, first, 0, []int{6, 8}},
	} {
		if got := c.now.Newcomers(c.rank, c.before); !slices.Equal(got, c.want) {
			t.Errorf("rank %d, layout %d after %d: %v, want %v", c.rank, c.now.Epoch, c.before.Epoch, got, c.want)
		}
	}
}

func TestTables(t *testing.T) {
	for _, c := range []struct {
		table Table
		alive string // replicas 0 to 2
		want  [3]int // server of each replica
	}{
		{Parallel, "yyy", [3]int{0, 1, 2}},
		{Parallel, "nyy", [3]int{1, 1, 2}},
		{Parallel, "yny", [3]int{0, 0, 2}},
		{Parallel, "nny", [3]int{2, 2, 2}},
		{Parallel, "nnn", [3]int{-1, -1, -1}},
		{Primary, "yyy", [3]int{0, 0, 0}},
		{Primary, "nyy", [3]int{1, 1, 1}},
		{Primary, "yny", [3]int{0, 0, 0}},
		{Primary, "nnn", [3]int{-1, -1, -1}},
	} {
		for to, want := range c.want {
			if got := c.table.server(3, to, func(c2 int) bool { return c.alive[c2] == 'y' }); got != want {
				t.Errorf("%v, alive %s: replica %d is served by %d, want %d", c.table, c.alive, to, got, want)
			}
		}
	}
}
