package topology

import (
	"math"
	"slices"
	"testing"
)

// everyGrid calls f with grids of up to three dimensions of up to three and with some longer ones,
// with every choice of rings.
func everyGrid(f func(c *Cart)) {
	shapes := [][]int{{}, {7}, {4, 5}, {2, 1, 4}, {2, 2, 2, 2}}
	for a := 1; a <= 3; a++ {
		shapes = append(shapes, []int{a})
		for b := 1; b <= 3; b++ {
			shapes = append(shapes, []int{a, b})
			for c := 1; c <= 3; c++ {
				shapes = append(shapes, []int{a, b, c})
			}
		}
	}
	for _, dims := range shapes {
		for bits := range 1 << len(dims) {
			periods := make([]bool, len(dims))
			for i := range periods {
				periods[i] = bits>>i&1 == 1
			}
			f(must(NewCart(1000, dims, periods)))
		}
	}
}

// listed enumerates the coordinates of a grid in row-major order.
func listed(dims []int) [][]int {
	all := [][]int{{}}
	for _, d := range dims {
		var longer [][]int
		for _, head := range all {
			for x := range d {
				longer = append(longer, append(slices.Clone(head), x))
			}
		}
		all = longer
	}
	return all
}

// find returns the rank at some coordinates by searching the list, after moving them into the grid
// one ring at a time; ProcNull outside.
func find(c *Cart, list [][]int, coords []int) int {
	coords = slices.Clone(coords)
	for i, d := range c.dims {
		for c.periods[i] && coords[i] < 0 {
			coords[i] += d
		}
		for c.periods[i] && coords[i] >= d {
			coords[i] -= d
		}
	}
	if rank := slices.IndexFunc(list, func(x []int) bool { return slices.Equal(x, coords) }); rank >= 0 {
		return rank
	}
	return ProcNull
}

// 8.2 row-major order; 8.5.5 rank, coords, wrap, and the error outside; 8.5.6 shift by any
// displacement.
func TestCartAgainstEnumeration(t *testing.T) {
	everyGrid(func(c *Cart) {
		list := listed(c.dims)
		if c.Size() != len(list) {
			t.Fatalf("%v has size %d, want %d", c.dims, c.Size(), len(list))
		}
		for rank, coords := range list {
			if got := must(c.Coords(rank)); !slices.Equal(got, coords) {
				t.Fatalf("%v: rank %d is at %v, want %v", c.dims, rank, got, coords)
			}
			for dim := range c.dims {
				for disp := -7; disp <= 7; disp++ {
					moved := func(by int) []int {
						to := slices.Clone(coords)
						to[dim] += by
						return to
					}
					source, dest, err := c.Shift(rank, dim, disp)
					wantSource, wantDest := find(c, list, moved(-disp)), find(c, list, moved(disp))
					if err != nil || source != wantSource || dest != wantDest {
						t.Fatalf("%v %v: Shift(%d, %d, %d) = %d, %d, %v, want %d, %d", c.dims, c.periods, rank, dim, disp, source, dest, err, wantSource, wantDest)
					}
					got, err := c.Rank(moved(disp))
					if wantDest == ProcNull {
						refused(t, err, ErrArg, "in a dimension that is not periodic")
					} else if err != nil || got != wantDest {
						t.Fatalf("%v %v: Rank(%v) = %d, %v, want %d", c.dims, c.periods, moved(disp), got, err, wantDest)
					}
				}
			}
		}
	})
}

// The longest displacements neither overflow nor take long (8.5.6).
func TestShiftFar(t *testing.T) {
	ring, line := must(NewCart(10, []int{10}, []bool{true})), must(NewCart(10, []int{10}, []bool{false}))
	for _, c := range []struct{ disp, source, dest int }{
		{math.MaxInt, 6, 0}, // 2^63-1 = 7 modulo 10
		{math.MinInt, 1, 5}, // -2^63 = 2 modulo 10
	} {
		if source, dest, err := ring.Shift(3, 0, c.disp); err != nil || source != c.source || dest != c.dest {
			t.Errorf("ring: Shift by %d: %d, %d, %v, want %d, %d", c.disp, source, dest, err, c.source, c.dest)
		}
		if source, dest, err := line.Shift(3, 0, c.disp); err != nil || source != ProcNull || dest != ProcNull {
			t.Errorf("line: Shift by %d: %d, %d, %v", c.disp, source, dest, err)
		}
	}
}

// 8.5.7: processes of one slice differ only in the remaining dimensions, are all of them, and are
// ordered row-major in a grid that keeps sizes and rings.
func TestSub(t *testing.T) {
	everyGrid(func(c *Cart) {
		list := listed(c.dims)
		for bits := range 1 << len(c.dims) {
			remain := make([]bool, len(c.dims))
			for i := range remain {
				remain[i] = bits>>i&1 == 1
			}
			seen := make(map[[2]int]bool)
			for rank, coords := range list {
				sub, slice, place, err := c.Sub(rank, remain)
				if err != nil {
					t.Fatal(err)
				}
				var dims, kept, dropped, droppedDims []int
				var periods []bool
				for i := range remain {
					if remain[i] {
						dims, periods, kept = append(dims, c.dims[i]), append(periods, c.periods[i]), append(kept, coords[i])
					} else {
						droppedDims, dropped = append(droppedDims, c.dims[i]), append(dropped, coords[i])
					}
				}
				if !slices.Equal(sub.dims, dims) || !slices.Equal(sub.periods, periods) || sub.size != len(listed(dims)) {
					t.Fatalf("%v %v remaining %v: grid %v %v of %d", c.dims, c.periods, remain, sub.dims, sub.periods, sub.size)
				}
				if !slices.Equal(must(sub.Coords(place)), kept) || !slices.Equal(listed(droppedDims)[slice], dropped) {
					t.Fatalf("%v remaining %v: %v has place %d in slice %d", c.dims, remain, coords, place, slice)
				}
				if seen[[2]int{slice, place}] {
					t.Fatalf("%v remaining %v: two processes at place %d of slice %d", c.dims, remain, place, slice)
				}
				seen[[2]int{slice, place}] = true
			}
		}
	})
}

// 8.6: dimension by dimension, first below, then above; each message is one that its receiver
// expects, into the block of the opposite direction.
func TestCartNeighbourhood(t *testing.T) {
	everyGrid(func(c *Cart) {
		for rank := range c.size {
			n := must(c.Neighbourhood(rank))
			if len(n.In) != 2*len(c.dims) || len(n.Out) != 2*len(c.dims) {
				t.Fatalf("%v: %d in and %d out", c.dims, len(n.In), len(n.Out))
			}
			for dim := range c.dims {
				below, above, _ := c.Shift(rank, dim, 1)
				for side, want := range []int{below, above} {
					i := 2*dim + side
					if n.In[i].Rank != want || n.Out[i].Rank != want {
						t.Fatalf("%v %v: neighbour %d of %d is %v and %v, want rank %d", c.dims, c.periods, i, rank, n.In[i], n.Out[i], want)
					}
					if want == ProcNull {
						continue
					}
					theirs := must(c.Neighbourhood(want))
					if at := slices.Index(theirs.In, Neighbour{rank, n.Out[i].Slot}); at != i^1 {
						t.Fatalf("%v %v: what %d sends as block %d arrives at %d as block %d, want %d", c.dims, c.periods, rank, i, want, at, i^1)
					}
				}
			}
		}
	})
}

func TestCartRefuses(t *testing.T) {
	for _, c := range []struct {
		procs   int
		dims    []int
		periods []bool
		kind    error
		says    string
	}{
		{12, []int{3, 0}, make([]bool, 2), ErrDims, "dims[1] = 0"},
		{12, []int{-3, -4}, make([]bool, 2), ErrDims, "dims[0] = -3"},
		{12, []int{3, 5}, make([]bool, 2), ErrDims, "[3 5] needs more than the 12 processes"},
		{12, []int{math.MaxInt, math.MaxInt, 2}, make([]bool, 3), ErrDims, "needs more"},
		{0, nil, nil, ErrArg, "0 processes, must be 1 to"},
		{-1, nil, nil, ErrArg, "-1 processes"},
		{12, []int{3}, nil, ErrArg, "0 periods for 1 dimensions"},
	} {
		_, err := NewCart(c.procs, c.dims, c.periods)
		refused(t, err, c.kind, "topology: NewCart: ", c.says)
	}
	c := must(NewCart(7, []int{2, 3}, []bool{true, false}))
	for _, rank := range []int{-1, 6, ProcNull, math.MaxInt, math.MinInt} {
		_, err := c.Coords(rank)
		refused(t, err, ErrRank, "the grid has 0 to 5")
		_, _, err = c.Shift(rank, 0, 1)
		refused(t, err, ErrRank, "Shift")
		_, err = c.Neighbourhood(rank)
		refused(t, err, ErrRank, "Neighbourhood")
		_, _, _, err = c.Sub(rank, make([]bool, 2))
		refused(t, err, ErrRank, "Sub")
	}
	for _, dim := range []int{-1, 2} {
		_, _, err := c.Shift(0, dim, 1)
		refused(t, err, ErrDims, "dimension")
	}
	_, _, _, err := c.Sub(0, make([]bool, 3))
	refused(t, err, ErrDims, "3 entries for 2 dimensions")
	_, err = c.Rank([]int{1})
	refused(t, err, ErrDims, "1 coordinates")
	_, err = c.Rank([]int{-1, 3})
	refused(t, err, ErrArg, "coords[1] = 3")
}

// No argument makes anything panic or loop.
func FuzzCart(f *testing.F) {
	f.Add(12, 3, 4, true, 5, 1, 1)
	f.Add(1, math.MaxInt, math.MinInt, false, -1, 9, math.MinInt)
	f.Fuzz(func(t *testing.T, procs, d0, d1 int, ring bool, rank, dim, disp int) {
		dims := []int{max(d0, 0), 0}
		if Dims(procs, dims) == nil && dims[0]*dims[1] != procs {
			t.Fatalf("Dims(%d): %v", procs, dims)
		}
		c, err := NewCart(procs, []int{d0, d1}, []bool{ring, !ring})
		if err != nil {
			return
		}
		if c.Size() > procs || c.Size() != d0*d1 {
			t.Fatalf("%d processes get a grid of %d by %d", procs, d0, d1)
		}
		if r, err := c.Rank([]int{rank, disp}); err == nil && (r < 0 || r >= c.Size()) {
			t.Fatalf("rank %d", r)
		}
		c.Neighbourhood(rank)
		c.Sub(rank, []bool{ring, ring})
		source, dest, err := c.Shift(rank, dim, disp)
		if err != nil {
			return
		}
		if dest != ProcNull {
			if back, _, _ := c.Shift(dest, dim, disp); back != rank {
				t.Fatalf("%d sends to %d, which receives from %d", rank, dest, back)
			}
		}
		if source < ProcNull || source >= c.Size() || dest < ProcNull || dest >= c.Size() {
			t.Fatalf("source %d, dest %d", source, dest)
		}
	})
}
