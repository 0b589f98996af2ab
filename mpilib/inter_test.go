package mpilib

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

// halves splits c at rank n/3+1 and creates an intercommunicator of the two parts.
func halves(ctx context.Context, c *Comm) (half, inter *Comm, err error) {
	cut := c.Size()/3 + 1
	colour, other := 0, cut
	if c.Rank() >= cut {
		colour, other = 1, 0
	}
	if half, err = c.Split(ctx, colour, 0); err != nil {
		return nil, nil, err
	}
	// The leaders are the last rank of the first part and the first rank of the second.
	leader := 0
	if colour == 0 {
		leader = cut - 1
	} else {
		other = cut - 1
	}
	inter, err = IntercommCreate(ctx, half, leader, c, other, 12)
	return half, inter, err
}

// talksAcross has rank i of either side exchange with rank i modulo size of
// the other.
func talksAcross(ctx context.Context, inter *Comm, token int) error {
	mine, theirs := inter.Size(), inter.RemoteSize()
	var requests []*Request
	in := make([][]int, theirs)
	for r := range theirs {
		in[r] = []int{-1}
		requests = append(requests, Irecv(inter, in[r], r, token), Isend(inter, []int{1000*inter.Rank() + token}, r, token))
	}
	statuses, err := Waitall(ctx, requests...)
	if err != nil {
		return err
	}
	for r := range theirs {
		if in[r][0] != 1000*r+token || statuses[2*r].Source != r {
			return fmt.Errorf("%s, rank %d of %d: %d from %d, want %d", inter.Name(), inter.Rank(), mine, in[r][0], statuses[2*r].Source, 1000*r+token)
		}
	}
	return nil
}

// MPI-4.1, section 7.6: an intercommunicator joins two groups; ranks of
// messages are those of the remote group.
func TestIntercomm(t *testing.T) {
	sizes(t, func(t *testing.T, n int) {
		if n == 1 {
			return // one process cannot form two groups
		}
		anyWay(t, n, func(ctx context.Context, c *Comm) error {
			half, inter, err := halves(ctx, c)
			if err != nil {
				return err
			}
			remote, err := inter.RemoteGroup()
			if err != nil {
				return err
			}
			if !inter.IsInter() || inter.Size() != half.Size() || inter.Rank() != half.Rank() || inter.RemoteSize() != n-half.Size() ||
				!slices.Equal(members(inter.Group().Union(remote).Intersection(c.Group())), members(inter.Group().Union(remote))) ||
				inter.Group().Intersection(remote).Size() != 0 || remote.Rank() != Undefined {
				return fmt.Errorf("%v with %v", inter.Group(), remote)
			}
			if err := talksAcross(ctx, inter, 1); err != nil {
				return err
			}
			if err := ringWorks(ctx, inter.Local(), 7); err != nil { // on both sides at once
				return err
			}
			got := []int{0}
			if inter.Rank() == 0 { // wildcards match messages of the remote group, too
				out := Isend(inter, []int{5}, 0, 9)
				if st, err := Recv(ctx, inter, got, AnySource, AnyTag); err != nil || st.Source != 0 || st.Tag != 9 || got[0] != 5 {
					return fmt.Errorf("from anybody: %+v, %v", st, err)
				}
				if _, err := out.Wait(ctx); err != nil {
					return err
				}
			}
			bad := Send(ctx, inter, got, inter.RemoteSize(), 0)
			return errors.Join(
				expect(bad, ErrRank, fmt.Sprintf("has ranks 0 to %d", inter.RemoteSize()-1)),
				expect(NeighborAllgather(ctx, inter, got, got), ErrIntercomm, "NeighborAllgather on "+inter.Name(), "call Merge"),
				expect(Bcast(ctx, inter, got, inter.RemoteSize()), ErrRank, "Bcast on "+inter.Name(), "gives Root"),
				expect(inter.Local().Free(), ErrArg, "freed with its intercommunicator"))
		})
	})
}

// MPI-4.1, section 7.6.2: merge orders the groups by high.
func TestMerge(t *testing.T) {
	sizes(t, func(t *testing.T, n int) {
		if n == 1 {
			return
		}
		anyWay(t, n, func(ctx context.Context, c *Comm) error {
			_, inter, err := halves(ctx, c)
			if err != nil {
				return err
			}
			remote, err := inter.RemoteGroup()
			if err != nil {
				return err
			}
			first := c.Rank() < c.Size()/3+1
			for _, highs := range [][2]bool{{false, true}, {true, false}, {true, true}, {false, false}} {
				high := highs[1]
				if first {
					high = highs[0]
				}
				made, err := inter.Merge(ctx, high)
				if err != nil {
					return err
				}
				want := inter.Group().Union(remote)
				if highs[0] != highs[1] && high || highs[0] == highs[1] && !first {
					want = remote.Union(inter.Group())
				}
				if CompareGroups(made.Group(), want) != Ident {
					return fmt.Errorf("high %v: %v, want %v", highs, made.Group(), want)
				}
				if err := ringWorks(ctx, made, 3); err != nil {
					return err
				}
			}
			if inter.Size() > 1 || inter.RemoteSize() > 1 {
				_, err := inter.Merge(ctx, inter.Rank() == 0)
				if err := expect(err, ErrMismatch, "Merge on "); err != nil {
					return err
				}
			}
			if _, err := c.Merge(ctx, true); expect(err, ErrIntracomm, "Merge on world") != nil {
				return err
			}
			return talksAcross(ctx, inter, 2)
		})
	})
}

// MPI-4.1, section 7.4.2: dup, split and create of intercommunicators.
func TestIntercommConstructors(t *testing.T) {
	sizes(t, func(t *testing.T, n int) {
		if n == 1 {
			return
		}
		anyWay(t, n, func(ctx context.Context, c *Comm) error {
			_, inter, err := halves(ctx, c)
			if err != nil {
				return err
			}
			dup, err := inter.Dup(ctx)
			if err != nil {
				return err
			}
			idup, err := dup.Idup(ctx).Wait(ctx)
			if err != nil {
				return err
			}
			for i, d := range []*Comm{inter, dup, idup} {
				if err := errors.Join(talksAcross(ctx, d, i), ringWorks(ctx, d.Local(), i)); err != nil {
					return err
				}
			}
			// Colour 0: even ranks of both sides. Colour 1 and 2: one side's odd ones.
			colour := 0
			if inter.Rank()%2 == 1 {
				colour = 1
				if c.Rank() < c.Size()/3+1 {
					colour = 2
				}
			}
			part, err := inter.Split(ctx, colour, -inter.Rank())
			if err != nil {
				return err
			}
			if (part == nil) != (colour > 0) {
				return fmt.Errorf("colour %d: %v", colour, part)
			}
			if part != nil {
				if part.Size() != (inter.Size()+1)/2 || part.RemoteSize() != (inter.RemoteSize()+1)/2 || part.Rank() != part.Size()-1-inter.Rank()/2 {
					return fmt.Errorf("rank %d of %d with %d", part.Rank(), part.Size(), part.RemoteSize())
				}
				if err := errors.Join(talksAcross(ctx, part, 4), ringWorks(ctx, part.Local(), 4)); err != nil {
					return err
				}
			}
			one, err := inter.Group().Incl([]int{0})
			if err != nil {
				return err
			}
			pair, err := inter.Create(ctx, one)
			if err != nil || (pair != nil) != (inter.Rank() == 0) {
				return fmt.Errorf("rank %d: %v, %v", inter.Rank(), pair, err)
			}
			if pair != nil {
				return talksAcross(ctx, pair, 6)
			}
			return nil
		})
	})
}

// Bad arguments at one leader, or at one rank, make the call fail everywhere; what else can differ is in
// internal/settle.
func TestIntercommMisuse(t *testing.T) {
	anyWay(t, 4, func(ctx context.Context, c *Comm) error {
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		half, err := c.Split(ctx, c.Rank()/2, 0)
		if err != nil {
			return err
		}
		remote := 2 - c.Rank()/2*2
		// Rank 1 gives a different leader.
		leader := 0
		if c.Rank() == 1 {
			leader = 1
		}
		_, err = IntercommCreate(ctx, half, leader, c, remote, 1)
		want := "localLeader is"
		if c.Rank() >= 2 {
			want = "the other group gave bad arguments"
			if c.Rank() == 3 {
				want = "rank 0, the leader of this group, failed"
			}
		}
		if err := expect(err, ErrMismatch, "IntercommCreate on "+half.Name(), want); err != nil {
			return err
		}
		// Both leaders name an invalid rank.
		_, err = IntercommCreate(ctx, half, 0, c, 9, 1)
		if half.Rank() == 0 {
			err = expect(err, ErrRank, "remoteLeader 9")
		} else {
			err = expect(err, ErrMismatch, "rank 0", " gave bad arguments; see its error")
		}
		if err != nil {
			return err
		}
		_, err = IntercommCreate(ctx, half, 2, c, remote, 1)
		return expect(err, ErrRank, "localLeader 2")
	})
}

// MPI-4.1, section 7.6.2: the two groups are disjoint.
func TestIntercommOverlap(t *testing.T) {
	anyWay(t, 3, func(ctx context.Context, c *Comm) error {
		// Groups {0 1} and {1 2}: rank 1 is in both and makes both calls.
		groups := [][]int{{0, 1}, {1, 2}}
		errs := make(chan error, 2)
		started := 0
		for i, ranks := range groups {
			if !slices.Contains(ranks, c.Rank()) {
				continue
			}
			g, err := c.Group().Incl(ranks)
			if err != nil {
				return err
			}
			side, err := c.CreateGroup(ctx, g, i)
			if err != nil {
				return err
			}
			started++
			go func() {
				leader, other := 0, 2
				if i == 1 {
					leader, other = 1, 0
				}
				_, err := IntercommCreate(ctx, side, leader, c, other, 4)
				errs <- expect(err, ErrArg, "rank 1 of the world is in both groups")
			}()
		}
		var all []error
		for range started {
			all = append(all, <-errs)
		}
		return errors.Join(all...)
	})
}
