package mpilib

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
)

func TestCollectives(t *testing.T) {
	for _, p := range either([]int{1, 2, 5}, []int{1, 2, 3, 5, 8}) {
		t.Run(fmt.Sprintf("p=%d", p), func(t *testing.T) {
			anyWay(t, p, func(ctx context.Context, c *Comm) error {
				for _, n := range []int{0, 1, 3 * p, 20000} {
					if err := allCollectives(ctx, c, n); err != nil {
						return fmt.Errorf("n=%d: %w", n, err)
					}
				}
				return nil
			})
		})
	}
}

// allCollectives compares every collective with its definition.
func allCollectives(ctx context.Context, c *Comm, n int) error {
	p, me := c.Size(), c.Rank()
	root := p - 1
	// value is element i of rank r's vector.
	value := func(r, i int) int64 { return int64(1000*r + i) }
	vector := func(r, n int) []int64 {
		v := make([]int64, n)
		for i := range v {
			v[i] = value(r, i)
		}
		return v
	}
	want := func(what string, got, want []int64) error {
		if !slices.Equal(got, want) {
			return fmt.Errorf("%s gave %d elements starting with %v, want %d starting with %v", what, len(got), got[:min(8, len(got))], len(want), want[:min(8, len(want))])
		}
		return nil
	}
	if err := Barrier(ctx, c); err != nil {
		return err
	}
	buf := make([]int64, n)
	if me == root {
		buf = vector(root, n)
	}
	if err := Bcast(ctx, c, buf, root); err != nil {
		return err
	}
	if err := want("Bcast", buf, vector(root, n)); err != nil {
		return err
	}
	sum := make([]int64, n)
	for r := range p {
		for i := range sum {
			sum[i] += value(r, i)
		}
	}
	in := make([]int64, n)
	if err := Reduce(ctx, c, vector(me, n), in, Sum, root); err != nil {
		return err
	}
	if me == root {
		if err := want("Reduce", in, sum); err != nil {
			return err
		}
	}
	if err := Allreduce(ctx, c, vector(me, n), in, Sum); err != nil {
		return err
	}
	if err := want("Allreduce", in, sum); err != nil {
		return err
	}
	// A user-defined operator that does not commute: it returns the last rank's element.
	last := NewOp("last", false, func(inout, in []int64) {})
	if err := Allreduce(ctx, c, vector(me, n), in, last); err != nil {
		return err
	}
	if err := want("Allreduce with last", in, vector(p-1, n)); err != nil {
		return err
	}
	var gathered []int64
	for r := range p {
		gathered = append(gathered, vector(r, n)...)
	}
	all := make([]int64, p*n)
	if err := Allgather(ctx, c, vector(me, n), all); err != nil {
		return err
	}
	if err := want("Allgather", all, gathered); err != nil {
		return err
	}
	clear(all)
	if err := Gather(ctx, c, vector(me, n), all, root); err != nil {
		return err
	}
	if me == root {
		if err := want("Gather", all, gathered); err != nil {
			return err
		}
	}
	part := make([]int64, n)
	if err := Scatter(ctx, c, gathered, part, root); err != nil {
		return err
	}
	if err := want("Scatter", part, vector(me, n)); err != nil {
		return err
	}
	return allToAll(ctx, c, n/p, value, want)
}

func allToAll(ctx context.Context, c *Comm, n int, value func(r, i int) int64, want func(string, []int64, []int64) error) error {
	p, me := c.Size(), c.Rank()
	send, expect := make([]int64, p*n), make([]int64, p*n)
	for r := range p {
		for i := range n {
			send[r*n+i] = value(me, r*n+i)
			expect[r*n+i] = value(r, me*n+i)
		}
	}
	recv := make([]int64, p*n)
	if err := Alltoall(ctx, c, send, recv); err != nil {
		return err
	}
	if err := want("Alltoall", recv, expect); err != nil {
		return err
	}
	// Blocks of rank r have min(r, n) elements, with a gap of one between blocks.
	var scounts, sdispls, rcounts, rdispls []int
	for r := range p {
		scounts, sdispls = append(scounts, min(r, n)), append(sdispls, r*n)
		rcounts, rdispls = append(rcounts, min(me, n)), append(rdispls, r*n)
	}
	clear(recv)
	if err := Alltoallv(ctx, c, send, scounts, sdispls, recv, rcounts, rdispls); err != nil {
		return err
	}
	for r := range p {
		clear(expect[r*n+min(me, n) : (r+1)*n])
	}
	if err := want("Alltoallv", recv, expect); err != nil {
		return err
	}
	counts := make([]int, p)
	displs := make([]int, p)
	for r := range p {
		counts[r], displs[r] = min(r, n), r*n
	}
	clear(recv)
	if err := Gatherv(ctx, c, send[:min(me, n)], recv, counts, displs, 0); err != nil {
		return err
	}
	clear(expect)
	for r := range p {
		for i := range min(r, n) {
			expect[r*n+i] = value(r, i)
		}
	}
	if me == 0 {
		if err := want("Gatherv", recv, expect); err != nil {
			return err
		}
	}
	clear(recv)
	if err := Allgatherv(ctx, c, send[:min(me, n)], recv, counts, displs); err != nil {
		return err
	}
	if err := want("Allgatherv", recv, expect); err != nil {
		return err
	}
	part := make([]int64, min(me, n))
	if err := Scatterv(ctx, c, expect, counts, displs, part, p-1); err != nil {
		return err
	}
	return want("Scatterv", part, expect[me*n:][:len(part)])
}

// Each rank gets a part of the result of a reduction, whose operator depends on the order of the
// ranks.
func TestReduceScatter(t *testing.T) {
	sizes(t, func(t *testing.T, p int) {
		TestWorld(t, p, func(ctx context.Context, c *Comm) error {
			const each = 3
			me := c.Rank()
			all := reduced(0, p, p*each)
			got := make([]affine, each)
			err := ReduceScatterBlock(ctx, c, mapsOf(0, me, p*each), got, compose)
			if err := errors.Join(err, equal("block", got, all[me*each:][:each])); err != nil {
				return err
			}
			counts, before := make([]int, p), 0
			for r := range p {
				counts[r] = r % 3
				if r < me {
					before += counts[r]
				}
			}
			n := 0
			for _, count := range counts {
				n += count
			}
			got = make([]affine, counts[me])
			err = ReduceScatter(ctx, c, mapsOf(0, me, n), got, counts, compose)
			return errors.Join(err, equal("recv", got, reduced(0, p, n)[before:][:counts[me]]),
				expect(ReduceScatter(ctx, c, mapsOf(0, me, n+1), got, counts, compose), ErrCount),
				expect(Scatterv(ctx, c, got, counts, counts, got, p), ErrRank))
		})
	})
}

func TestDupAndSplit(t *testing.T) {
	anyWay(t, 5, func(ctx context.Context, c *Comm) error {
		dup, err := c.Dup(ctx)
		if err != nil || dup.Rank() != c.Rank() || dup.Size() != 5 {
			return fmt.Errorf("dup %v: %w", dup, err)
		}
		// Messages of the same source and tag on two communicators do not match each other.
		next, prev := (c.Rank()+1)%5, (c.Rank()+4)%5
		a, b := Isend(c, []int{1}, next, 0), Isend(dup, []int{2}, next, 0)
		got := []int{0}
		if _, err := Recv(ctx, dup, got, prev, 0); err != nil || got[0] != 2 {
			return fmt.Errorf("on the duplicate: %d, %v", got[0], err)
		}
		if _, err := Recv(ctx, c, got, AnySource, AnyTag); err != nil || got[0] != 1 {
			return fmt.Errorf("on the world: %d, %v", got[0], err)
		}
		if _, err := Waitall(ctx, a, b); err != nil {
			return err
		}
		// Odd and even ranks in reverse order; rank 4 gets no communicator.
		colour := c.Rank() % 2
		if c.Rank() == 4 {
			colour = Undefined
		}
		s, err := dup.Split(ctx, colour, -c.Rank())
		if err != nil {
			return err
		}
		if c.Rank() == 4 {
			if s != nil {
				return errors.New("an undefined colour gave a communicator")
			}
			return nil
		}
		if s.Size() != 2 || s.Rank() != 1-c.Rank()/2 || s.WorldRank(0) != c.Rank()%2+2 {
			return fmt.Errorf("rank %d of %d, rank 0 is %d", s.Rank(), s.Size(), s.WorldRank(0))
		}
		sum := []int{c.Rank()}
		if err := Allreduce(ctx, s, sum, sum, Sum); err != nil || sum[0] != 2+2*(c.Rank()%2) {
			return fmt.Errorf("sum %d, %v", sum[0], err)
		}
		again, err := s.Dup(ctx)
		if err != nil {
			return err
		}
		return Barrier(ctx, again)
	})
}

func TestPredefinedOperators(t *testing.T) {
	anyWay(t, 3, func(ctx context.Context, c *Comm) error {
		me := c.Rank() // 0, 1, 2
		check := func(name string, err error, ok bool) error {
			if err != nil || !ok {
				return fmt.Errorf("%s: %t, %w", name, ok, err)
			}
			return nil
		}
		f, u, b := []float64{float64(me + 2)}, []uint16{1 << me}, []bool{me == 1}
		gf, gu, gb := []float64{0}, []uint16{0}, []bool{false}
		z, gz := []complex64{complex(float32(me), 1)}, []complex64{0}
		return errors.Join(
			check("prod", Allreduce(ctx, c, f, gf, Prod), gf[0] == 24),
			check("min", Allreduce(ctx, c, f, gf, Min), gf[0] == 2),
			check("max", Allreduce(ctx, c, f, gf, Max), gf[0] == 4),
			check("complex sum", Allreduce(ctx, c, z, gz, Sum), gz[0] == complex(3, 3)),
			check("bor", Allreduce(ctx, c, u, gu, BOr), gu[0] == 7),
			check("band", Allreduce(ctx, c, u, gu, BAnd), gu[0] == 0),
			check("bxor", Allreduce(ctx, c, u, gu, BXor), gu[0] == 7),
			check("lor", Allreduce(ctx, c, b, gb, LOr), gb[0]),
			check("land", Allreduce(ctx, c, b, gb, LAnd), !gb[0]),
			check("lxor", Allreduce(ctx, c, b, gb, LXor), gb[0]),
		)
	})
}
