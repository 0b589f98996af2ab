package settle_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/mpilib/internal/coll/colltest"
	"github.com/isthmus-grid/isthmus/mpilib/internal/group"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
	"github.com/isthmus-grid/isthmus/mpilib/internal/settle"
)

// Ranks whose calls agree get one new context, and rank 0's word.
func TestAgree(t *testing.T) {
	for n := 1; n <= 5; n++ {
		ids := make([]uint32, n)
		for rank, err := range colltest.Run(t, n, func(ctx context.Context, net *colltest.Net, rank int) error {
			call := net.Call(rank, numbers(n))
			for round := range 3 {
				terms := settle.Terms{Kind: settle.Split, Args: [settle.MaxArgs]settle.Arg{settle.Number("key", -7), settle.List("dims", []int{1, 2})}, Word: uint64(10*rank + round)}
				id, word, err := settle.SettleWord(ctx, call, terms)
				if err != nil || word != uint64(round) || round > 0 && id == ids[rank] {
					return fmt.Errorf("context %d after %d, word %d, %w", id, ids[rank], word, err)
				}
				ids[rank] = id
			}
			return nil
		}) {
			if err != nil || ids[rank] != ids[0] {
				t.Errorf("rank %d of %d: context %d, rank 0 has %d; %v", rank, n, ids[rank], ids[0], err)
			}
		}
	}
}

func numbers(n int) (list []int) {
	for i := range n {
		list = append(list, i)
	}
	return list
}

// If one rank's call differs, or has an error, all fail, and each says why.
func TestDisagree(t *testing.T) {
	bad := errors.New("of its own")
	g, err := group.Of([]int{2, 0})
	if err != nil {
		t.Fatal(err)
	}
	turned, err := group.Of([]int{0, 2})
	if err != nil {
		t.Fatal(err)
	}
	with := func(args ...settle.Arg) (t settle.Terms) {
		t.Kind = settle.Dup
		copy(t.Args[:], args)
		return t
	}
	faulty := with()
	faulty.Fault = bad
	for _, c := range []struct {
		name       string
		odd        int // the rank that differs
		his, other settle.Terms
		want       [2]string // at that rank, and at the others
	}{
		{"call", 2, settle.Terms{Kind: settle.Split}, with(), [2]string{"rank 0 calls Dup and this rank Split", "rank 2 calls Split and this rank Dup"}},
		{"number", 1, with(settle.Number("root", -1)), with(settle.Number("root", 3)), [2]string{"root is 3 on rank 0 and -1 on this one", "root is -1 on rank 1 and 3 on this one"}},
		{"list", 1, with(settle.List("dims", []int{1})), with(settle.List("dims", []int{2})), [2]string{"dims of rank 0 is not that of this one", "dims of rank 1 is not"}},
		{"group", 0, with(settle.Group("the group", turned)), with(settle.Group("the group", g)), [2]string{"the group of rank 1 is not", "the group of rank 0 is not"}},
		{"second argument", 0, with(settle.Number("a", 1), settle.Number("b", 1)), with(settle.Number("a", 1), settle.Number("b", 2)), [2]string{"b is 2 on rank 1", "b is 1 on rank 0"}},
		{"arguments", 1, faulty, with(), [2]string{"of its own", "rank 1 gave bad arguments; see its error"}},
		{"arguments of who allocates", 2, faulty, with(), [2]string{"of its own", "rank 2 gave bad arguments; see its error"}},
	} {
		for rank, err := range colltest.Run(t, 3, func(ctx context.Context, net *colltest.Net, rank int) error {
			terms := c.other
			if rank == c.odd {
				terms = c.his
			}
			terms.Word = 5 // which all get nevertheless
			id, word, err := settle.SettleWord(ctx, net.Call(rank, numbers(3)), terms)
			if id != 0 || word != 5 {
				return fmt.Errorf("context %d, word %d, %w", id, word, err)
			}
			return err
		}) {
			want, class := c.want[1], mpi.ErrMismatch
			if rank == c.odd {
				if want = c.want[0]; c.his.Fault != nil {
					class = bad
				}
			}
			if !errors.Is(err, class) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s, rank %d: %v, want %q", c.name, rank, err, want)
			}
		}
	}
}

// When no context is left, all ranks learn of it from the one that should allocate it.
func TestNoContextLeft(t *testing.T) {
	errs := colltest.Run(t, 3, func(ctx context.Context, net *colltest.Net, rank int) error {
		call := net.Call(rank, numbers(3))
		call.NoContext = mpi.ErrContexts
		_, err := settle.Settle(ctx, call, settle.Terms{Kind: settle.Dup})
		return err
	})
	if !errors.Is(errs[2], mpi.ErrContexts) || !errors.Is(errs[0], mpi.ErrMismatch) || !errors.Is(errs[1], mpi.ErrMismatch) {
		t.Error(errs)
	}
}

// A rank that has another number in the world is named by both.
func TestRankName(t *testing.T) {
	colltest.Run(t, 1, func(_ context.Context, net *colltest.Net, _ int) error {
		if got, want := settle.RankName(net.Call(0, []int{5, 1}), 0), "rank 0 (5 of the world)"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if got := settle.RankName(net.Call(0, []int{5, 1}), 1); got != "rank 1" {
			t.Error(got)
		}
		return nil
	})
}

// exchange makes a call of two groups, ranks 0 and 1 and ranks 2 to 4, whose leaders are ranks 1 and 2.
func exchange(t *testing.T, kinds [2]settle.Kind, failed [2]error) (sides []settle.Side, ranks [][]int, errs []error) {
	groups := [2][]int{{0, 1}, {2, 3, 4}}
	sides, ranks = make([]settle.Side, 5), make([][]int, 5)
	errs = colltest.Run(t, 5, func(ctx context.Context, net *colltest.Net, rank int) error {
		ours, theirs, side := groups[0], groups[1], 0
		if rank > 1 {
			ours, theirs, side = groups[1], groups[0], 1
		}
		leader, to := 1-side, side
		call, s := net.Call(rank, ours), &sides[rank]
		us, err := group.Of(ours)
		if err != nil {
			return err
		}
		line := &settle.LeaderExchange{Line: net.Call(rank, theirs), To: to, Us: us, Self: rank, NewContext: call.NewContext}
		if call.Rank() == leader {
			*s = line.Run(ctx, kinds[side], uint32(10+rank), failed[side])
		}
		if err := s.Broadcast(ctx, call, leader); err != nil {
			return err
		}
		if call.Rank() == leader {
			if s.Ranks, err = line.SwapGroups(ctx, us, int(s.Size)); err != nil {
				return err
			}
		}
		g, err := s.BroadcastRanks(ctx, call, leader)
		if err == nil {
			ranks[rank] = slices.Collect(g.WorldRanks())
		}
		return err
	})
	return sides, ranks, errs
}

// The leaders of two groups swap what their groups have to know, and both take the context of the
// leader with the smaller rank.
func TestSides(t *testing.T) {
	sides, ranks, errs := exchange(t, [2]settle.Kind{settle.Merge, settle.Merge}, [2]error{})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for rank, s := range sides {
		word, others := uint32(12), []int{2, 3, 4}
		if rank > 1 {
			word, others = 11, []int{0, 1}
		}
		if s.Comm == 0 || s.Comm != sides[0].Comm || s.Word != word || !slices.Equal(ranks[rank], others) {
			t.Errorf("rank %d: %+v, the others are %v", rank, s, ranks[rank])
		}
	}
}

// If the two sides' calls differ, or one has failed, both leaders say why, and the others whom to ask.
func TestSidesDiffer(t *testing.T) {
	bad := errors.New("of its own")
	for _, c := range []struct {
		kinds  [2]settle.Kind
		failed [2]error
		want   [2]string // of the leaders
	}{
		{[2]settle.Kind{settle.Dup, settle.Merge}, [2]error{}, [2]string{"the other group calls Merge and this one Dup", "the other group calls Dup and this one Merge"}},
		{[2]settle.Kind{settle.Dup, settle.Dup}, [2]error{bad, bad}, [2]string{"the other group gave bad arguments", "the other group gave bad arguments"}},
	} {
		_, _, errs := exchange(t, c.kinds, c.failed)
		for rank, err := range errs {
			want := map[int]string{0: "rank 1, the leader of this group, failed; see its error", 1: c.want[0], 2: c.want[1]}[rank]
			if rank > 2 {
				want = "rank 0, the leader of this group, failed; see its error"
			}
			if !errors.Is(err, mpi.ErrMismatch) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, rank %d: %v, want %q", c.kinds, rank, err, want)
			}
		}
	}
}
