package coll

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/mpilib/internal/buffer"
	"github.com/isthmus-grid/isthmus/mpilib/internal/coll/colltest"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
)

type named string

func (n named) Name() string { return string(n) }

// A side is what a rank sees of an intercommunicator between group 0 and group 1.
type side struct {
	Round
	group int
	sizes [2]int
}

func (s *side) there() int { return 1 - s.group }

// rootFor is a rank's root argument when rank r of a group is the root.
func (s *side) rootFor(group, r int) int {
	switch {
	case group != s.group:
		return r
	case r == s.Rank:
		return mpi.Root
	}
	return mpi.ProcNull
}

// eachRoot calls f for every root of both groups.
func (s *side) eachRoot(f func(group, root int) error) error {
	for group := range 2 {
		for root := range s.sizes[group] {
			if err := f(group, root); err != nil {
				return fmt.Errorf("root %d of group %d: %w", root, group, err)
			}
		}
	}
	return nil
}

// data is n bytes of a rank of a group.
func data(group, rank, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(1 + 120*group + 28*rank + i)
	}
	return b
}

// amount is how many bytes a rank has in calls with different counts.
func amount(group, rank int) int { return (rank + 2*group) % 3 }

// spread returns the counts and displacements of a buffer for all ranks of a group, with gaps of 0, and
// the buffer.
func spread(group, ranks int) (counts, displs []int, buf []byte) {
	for r := range ranks {
		counts, displs = append(counts, amount(group, r)), append(displs, len(buf)+1)
		buf = append(append(buf, 0), data(group, r, amount(group, r))...)
	}
	return counts, displs, append(buf, 0)
}

func same(what string, err error, got, want []byte) error {
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("got %v, want %v", got, want)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// pair is x -> A*x+B modulo a prime: composing two is associative, and their order matters.
type pair struct{ A, B uint64 }

const prime = 1<<31 - 1

func apply(inout, in []pair) {
	for i, f := range in {
		g := inout[i]
		inout[i] = pair{f.A * g.A % prime, (f.A*g.B + f.B) % prime}
	}
}

func pairs(group, rank, n int) []byte {
	list := make([]pair, n)
	for i := range list {
		list[i] = pair{uint64(3 + 5*rank + group + i), uint64(100*rank + 10*group + i)}
	}
	b, _ := buffer.View(list)
	return b
}

// reduced is the reduction of a group's pairs.
func reduced(group, ranks, n int) []byte {
	size, _ := buffer.Size[pair]()
	all := pairs(group, ranks-1, n)
	for r := ranks - 2; r >= 0; r-- {
		apply(buffer.Typed[pair](all, size), buffer.Typed[pair](pairs(group, r, n), size))
	}
	return all
}

// interCalls are the calls of intercommunicators, compared with their definition (MPI-4.1, section 6.2.3
// and those of the calls).
var interCalls = map[string]func(ctx context.Context, s *side) error{
	"Bcast": func(ctx context.Context, s *side) error {
		return s.eachRoot(func(group, root int) error {
			for _, n := range []int{0, 1, 5000} {
				buf, want := data(s.group, s.Rank, n), data(s.group, s.Rank, n)
				if group != s.group {
					want = data(group, root, n)
				}
				if err := same("buf", s.Bcast(ctx, buf, s.rootFor(group, root)), buf, want); err != nil {
					return err
				}
			}
			return nil
		})
	},
	"Gather": func(ctx context.Context, s *side) error {
		return s.eachRoot(func(group, root int) error {
			const n = 3
			got, want := make([]byte, n*s.Peers), make([]byte, n*s.Peers)
			if group == s.group && root == s.Rank {
				for r := range s.Peers {
					copy(want[n*r:], data(s.there(), r, n))
				}
			}
			return same("recv", s.Gather(ctx, data(s.group, s.Rank, n), got, s.rootFor(group, root)), got, want)
		})
	},
	"Gatherv": func(ctx context.Context, s *side) error {
		return s.eachRoot(func(group, root int) error {
			counts, displs, want := spread(s.there(), s.Peers)
			got := make([]byte, len(want))
			if group != s.group || root != s.Rank {
				clear(want)
			}
			err := s.Gatherv(ctx, data(s.group, s.Rank, amount(s.group, s.Rank)), got, counts, displs, s.rootFor(group, root))
			return same("recv", err, got, want)
		})
	},
	"Scatter": func(ctx context.Context, s *side) error {
		return s.eachRoot(func(group, root int) error {
			const n = 3
			got, want := make([]byte, n), make([]byte, n)
			if group != s.group {
				want = data(group, root, n*s.Size)[n*s.Rank:][:n]
			}
			return same("recv", s.Scatter(ctx, data(s.group, s.Rank, n*s.Peers), got, s.rootFor(group, root)), got, want)
		})
	},
	"Scatterv": func(ctx context.Context, s *side) error {
		return s.eachRoot(func(group, root int) error {
			counts, displs, out := spread(s.there(), s.Peers)
			mine := amount(s.group, s.Rank)
			got, want := make([]byte, mine), make([]byte, mine)
			if group != s.group {
				want = data(s.group, s.Rank, mine)
			}
			return same("recv", s.Scatterv(ctx, out, counts, displs, got, s.rootFor(group, root)), got, want)
		})
	},
	"Allgather": func(ctx context.Context, s *side) error {
		for _, n := range [][2]int{{3, 3}, {1, 5}, {0, 2}} { // the groups' blocks may differ
			var want []byte
			for r := range s.Peers {
				want = append(want, data(s.there(), r, n[s.there()])...)
			}
			got := make([]byte, len(want))
			if err := same("recv", s.Allgather(ctx, data(s.group, s.Rank, n[s.group]), got), got, want); err != nil {
				return err
			}
		}
		return nil
	},
	"Allgatherv": func(ctx context.Context, s *side) error {
		counts, displs, want := spread(s.there(), s.Peers)
		got := make([]byte, len(want))
		return same("recv", s.Allgatherv(ctx, data(s.group, s.Rank, amount(s.group, s.Rank)), got, counts, displs), got, want)
	},
	"Alltoall": func(ctx context.Context, s *side) error {
		for _, n := range [][2]int{{2, 2}, {1, 3}, {0, 2}} {
			in := n[s.there()]
			var want []byte
			for r := range s.Peers {
				want = append(want, data(s.there(), r, in*s.Size)[in*s.Rank:][:in]...)
			}
			got := make([]byte, len(want))
			if err := same("recv", s.Alltoall(ctx, data(s.group, s.Rank, n[s.group]*s.Peers), got), got, want); err != nil {
				return err
			}
		}
		return nil
	},
	"Alltoallv": func(ctx context.Context, s *side) error {
		var counts, displs []int
		var send, want []byte
		for r := range s.Peers {
			n := (2*s.Rank + r) % 3 // between rank a of group 0 and rank b of group 1: 2a+b
			if s.group == 1 {
				n = (2*r + s.Rank) % 3
			}
			counts, displs = append(counts, n), append(displs, len(send)+1)
			send = append(append(send, 255), data(s.group, (s.Rank+r)%4, n)...)
			want = append(append(want, 0), data(s.there(), (s.Rank+r)%4, n)...)
		}
		got := make([]byte, len(want))
		return same("recv", s.Alltoallv(ctx, send, counts, displs, got, counts, displs), got, want)
	},
	"Reduce": func(ctx context.Context, s *side) error {
		return s.eachRoot(func(group, root int) error {
			const n = 4
			want := reduced(s.there(), s.Peers, n)
			got := make([]byte, len(want))
			if group != s.group || root != s.Rank {
				clear(want)
			}
			return same("recv", s.Reduce(ctx, pairs(s.group, s.Rank, n), got, compose, s.rootFor(group, root)), got, want)
		})
	},
	"Allreduce": func(ctx context.Context, s *side) error {
		for _, n := range []int{0, 1, 1000} {
			want := reduced(s.there(), s.Peers, n)
			got := make([]byte, len(want))
			if err := same("recv", s.Allreduce(ctx, pairs(s.group, s.Rank, n), got, compose), got, want); err != nil {
				return err
			}
		}
		return nil
	},
	// The result of a group is distributed over the ranks of the other. Its length is the same for both,
	// and the distributions may differ.
	"ReduceScatter": func(ctx context.Context, s *side) error {
		const n = 12 // a multiple of every group's size
		all, each := reduced(s.there(), s.Peers, n), 16*n/s.Size
		got := make([]byte, each)
		if err := same("block", s.ReduceScatterBlock(ctx, pairs(s.group, s.Rank, n), got, compose), got, all[s.Rank*each:][:each]); err != nil {
			return err
		}
		counts, before, left := make([]int, s.Size), 0, len(all)
		for r := range counts {
			if counts[r] = 16 * amount(s.group, r); r == s.Size-1 {
				counts[r] = left
			}
			if left -= counts[r]; r < s.Rank {
				before += counts[r]
			}
		}
		got = make([]byte, counts[s.Rank])
		return same("recv", s.ReduceScatter(ctx, pairs(s.group, s.Rank, n), got, counts, compose), got, all[before:][:len(got)])
	},
	"Barrier": func(ctx context.Context, s *side) error { return s.Barrier(ctx) },
}

var compose, _ = Op("compose", false, apply)

// bothSides runs f on both sides of an intercommunicator of a and b ranks.
func bothSides(t *testing.T, a, b int, f func(ctx context.Context, s *side) error) {
	t.Helper()
	for rank, err := range colltest.Run(t, a+b, func(ctx context.Context, net *colltest.Net, rank int) error {
		groups := [2][]int{}
		for r := range a + b {
			groups[min(1, r/a)] = append(groups[min(1, r/a)], r)
		}
		s := &side{group: min(1, rank/a), sizes: [2]int{a, b}}
		ours, theirs := groups[s.group], groups[s.there()]
		s.Round = Round{
			Call: net.Call(rank, ours), Rank: slices.Index(ours, rank), Size: len(ours), Peers: len(theirs), Inter: true, Comm: named("inter"),
			Line: func() Call { return net.Call(rank, theirs) },
		}
		return f(ctx, s)
	}) {
		if err != nil {
			t.Errorf("rank %d of %d and %d: %v", rank, a, b, err)
		}
	}
}

// Between groups of 1 to 4 ranks the calls of intercommunicators give what the standard defines.
func TestInterCalls(t *testing.T) {
	for name, call := range interCalls {
		t.Run(name, func(t *testing.T) {
			for a := 1; a <= 4; a++ {
				for b := 1; b <= 4; b++ {
					bothSides(t, a, b, call)
				}
			}
		})
	}
}

// Wrong arguments are found by the rank that gives them, before anything is sent.
func TestInterArguments(t *testing.T) {
	bothSides(t, 1, 1, func(ctx context.Context, s *side) error {
		one, two, counts := data(0, 0, 1), data(0, 1, 2), []int{1}
		sum, _ := Op("sum", true, func(inout, in []byte) {})
		for _, root := range []int{1, mpi.AnySource, -4, mpi.Undefined} {
			for what, err := range map[string]error{
				"Bcast": s.Bcast(ctx, one, root), "Reduce": s.Reduce(ctx, one, two[:1], sum, root),
				"Gather": s.Gather(ctx, one, two[:1], root), "Scatter": s.Scatter(ctx, one, two[:1], root),
				"Gatherv":  s.Gatherv(ctx, one, two, counts, counts, root),
				"Scatterv": s.Scatterv(ctx, two, counts, counts, one, root),
			} {
				if !errors.Is(err, mpi.ErrRank) {
					return fmt.Errorf("%s with root %d: %w", what, root, err)
				}
			}
		}
		for what, err := range map[string]error{
			"Allreduce":            s.Allreduce(ctx, one, two, sum),
			"ReduceScatter, long":  s.ReduceScatter(ctx, one, two[:1], []int{1, 2}, sum),
			"ReduceScatter, two":   s.ReduceScatter(ctx, one, two[:1], []int{2}, sum),
			"ReduceScatter, minus": s.ReduceScatter(ctx, one, two[:1], []int{-1}, sum),
			"Allgatherv, beyond":   s.Allgatherv(ctx, one, two[:1], counts, counts),
			"Alltoallv, two":       s.Alltoallv(ctx, one, []int{1, 2}, []int{1, 2}, two, counts, []int{0}),
			"Alltoallw, none":      s.Alltoallw(ctx, nil, nil),
		} {
			if !errors.Is(err, mpi.ErrCount) {
				return fmt.Errorf("%s: %w", what, err)
			}
		}
		if err := s.Allreduce(ctx, two[:1], two[:1], sum); !errors.Is(err, mpi.ErrArg) {
			return fmt.Errorf("in place: %w", err)
		}
		if err := s.Scan(ctx, one, two[:1], sum, collectives.Scan); !errors.Is(err, mpi.ErrIntercomm) {
			return fmt.Errorf("a scan: %w", err)
		}
		return s.Barrier(ctx) // it still works
	})
}
