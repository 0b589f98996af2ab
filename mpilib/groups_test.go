package mpilib

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

func members(g *Group) []int {
	list := []int{}
	for r := range g.Size() {
		list = append(list, g.WorldRank(r))
	}
	return list
}

// MPI-4.1, section 7.3: the operations on groups, compared with the same on slices.
func TestGroupAlgebra(t *testing.T) {
	sizes(t, func(t *testing.T, n int) {
		anyWay(t, n, func(ctx context.Context, c *Comm) error {
			random := rand.New(rand.NewPCG(1, uint64(n)))
			world := c.Group()
			if world.Size() != n || world.Rank() != c.Rank() {
				return fmt.Errorf("group of world: rank %d of %d", world.Rank(), world.Size())
			}
			for range 50 {
				a, b := random.Perm(n)[:random.IntN(n+1)], random.Perm(n)[:random.IntN(n+1)]
				ga, errA := world.Incl(a)
				gb, errB := world.Incl(b)
				if err := errors.Join(errA, errB); err != nil {
					return err
				}
				if err := sameAlgebra(c.Rank(), a, b, ga, gb); err != nil {
					return fmt.Errorf("%v and %v: %w", a, b, err)
				}
			}
			return nil
		})
	})
}

func sameAlgebra(self int, a, b []int, ga, gb *Group) error {
	union, both, only := slices.Clone(a), []int{}, []int{}
	for _, w := range b {
		if !slices.Contains(a, w) {
			union = append(union, w)
		}
	}
	translated := []int{}
	for _, w := range a {
		if at := slices.Index(b, w); at >= 0 {
			both = append(both, w)
			translated = append(translated, at)
		} else {
			only = append(only, w)
			translated = append(translated, Undefined)
		}
	}
	out, err := ga.Excl(nil)
	if err != nil {
		return err
	}
	for _, tc := range []struct {
		what string
		got  *Group
		want []int
	}{
		{"union", ga.Union(gb), union}, {"intersection", ga.Intersection(gb), both},
		{"difference", ga.Difference(gb), only}, {"no exclusion", out, a},
		{"union with nobody", EmptyGroup.Union(ga), a}, {"difference from nobody", EmptyGroup.Difference(ga), []int{}},
	} {
		if !slices.Equal(members(tc.got), tc.want) {
			return fmt.Errorf("%s is %v, want %v", tc.what, members(tc.got), tc.want)
		}
		rank := slices.Index(tc.want, self)
		if rank < 0 {
			rank = Undefined
		}
		if tc.got.Rank() != rank {
			return fmt.Errorf("%s: rank %d, want %d", tc.what, tc.got.Rank(), rank)
		}
	}
	ranks := make([]int, len(a))
	for i := range ranks {
		ranks[i] = i
	}
	got, err := ga.TranslateRanks(append(ranks, ProcNull), gb)
	if want := append(translated, ProcNull); err != nil || !slices.Equal(got, want) {
		return fmt.Errorf("translated to %v (%v), want %v", got, err, want)
	}
	want := Unequal
	sortedA, sortedB := slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	switch {
	case slices.Equal(a, b):
		want = Ident
	case slices.Equal(sortedA, sortedB):
		want = Similar
	}
	if got := CompareGroups(ga, gb); got != want {
		return fmt.Errorf("compare gives %v, want %v", got, want)
	}
	return nil
}

// MPI-4.1, section 7.3.2: ranges, and invalid ranks.
func TestGroupRanges(t *testing.T) {
	anyWay(t, 9, func(_ context.Context, c *Comm) error {
		world := c.Group()
		g, err := world.RangeIncl([]Triplet{{6, 0, -3}, {1, 8, 4}})
		if err != nil || !slices.Equal(members(g), []int{6, 3, 0, 1, 5}) {
			return fmt.Errorf("%v, %v", g, err)
		}
		if g, err = world.RangeExcl([]Triplet{{6, 0, -3}, {1, 8, 4}}); err != nil || !slices.Equal(members(g), []int{2, 4, 7, 8}) {
			return fmt.Errorf("%v, %v", g, err)
		}
		_, outside := world.Incl([]int{9})
		_, twice := world.Excl([]int{1, 1})
		_, still := world.RangeIncl([]Triplet{{0, 3, 0}})
		return errors.Join(expect(outside, ErrRank, "mpilib: ", "ranks[0] = 9"), expect(twice, ErrArg, "ranks[1] = 1"), expect(still, ErrArg, "stride is zero"))
	})
}

// MPI-4.1, section 7.4.1: comparison of communicators.
func TestCompare(t *testing.T) {
	anyWay(t, 4, func(ctx context.Context, c *Comm) error {
		dup, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		reversed, err := c.Split(ctx, 0, -c.Rank())
		if err != nil {
			return err
		}
		half, err := c.Split(ctx, c.Rank()%2, 0)
		if err != nil {
			return err
		}
		inter, err := IntercommCreate(ctx, half, 0, c, 1-c.Rank()%2, 3)
		if err != nil {
			return err
		}
		interDup, err := inter.Dup(ctx)
		if err != nil {
			return err
		}
		for _, tc := range []struct {
			a, b *Comm
			want Comparison
		}{
			{c, c, Ident}, {c, dup, Congruent}, {c, reversed, Similar}, {c, half, Unequal},
			{inter, inter, Ident}, {inter, interDup, Congruent}, {inter, half, Unequal}, {inter.Local(), half, Congruent},
		} {
			if got := Compare(tc.a, tc.b); got != tc.want {
				return fmt.Errorf("%s with %s: %v, want %v", tc.a.Name(), tc.b.Name(), got, tc.want)
			}
		}
		return nil
	})
}
