package mpilib

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
)

// MPI-4.1, sections 8.5.1 and 8.5.5 to 8.5.7: grids with fewer places than processes.
func TestCart(t *testing.T) {
	sizes(t, func(t *testing.T, n int) {
		anyWay(t, n, func(ctx context.Context, c *Comm) error {
			dims, periods := []int{2, n / 2}, []bool{false, true}
			if n == 1 {
				dims = []int{1, 1}
			}
			size := dims[0] * dims[1]
			cart, err := c.CartCreate(ctx, dims, periods, false)
			if err != nil {
				return err
			}
			if c.Rank() >= size {
				if cart != nil {
					return fmt.Errorf("rank %d is in %s", c.Rank(), cart.Name())
				}
				return nil
			}
			d, p, coords, err := cart.CartGet()
			if err != nil || !slices.Equal(d, dims) || !slices.Equal(p, periods) || cart.Size() != size || cart.TopoTest() != CartTopology {
				return fmt.Errorf("CartGet: %v %v %v, size %d", d, p, err, cart.Size())
			}
			// In row-major order the last coordinate varies fastest.
			if want := []int{c.Rank() / dims[1], c.Rank() % dims[1]}; !slices.Equal(coords, want) || cart.Rank() != c.Rank() {
				return fmt.Errorf("coordinates %v, want %v", coords, want)
			}
			if r, err := cart.CartRank([]int{coords[0], coords[1] + 3*dims[1]}); err != nil || r != c.Rank() {
				return fmt.Errorf("CartRank on a ring: %d, %v", r, err)
			}
			last, err := cart.CartCoords(size - 1)
			if err != nil || !slices.Equal(last, []int{dims[0] - 1, dims[1] - 1}) {
				return fmt.Errorf("CartCoords: %v, %v", last, err)
			}
			up, down, err := cart.CartShift(0, 1)
			if err != nil || (up == ProcNull) != (coords[0] == 0) || (down == ProcNull) != (coords[0] == dims[0]-1) {
				return fmt.Errorf("CartShift: %d %d %v", up, down, err)
			}
			got := []int{-1}
			st, err := Sendrecv(ctx, cart, []int{c.Rank()}, down, 0, got, up, 0)
			if err != nil || st.Source != up || up != ProcNull && got[0] != up || up == ProcNull && got[0] != -1 {
				return fmt.Errorf("shifted: %v %+v %v", got, st, err)
			}
			return checkSub(ctx, cart, dims, coords)
		})
	})
}

func checkSub(ctx context.Context, cart *Comm, dims, coords []int) error {
	row, err := cart.CartSub(ctx, []bool{false, true})
	if err != nil {
		return err
	}
	d, p, _, err := row.CartGet()
	if err != nil || !slices.Equal(d, dims[1:]) || !slices.Equal(p, []bool{true}) || row.Rank() != coords[1] || row.Size() != dims[1] {
		return fmt.Errorf("row: %v %v %v, rank %d of %d", d, p, err, row.Rank(), row.Size())
	}
	for r := range row.Size() {
		if world := row.WorldRank(r); world/dims[1] != coords[0] {
			return fmt.Errorf("row %d has rank %d", coords[0], world)
		}
	}
	dup, err := row.Dup(ctx) // 7.4.2: Dup copies the topology
	if err != nil || dup.TopoTest() != CartTopology {
		return fmt.Errorf("Dup: %v, %v", dup.TopoTest(), err)
	}
	point, err := cart.CartSub(ctx, []bool{false, false})
	if err != nil || point.Size() != 1 {
		return fmt.Errorf("no dimension: %v", err)
	}
	split, err := row.Split(ctx, 0, 0)
	if err != nil || split.TopoTest() != NoTopology {
		return fmt.Errorf("Split kept the topology: %v", err)
	}
	return ringWorks(ctx, dup, 8)
}

func TestDimsCreate(t *testing.T) {
	dims := []int{0, 3, 0}
	if err := DimsCreate(12, dims); err != nil || !slices.Equal(dims, []int{2, 3, 2}) {
		t.Errorf("%v, %v", dims, err)
	}
	if err := expect(DimsCreate(7, []int{2, 0}), ErrDims, "mpilib: DimsCreate"); err != nil {
		t.Error(err)
	}
}

// MPI-4.1, section 8.5.1: with reorder, ranks may change; this library chooses them so that
// neighbours are on one site.
func TestReorder(t *testing.T) {
	anyWay(t, 8, func(ctx context.Context, c *Comm) error {
		cart, err := c.CartCreate(ctx, []int{2, 4}, []bool{false, false}, true)
		if err != nil {
			return err
		}
		places, err := cart.Places(ctx)
		if err != nil {
			return err
		}
		crossing := 0
		for r := range 8 {
			for _, other := range []int{r + 1, r + 4} {
				if (other == r+4 && other < 8 || other == r+1 && other%4 != 0) && places[r].Site != places[other].Site {
					crossing++
				}
			}
		}
		// Two blocks of 2 by 2 share two edges; without reordering, the edges of all four rows
		// and others would cross between the sites.
		if crossing != 2 {
			return fmt.Errorf("%d edges cross: %v", crossing, places)
		}
		if err := ringWorks(ctx, cart, 3); err != nil {
			return err
		}
		ring := []int{1, 7, 2, 0, 3, 1, 4, 2, 5, 3, 6, 4, 7, 5, 0, 6}
		graph, err := c.GraphCreate(ctx, []int{2, 4, 6, 8, 10, 12, 14, 16}, ring, true)
		if err != nil {
			return err
		}
		if places, err = graph.Places(ctx); err != nil {
			return err
		}
		crossing = 0
		for r := range 8 {
			if places[r].Site != places[(r+1)%8].Site {
				crossing++
			}
		}
		if crossing != 2 {
			return fmt.Errorf("%d edges of the ring cross: %v", crossing, places)
		}
		return nil
	}, WithPlaces(func(rank int) (string, string) { return []string{"a", "b"}[rank%2], "n" }))
}

func TestTopologyMisuse(t *testing.T) {
	anyWay(t, 3, func(ctx context.Context, c *Comm) error {
		_, big := c.CartCreate(ctx, []int{2, 2}, []bool{false, false}, false)
		_, differ := c.CartCreate(ctx, []int{1, 1 + c.Rank()/2}, []bool{false, false}, false)
		_, edges := c.GraphCreate(ctx, []int{1}, []int{5}, false)
		_, _, _, none := c.CartGet()
		_, sub := c.CartSub(ctx, []bool{true})
		_, neighbours := c.GraphNeighbors(0)
		_, _, _, _, dist := c.DistGraphNeighbors()
		cart, err := c.CartCreate(ctx, []int{3}, []bool{true}, false)
		if err != nil {
			return err
		}
		_, coords := cart.CartCoords(3)
		_, _, shift := cart.CartShift(1, 1)
		_, kind := cart.GraphNeighbors(0)
		_, remain := cart.CartSub(ctx, []bool{true, true})
		_, weights := c.DistGraphCreateAdjacent(ctx, []int{0}, []int{1}, []int{0}, nil, false)
		_, rank := c.DistGraphCreate(ctx, []int{0}, []int{1}, []int{3}, nil, false)
		var one []int
		if c.Rank() == 1 {
			one = []int{}
		}
		_, some := c.DistGraphCreate(ctx, nil, nil, nil, one, false)
		return errors.Join(
			expect(big, ErrDims, "CartCreate on world, rank"), expect(differ, ErrMismatch, "dims of rank"),
			expect(edges, ErrRank, "GraphCreate on world", "edges[0] = 5"),
			expect(none, ErrTopology, "CartGet on world", "has no topology and the call needs Cartesian"), expect(sub, ErrTopology),
			expect(neighbours, ErrTopology), expect(dist, ErrTopology), expect(coords, ErrRank), expect(shift, ErrDims),
			expect(kind, ErrTopology, "has Cartesian topology"), expect(remain, ErrDims), expect(weights, ErrArg), expect(rank, ErrRank, "dests[0] = 3"),
			expect(some, ErrMismatch, "whether there are weights"), expect(NeighborAllgather(ctx, c, []int{1}, []int{}), ErrTopology, "NeighborAllgather on world"),
			expect(NeighborAlltoall(ctx, cart, []int{1, 2, 3}, []int{1, 2}), ErrCount, "send has 3 elements"),
			expect(NeighborAlltoallw(ctx, cart, nil, nil), ErrCount), expect(NeighborAllgather(ctx, cart, []int{1}, []int{1, 2, 3, 4}), ErrCount),
			expect(NeighborAlltoallv(ctx, cart, []int{1}, []int{1, 1}, []int{0, 1}, []int{0}, []int{0, 0}, []int{0, 0}), ErrCount, "for neighbour 1, and send has 1"),
			expect(NeighborAllgather(ctx, cart, []string{""}, []string{"", ""}), ErrType),
		)
	})
}

// MPI-4.1, section 8.5.3 and 8.5.5: graphs with fewer places than processes.
func TestGraph(t *testing.T) {
	anyWay(t, 5, func(ctx context.Context, c *Comm) error {
		// The example of 8.5.3.
		index, edges := []int{2, 3, 4, 6}, []int{1, 3, 0, 3, 0, 2}
		g, err := c.GraphCreate(ctx, index, edges, false)
		if err != nil || (g == nil) != (c.Rank() == 4) {
			return fmt.Errorf("%v, %v", g, err)
		}
		if g == nil {
			return nil
		}
		i, e, err := g.GraphGet()
		if err != nil || !slices.Equal(i, index) || !slices.Equal(e, edges) || g.TopoTest() != GraphTopology {
			return fmt.Errorf("GraphGet: %v %v %v", i, e, err)
		}
		list, err := g.GraphNeighbors(3)
		if err != nil || !slices.Equal(list, []int{0, 2}) {
			return fmt.Errorf("GraphNeighbors: %v, %v", list, err)
		}
		mine, err := g.GraphNeighbors(g.Rank())
		if err != nil {
			return err
		}
		recv := make([]int, 2*len(mine))
		if err := NeighborAllgather(ctx, g, []int{g.Rank(), 7}, recv); err != nil {
			return err
		}
		for at, r := range mine {
			if recv[2*at] != r || recv[2*at+1] != 7 {
				return fmt.Errorf("received %v from %v", recv, mine)
			}
		}
		return nil
	})
}

// MPI-4.1, section 8.5.4: both constructors of a distributed graph give the same neighbours,
// whichever process specifies an edge.
func TestDistGraph(t *testing.T) {
	sizes(t, func(t *testing.T, n int) {
		anyWay(t, n, func(ctx context.Context, c *Comm) error {
			// Every rank sends to the next rank and, twice, to rank 0.
			r := c.Rank()
			dests, weights := []int{(r + 1) % n, 0, 0}, []int{r, 10, 20}
			sources, sourceWeights := []int{(r + n - 1) % n}, []int{(r + n - 1) % n}
			if r == 0 {
				for s := range n {
					sources = append(sources, s, s)
					sourceWeights = append(sourceWeights, 10, 20)
				}
			}
			adjacent, err := c.DistGraphCreateAdjacent(ctx, sources, sourceWeights, dests, weights, false)
			if err != nil {
				return err
			}
			// The next rank specifies this rank's edges.
			owner := (r + n - 1) % n
			general, err := c.DistGraphCreate(ctx, []int{owner}, []int{3}, []int{r, 0, 0}, []int{owner, 10, 20}, true)
			if err != nil {
				return err
			}
			for _, g := range []*Comm{adjacent, general} {
				s, sw, d, dw, err := g.DistGraphNeighbors()
				if err != nil || g.TopoTest() != DistGraphTopology || !slices.Equal(d, dests) || !slices.Equal(dw, weights) || !sameEdges(s, sw, sources, sourceWeights) {
					return fmt.Errorf("%s: from %v %v to %v %v, %v", g.Name(), s, sw, d, dw, err)
				}
				send, recv := []int{r, 100 + r, 200 + r}, make([]int, len(s))
				if err := NeighborAlltoall(ctx, g, send, recv); err != nil {
					return err
				}
				for i, from := range s {
					want := from
					if !(r == (from+1)%n && sw[i] < 10) {
						want += sw[i] * 10
					}
					if recv[i] != want {
						return fmt.Errorf("%s: received %v from %v with weights %v, want %d at %d", g.Name(), recv, s, sw, want, i)
					}
				}
			}
			return nil
		})
	})
}

func sameEdges(a, aw, b, bw []int) bool {
	join := func(ranks, weights []int) [][2]int {
		list := make([][2]int, len(ranks))
		for i := range ranks {
			list[i] = [2]int{ranks[i], weights[i]}
		}
		slices.SortFunc(list, func(x, y [2]int) int { return slices.Compare(x[:], y[:]) })
		return list
	}
	return len(a) == len(b) && slices.Equal(join(a, aw), join(b, bw))
}

// MPI-4.1, section 8.6: in a grid, block 2d goes to the neighbour below in
// dimension d and block 2d+1 to the one above, also where both are one process
// or the caller itself; nothing is transferred beyond an edge.
func TestNeighborCart(t *testing.T) {
	sizes(t, func(t *testing.T, n int) {
		anyWay(t, n, func(ctx context.Context, c *Comm) error {
			cart, err := c.CartCreate(ctx, []int{n, 1}, []bool{true, false}, false)
			if err != nil {
				return err
			}
			below, above := (c.Rank()+n-1)%n, (c.Rank()+1)%n
			send, recv := []int{10*c.Rank() + 0, 10*c.Rank() + 1, -5, -6}, []int{-1, -2, -3, -4}
			// The block from the neighbour below is the one that it sent up.
			want := []int{10*below + 1, 10*above + 0, -3, -4}
			if err := NeighborAlltoall(ctx, cart, send, recv); err != nil || !slices.Equal(recv, want) {
				return fmt.Errorf("alltoall: %v, want %v, %v", recv, want, err)
			}
			recv = []int{-1, -2, -3, -4}
			if err := NeighborAllgather(ctx, cart, []int{c.Rank()}, recv); err != nil || !slices.Equal(recv, []int{below, above, -3, -4}) {
				return fmt.Errorf("allgather: %v, %v", recv, err)
			}
			// Rank r sends r+1 elements.
			recv = slices.Repeat([]int{-1}, 2*n+1)
			mine := slices.Repeat([]int{c.Rank()}, c.Rank()+1)
			if err := NeighborAllgatherv(ctx, cart, mine, recv, []int{below + 1, above + 1, 0, 0}, []int{0, n + 1, 0, 0}); err != nil {
				return err
			}
			if !slices.Equal(recv[:below+1], slices.Repeat([]int{below}, below+1)) || recv[n] != -1 ||
				!slices.Equal(recv[n+1:n+1+min(above+1, n)], slices.Repeat([]int{above}, min(above+1, n))) {
				return fmt.Errorf("allgatherv: %v", recv)
			}
			// Two elements go down and one up.
			recv = []int{-1, -1, -1, -1}
			if err := NeighborAlltoallv(ctx, cart, send, []int{2, 1, 0, 0}, []int{0, 2, 0, 0}, recv, []int{1, 2, 0, 0}, []int{3, 0, 0, 0}); err != nil {
				return err
			}
			if want := []int{10 * above, 10*above + 1, -1, -5}; !slices.Equal(recv, want) {
				return fmt.Errorf("alltoallv: %v, want %v", recv, want)
			}
			words, flags := []float32{0, 0}, []bool{false}
			err = NeighborAlltoallw(ctx, cart, []Part{PartOf([]float32{float32(c.Rank()), 2}), PartOf([]bool{true}), {}, {}},
				[]Part{PartOf(flags), PartOf(words), {}, {}})
			if err != nil || !flags[0] || words[0] != float32(above) || words[1] != 2 {
				return fmt.Errorf("alltoallw: %v %v, %v", flags, words, err)
			}
			return nil
		})
	})
}
