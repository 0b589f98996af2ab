package mpilib

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/testload"
)

// Collective calls of intercommunicators (MPI-4.1, section 6.2.3 and those of the calls), between
// groups of 1 to 4 ranks, compared with their definition. All of them are in internal/coll, and with Parts in
// TestStandard_6_CollectivesOfParts and TestStandard_6_9_ReductionsOfParts.

// affine is x -> a*x+b modulo a prime; composing two is associative and depends on
// their order.
type affine struct{ A, B uint64 }

const prime = 1<<31 - 1

var compose = NewOp("compose", false, func(inout, in []affine) {
	for i, f := range in {
		g := inout[i]
		inout[i] = affine{f.A * g.A % prime, (f.A*g.B + f.B) % prime}
	}
})

// sideOf is a rank's group (0 or 1) and the sizes of both groups.
type sideOf struct {
	inter *Comm
	side  int
	sizes [2]int
}

func (s sideOf) there() int { return 1 - s.side }

// item is the i-th element of a rank of a group.
func item(side, rank, i int) int { return 10000*(side+1) + 100*rank + i }

func items(side, rank, n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = item(side, rank, i)
	}
	return list
}

// rootFor is a rank's root argument when rank r of group side is the root.
func (s sideOf) rootFor(side, r int) int {
	switch {
	case side != s.side:
		return r
	case r == s.inter.Rank():
		return Root
	}
	return ProcNull
}

func equal[T comparable](what string, got, want []T) error {
	if !slices.Equal(got, want) {
		return fmt.Errorf("%s: got %v, want %v", what, got, want)
	}
	return nil
}

// interWorld runs f on both sides of intercommunicators of all sizes; without the tag "system" of some.
func interWorld(t *testing.T, f func(ctx context.Context, s sideOf) error) {
	t.Parallel()
	for a := 1; a <= 4; a++ {
		for b := 1; b <= 4; b++ {
			if !testload.Full() && !slices.Contains([][2]int{{1, 3}, {3, 2}}, [2]int{a, b}) {
				continue
			}
			t.Run(fmt.Sprintf("%dx%d", a, b), func(t *testing.T) {
				standardWorld(t, a+b, func(ctx context.Context, c *Comm) error {
					s := sideOf{sizes: [2]int{a, b}}
					if c.Rank() >= a {
						s.side = 1
					}
					half, err := c.Split(ctx, s.side, 0)
					if err != nil {
						return err
					}
					if s.inter, err = IntercommCreate(ctx, half, 0, c, []int{a, 0}[s.side], 3); err != nil {
						return err
					}
					return f(ctx, s)
				})
			})
		}
	}
}

// eachRoot runs f for every root of both groups.
func (s sideOf) eachRoot(f func(side, root int) error) error {
	for side := range 2 {
		for root := range s.sizes[side] {
			if err := f(side, root); err != nil {
				return fmt.Errorf("root %d of group %d: %w", root, side, err)
			}
		}
	}
	return nil
}

func TestStandard_6_3_InterBarrier(t *testing.T) {
	interWorld(t, func(ctx context.Context, s sideOf) error {
		// When a rank has left a barrier, all ranks of the other group have entered it: the
		// messages that they sent before have arrived.
		for round := range 3 {
			for r := range s.sizes[s.there()] {
				if err := Bsend(ctx, s.inter, []int{}, r, round); err != nil {
					return err
				}
			}
			if err := Barrier(ctx, s.inter); err != nil {
				return err
			}
			for r := range s.sizes[s.there()] {
				if _, err := Recv(ctx, s.inter, []int{}, r, round); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// No rank leaves a barrier while one of the other group has not entered it.
func TestStandard_6_3_InterBarrierWaits(t *testing.T) {
	interWorld(t, func(ctx context.Context, s sideOf) error {
		for late := range s.sizes[1] {
			if s.side == 1 && s.inter.Rank() == late {
				// Each rank of the other group reports when it is about to enter.
				for r := range s.sizes[0] {
					if _, err := Recv(ctx, s.inter, []int{}, r, 1); err != nil {
						return err
					}
					if _, left, err := s.inter.Iprobe(r, 2); left || err != nil {
						return fmt.Errorf("rank %d has left before rank %d entered: %w", r, late, err)
					}
				}
			}
			if s.side == 0 {
				if err := Bsend(ctx, s.inter, []int{}, late, 1); err != nil {
					return err
				}
			}
			if err := Barrier(ctx, s.inter); err != nil {
				return err
			}
			if s.side == 0 {
				if err := Bsend(ctx, s.inter, []int{}, late, 2); err != nil {
					return err
				}
			} else if s.inter.Rank() == late {
				for r := range s.sizes[0] {
					if _, err := Recv(ctx, s.inter, []int{}, r, 2); err != nil {
						return err
					}
				}
			}
		}
		return nil
	})
}

func TestStandard_6_4_InterBcast(t *testing.T) {
	interWorld(t, func(ctx context.Context, s sideOf) error {
		return s.eachRoot(func(side, root int) error {
			for _, n := range []int{0, 1, 5000} {
				buf, want := items(s.side, s.inter.Rank(), n), items(s.side, s.inter.Rank(), n)
				if side != s.side {
					want = items(side, root, n)
				}
				err := Bcast(ctx, s.inter, buf, s.rootFor(side, root))
				if err := errors.Join(err, equal("buf", buf, want)); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// amount returns the number of elements of a rank in calls with different counts.
func amount(side, rank int) int { return (rank + 2*side) % 3 }

// spread returns the counts, displacements with gaps, and length of a buffer for
// all ranks of a group.
func spread(side, ranks int) (counts, displs []int, length int) {
	for r := range ranks {
		counts, displs = append(counts, amount(side, r)), append(displs, length+1)
		length += amount(side, r) + 1
	}
	return counts, displs, length + 1
}

// spreadItems is a buffer of all ranks of a group, with gaps of 0.
func spreadItems(side, ranks int) []int {
	counts, displs, length := spread(side, ranks)
	buf := make([]int, length)
	for r := range ranks {
		copy(buf[displs[r]:], items(side, r, counts[r]))
	}
	return buf
}

func TestStandard_6_7_InterAllgatherv(t *testing.T) {
	interWorld(t, func(ctx context.Context, s sideOf) error {
		rank, there := s.inter.Rank(), s.there()
		counts, displs, length := spread(there, s.sizes[there])
		got := make([]int, length)
		err := Allgatherv(ctx, s.inter, items(s.side, rank, amount(s.side, rank)), got, counts, displs)
		return errors.Join(err, equal("recv", got, spreadItems(there, s.sizes[there])))
	})
}

// mapsOf returns a rank's contribution to a reduction of n functions, and reduced the result for a
// group.
func mapsOf(side, rank, n int) []affine {
	list := make([]affine, n)
	for i := range list {
		list[i] = affine{uint64(3 + 5*rank + side + i), uint64(item(side, rank, i))}
	}
	return list
}

func reduced(side, ranks, n int) []affine {
	all := mapsOf(side, ranks-1, n)
	for r := ranks - 2; r >= 0; r-- {
		compose().apply(all, mapsOf(side, r, n))
	}
	return all
}

// The result of a group is distributed over the ranks of the other group. Its total length is the
// same for both groups, and the distributions may differ.
func TestStandard_6_10_InterReduceScatter(t *testing.T) {
	interWorld(t, func(ctx context.Context, s sideOf) error {
		const n = 12 // a multiple of every group size
		rank, size := s.inter.Rank(), s.sizes[s.side]
		all := reduced(s.there(), s.sizes[s.there()], n)
		got := make([]affine, n/size)
		err := ReduceScatterBlock(ctx, s.inter, mapsOf(s.side, rank, n), got, compose)
		if err := errors.Join(err, equal("block", got, all[rank*n/size:][:n/size])); err != nil {
			return err
		}
		counts, before, rest := make([]int, size), 0, n
		for r := range size {
			counts[r] = min(rest, amount(s.side, r))
			if r == size-1 {
				counts[r] = rest
			}
			rest -= counts[r]
			if r < rank {
				before += counts[r]
			}
		}
		got = make([]affine, counts[rank])
		err = ReduceScatter(ctx, s.inter, mapsOf(s.side, rank, n), got, counts, compose)
		return errors.Join(err, equal("recv", got, all[before:][:counts[rank]]))
	})
}

// An invalid root is detected on the rank that gives it, before anything is sent; so are invalid
// counts and lengths.
func TestInterCollectiveArguments(t *testing.T) {
	standardWorld(t, 2, func(ctx context.Context, c *Comm) error {
		half, err := c.Split(ctx, c.Rank(), 0)
		if err != nil {
			return err
		}
		inter, err := IntercommCreate(ctx, half, 0, c, 1-c.Rank(), 3)
		if err != nil {
			return err
		}
		one, two := []int{1}, []int{1, 2}
		for _, root := range []int{1, AnySource, -4, Undefined} {
			for what, err := range map[string]error{
				"Bcast": Bcast(ctx, inter, one, root), "Reduce": Reduce(ctx, inter, one, one, Sum, root),
				"Gather": Gather(ctx, inter, one, one, root), "Scatter": Scatter(ctx, inter, one, one, root),
				"Gatherv":  Gatherv(ctx, inter, one, one, one, one, root),
				"Scatterv": Scatterv(ctx, inter, one, one, one, one, root),
			} {
				if err := expect(err, ErrRank, what+" on "+inter.Name(), "gives Root", fmt.Sprintf("root %d;", root)); err != nil {
					return err
				}
			}
		}
		return errors.Join(expect(Allreduce(ctx, inter, one, two, Sum), ErrCount), Barrier(ctx, inter)) // the communicator still works
	})
}

// When a process dies, the calls of all ranks on both sides fail, also on ranks that wait for a
// rank of their own side that waits for the other side.
func TestNobodyHangsInInterCollectives(t *testing.T) {
	for name, call := range map[string]func(context.Context, *Comm) error{
		"Barrier":   Barrier,
		"Allreduce": func(ctx context.Context, c *Comm) error { return Allreduce(ctx, c, []int{1}, []int{0}, Sum[int]) },
		"Allgather": func(ctx context.Context, c *Comm) error {
			return Allgather(ctx, c, []int{1}, make([]int, c.RemoteSize()))
		},
		"Alltoall": linkedAcross,
		"Dup":      func(ctx context.Context, c *Comm) error { return second(c.Dup(ctx)) },
	} {
		for dead := range either(2, 5) {
			t.Run(fmt.Sprintf("%s/%d", name, dead), func(t *testing.T) {
				t.Parallel()
				TestWorld(t, 5, func(ctx context.Context, c *Comm) error {
					_, inter, err := halves(ctx, c)
					if err != nil {
						return err
					}
					err = linked(ctx, c) // may fail when a rank that has already finished dies
					if c.Rank() == dead {
						die(c)
						return err
					}
					for err == nil { // the first may still succeed
						err = call(ctx, inter)
					}
					c.Agree(ctx, 0) // none leaves before all know
					if !errors.Is(err, ErrProcFailed) {
						return fmt.Errorf("%s: %w", name, err)
					}
					return nil
				})
			})
		}
	}
}

func linkedAcross(ctx context.Context, c *Comm) error {
	return Alltoall(ctx, c, make([]int, c.RemoteSize()), make([]int, c.RemoteSize()))
}
