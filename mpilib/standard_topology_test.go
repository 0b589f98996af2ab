package mpilib

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// These tests check virtual topologies (MPI-4.1, chapter 8) against simple computations.

// grids returns all shapes of the given number of dimensions with at most n cells.
func grids(n, dimensions int) (all [][]int) {
	if dimensions == 0 {
		return [][]int{{}}
	}
	for d := 1; d <= n; d++ {
		for _, rest := range grids(n/d, dimensions-1) {
			all = append(all, append([]int{d}, rest...))
		}
	}
	return all
}

// cells lists the coordinates of a grid in the order of ranks: row by row.
func cells(dims []int) [][]int {
	all := [][]int{{}}
	for _, d := range dims {
		var next [][]int
		for _, cell := range all {
			for i := range d {
				next = append(next, append(slices.Clone(cell), i))
			}
		}
		all = next
	}
	return all
}

// 8.5.1, 8.5.5, 8.5.6: ranks of a grid are numbered row by row. Coordinates of a periodic dimension
// wrap around, and a shift beyond an edge gives ProcNull.
func TestStandard_8_5_Cart(t *testing.T) {
	parallel(t)
	for _, n := range worldSizes(1) {
		standardWorld(t, n, func(ctx context.Context, c *Comm) error {
			random := shared(n, 5)
			shapes := grids(n, 3)
			for _, i := range random.Perm(len(shapes))[:min(6, len(shapes))] {
				periods := []bool{random.IntN(2) == 0, random.IntN(2) == 0, random.IntN(2) == 0}
				if err := cartIsRight(ctx, c, shapes[i], periods); err != nil {
					return fmt.Errorf("%v, rings %v: %w", shapes[i], periods, err)
				}
			}
			return nil
		})
	}
}

func cartIsRight(ctx context.Context, c *Comm, dims []int, periods []bool) error {
	all := cells(dims)
	cart, err := c.CartCreate(ctx, dims, periods, false)
	if err != nil || (cart != nil) != (c.Rank() < len(all)) {
		return fmt.Errorf("%v, %v", cart, err)
	}
	if cart == nil {
		return nil
	}
	find := func(cell []int) int {
		return slices.IndexFunc(all, func(other []int) bool { return slices.Equal(cell, other) })
	}
	for rank, cell := range all {
		got, err := cart.CartCoords(rank)
		if err != nil || !slices.Equal(got, cell) {
			return fmt.Errorf("rank %d is at %v, %v, want %v", rank, got, err, cell)
		}
		if got, err := cart.CartRank(cell); err != nil || got != rank {
			return fmt.Errorf("%v is rank %d, %v, want %d", cell, got, err, rank)
		}
	}
	for d := range dims {
		for disp := -3; disp <= 3; disp++ {
			from, to, err := cart.CartShift(d, disp)
			at := func(by int) int {
				cell := slices.Clone(all[cart.Rank()])
				cell[d] += by
				if periods[d] {
					cell[d] = (cell[d]%dims[d] + dims[d]) % dims[d]
				}
				if found := find(cell); found >= 0 {
					return found
				}
				return ProcNull
			}
			if err != nil || from != at(-disp) || to != at(disp) {
				return fmt.Errorf("a shift of %d along %d: from %d to %d, %v, want %d and %d", disp, d, from, to, err, at(-disp), at(disp))
			}
		}
	}
	return subsAreRight(ctx, cart, all)
}

// subsAreRight checks CartSub for every choice of remaining dimensions.
func subsAreRight(ctx context.Context, cart *Comm, all [][]int) error {
	dims := len(all[0])
	mine := all[cart.Rank()]
	for choice := range 1 << dims {
		remain := make([]bool, dims)
		for d := range remain {
			remain[d] = choice>>d&1 == 1
		}
		sub, err := cart.CartSub(ctx, remain)
		if err != nil {
			return err
		}
		var want []int
		for rank, cell := range all {
			same := true
			for d := range cell {
				same = same && (remain[d] || cell[d] == mine[d])
			}
			if same {
				want = append(want, cart.WorldRank(rank))
			}
		}
		if err := speaks(ctx, sub, want); err != nil {
			return fmt.Errorf("remain %v: %w", remain, err)
		}
	}
	return nil
}

// 8.5.2: the product of the dimensions is the number of nodes. Given dimensions are unchanged, and
// the others are in non-increasing order and as close to each other as possible.
func TestStandard_8_5_2_Dims(t *testing.T) {
	parallel(t)
	for n := 1; n <= 120; n++ {
		for free := 1; free <= 3; free++ {
			dims := make([]int, free)
			if err := DimsCreate(n, dims); err != nil {
				t.Fatal(err)
			}
			least := n // the smallest possible largest dimension
			for _, g := range grids(n, free) {
				product := 1
				for _, d := range g {
					product *= d
				}
				if product == n {
					least = min(least, slices.Max(g))
				}
			}
			product := 1
			for i, d := range dims {
				product *= d
				if i > 0 && d > dims[i-1] {
					t.Errorf("%d nodes: %v increases", n, dims)
				}
			}
			if product != n || dims[0] != least {
				t.Errorf("%d nodes in %d dimensions: %v, want a largest of %d", n, free, dims, least)
			}
			fixed := append([]int{2}, make([]int, free)...)
			if err := DimsCreate(2*n, fixed); err != nil || fixed[0] != 2 || !slices.Equal(fixed[1:], dims) {
				t.Errorf("%d nodes, the first dimension 2: %v, %v, want %v behind it", 2*n, fixed, err, dims)
			}
		}
	}
}

// A multigraph has the number of edges from each rank to each rank.
type multigraph [][]int

func randomGraph(random *rand.Rand, n int) multigraph {
	g := make(multigraph, n)
	for from := range g {
		g[from] = make([]int, n)
		for range random.IntN(2 * n) {
			g[from][random.IntN(n)]++
		}
	}
	return g
}

// out and in list the ranks at the ends of the edges of r.
func (g multigraph) out(r int) (list []int) {
	for to, count := range g[r] {
		list = append(list, slices.Repeat([]int{to}, count)...)
	}
	return list
}

func (g multigraph) in(r int) (list []int) {
	for from := range g {
		list = append(list, slices.Repeat([]int{from}, g[from][r])...)
	}
	return list
}

// 8.5.4, 8.6: in a distributed graph with any edges, also loops and multiple edges, one block is
// transferred along each edge.
func TestStandard_8_6_NeighborExchange(t *testing.T) {
	parallel(t)
	for _, n := range worldSizes(1) {
		standardWorld(t, n, func(ctx context.Context, c *Comm) error {
			random := shared(n, 6)
			for range 4 {
				g := randomGraph(random, n)
				me := c.Rank()
				in, out := g.in(me), g.out(me)
				graph, err := c.DistGraphCreateAdjacent(ctx, in, nil, out, nil, false)
				if err != nil {
					return err
				}
				got := make([]int, 2*len(in))
				if err := NeighborAllgather(ctx, graph, []int{me, 50 + me}, got); err != nil {
					return err
				}
				for i, from := range in {
					if got[2*i] != from || got[2*i+1] != 50+from {
						return fmt.Errorf("allgather: %v from %v", got, in)
					}
				}
				send := make([]int, len(out))
				nth := map[int]int{} // the order distinguishes edges to the same rank
				for i, to := range out {
					send[i] = 10000*me + 100*to + nth[to]
					nth[to]++
				}
				got = make([]int, len(in))
				if err := NeighborAlltoall(ctx, graph, send, got); err != nil {
					return err
				}
				clear(nth)
				for i, from := range in {
					if want := 10000*from + 100*me + nth[from]; got[i] != want {
						return fmt.Errorf("alltoall: %v from %v, want %d at %d", got, in, want, i)
					}
					nth[from]++
				}
			}
			return nil
		})
	}
}
