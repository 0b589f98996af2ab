package mpilib

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
)

// The collective calls of Parts transfer what the types describe (MPI-4.1, sections 6.4 to 6.8).
// The expected data are those of the simple packer, for types of every constructor and every root,
// in one group and between two.
func TestStandard_6_CollectivesOfParts(t *testing.T) {
	for _, p := range either([]int{1, 3}, []int{1, 2, 3, 4}) {
		t.Run(fmt.Sprintf("p=%d", p), func(t *testing.T) {
			t.Parallel()
			standardWorld(t, p, func(ctx context.Context, c *Comm) error {
				return everyConstructor(func(l typeMap) error { return newPartCalls(c, l).all(ctx) })
			})
		})
	}
	t.Run("inter", func(t *testing.T) {
		interWorld(t, func(ctx context.Context, s sideOf) error {
			return everyConstructor(func(l typeMap) error { return interPartCalls(s, l).all(ctx) })
		})
	})
}

func everyConstructor(f func(l typeMap) error) error {
	for last := range constructors {
		for seed := range either(1, 4) {
			l, err := someLayout(rand.New(rand.NewPCG(uint64(seed), uint64(last))), last)
			if err != nil {
				return err
			}
			if l.field(20, 1).overlaps() {
				continue
			}
			if err := f(l); err != nil {
				return fmt.Errorf("seed %d, %s: %w", seed, l.text, err)
			}
		}
	}
	return nil
}

// partCalls makes collective calls on one rank. side is its group and other the group whose data it
// gets; in an intracommunicator both are 0.
type partCalls struct {
	c           *Comm
	l           typeMap
	side, other int
	sizes       [2]int
	sides       int
	rootFor     func(side, root int) int
}

func newPartCalls(c *Comm, l typeMap) partCalls {
	return partCalls{c: c, l: l, sizes: [2]int{c.Size()}, sides: 1, rootFor: func(_, root int) int { return root }}
}

func interPartCalls(s sideOf, l typeMap) partCalls {
	return partCalls{c: s.inter, l: l, side: s.side, other: s.there(), sizes: s.sizes, sides: 2, rootFor: s.rootFor}
}

// brings returns the data of a rank of a group: count elements of the type for one receiver.
func (k partCalls) brings(side, rank, count int) field {
	return k.l.field(count, 1+20*side+rank)
}

// roots calls f for every root, and tells it whether this rank is the root and whether it receives
// the root's data.
func (k partCalls) roots(f func(side, root, arg int, isRoot, gets bool) error) error {
	for side := range k.sides {
		for root := range k.sizes[side] {
			isRoot := side == k.side && root == k.c.Rank()
			gets := k.sides == 1 || side != k.side
			if err := f(side, root, k.rootFor(side, root), isRoot, gets); err != nil {
				return fmt.Errorf("root %d of group %d: %w", root, side, err)
			}
		}
	}
	return nil
}

// holds returns an error if a field is not as expected, or if err is not nil.
func holds(what string, err error, f field, want []byte) error {
	if err == nil && !bytes.Equal(f.memory, want) {
		err = errors.New("the memory is wrong")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

func (k partCalls) all(ctx context.Context) error {
	for _, f := range []func(context.Context) error{k.bcast, k.gather, k.scatter, k.allgather, k.alltoall} {
		if err := f(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (k partCalls) bcast(ctx context.Context) error {
	return k.roots(func(side, root, arg int, isRoot, gets bool) error {
		f := k.brings(k.side, k.c.Rank(), 3)
		want := f.memory
		if gets {
			want = f.after(k.brings(side, root, 3).message())
		}
		return holds("Bcast", k.c.Bcast(ctx, f.part(), arg), f, bytes.Clone(want))
	})
}

// from returns the data of all ranks of the other group, count(r) elements of each rank r.
func (k partCalls) from(count func(r int) int) (messages [][]byte, joined []byte) {
	for r := range k.sizes[k.other] {
		m := k.brings(k.other, r, count(r)).message()
		messages, joined = append(messages, m), append(joined, m...)
	}
	return messages, joined
}

// fields returns one field for each rank of the other group, the fields' Parts, and their expected
// contents after the messages have arrived.
func (k partCalls) fields(count func(r int) int, messages [][]byte) (list []field, parts []Part, want [][]byte) {
	for r := range k.sizes[k.other] {
		f := k.l.field(count(r), 700+r)
		list, parts = append(list, f), append(parts, f.part())
		if messages != nil {
			want = append(want, f.after(messages[r]))
		} else {
			want = append(want, bytes.Clone(f.memory))
		}
	}
	return list, parts, want
}

func two(int) int         { return 2 }
func uneven(rank int) int { return (rank + 1) % 3 }

func (k partCalls) gather(ctx context.Context) error {
	return k.roots(func(side, root, arg int, isRoot, _ bool) error {
		mine := k.brings(k.side, k.c.Rank(), 2)
		all := k.l.field(2*k.sizes[k.other], 700)
		want := bytes.Clone(all.memory)
		var messages [][]byte
		if isRoot {
			_, joined := k.from(two)
			want = all.after(joined)
			messages, _ = k.from(uneven)
		}
		if err := holds("Gather", k.c.Gather(ctx, mine.part(), all.part(), arg), all, want); err != nil {
			return err
		}
		list, parts, wants := k.fields(uneven, messages)
		err := k.c.Gatherv(ctx, k.brings(k.side, k.c.Rank(), uneven(k.c.Rank())).part(), parts, arg)
		for r, f := range list {
			err = errors.Join(err, holds("Gatherv", err, f, wants[r]))
		}
		return err
	})
}

func (k partCalls) scatter(ctx context.Context) error {
	rank := k.c.Rank()
	return k.roots(func(side, root, arg int, isRoot, gets bool) error {
		out := k.brings(side, root, 2*k.sizes[k.other]) // the root's data, for the other group or its own
		in := k.l.field(2, 700)
		want := bytes.Clone(in.memory)
		if gets {
			all := k.brings(side, root, 2*k.sizes[k.side]).message()
			n := len(all) / k.sizes[k.side]
			want = in.after(all[rank*n:][:n])
		}
		send := Part{}
		if isRoot {
			send = out.part()
		}
		if err := holds("Scatter", k.c.Scatter(ctx, send, in.part(), arg), in, want); err != nil {
			return err
		}
		var parts []Part
		if isRoot {
			for r := range k.sizes[k.other] {
				parts = append(parts, k.brings(side, 10+r, uneven(r)).part())
			}
		}
		in = k.l.field(uneven(rank), 700)
		want = bytes.Clone(in.memory)
		if gets {
			want = in.after(k.brings(side, 10+rank, uneven(rank)).message())
		}
		return holds("Scatterv", k.c.Scatterv(ctx, parts, in.part(), arg), in, want)
	})
}

func (k partCalls) allgather(ctx context.Context) error {
	_, joined := k.from(two)
	all := k.l.field(2*k.sizes[k.other], 700)
	want := all.after(joined)
	if err := holds("Allgather", k.c.Allgather(ctx, k.brings(k.side, k.c.Rank(), 2).part(), all.part()), all, want); err != nil {
		return err
	}
	messages, _ := k.from(uneven)
	list, parts, wants := k.fields(uneven, messages)
	err := k.c.Allgatherv(ctx, k.brings(k.side, k.c.Rank(), uneven(k.c.Rank())).part(), parts)
	for r, f := range list {
		err = errors.Join(err, holds("Allgatherv", err, f, wants[r]))
	}
	return err
}

func (k partCalls) alltoall(ctx context.Context) error {
	rank := k.c.Rank()
	var joined []byte
	var messages [][]byte
	var out []Part
	for r := range k.sizes[k.other] {
		all := k.brings(k.other, r, 2*k.sizes[k.side]).message()
		n := len(all) / k.sizes[k.side]
		joined = append(joined, all[rank*n:][:n]...)
		messages = append(messages, k.brings(k.other, 4*r+rank, uneven(r+rank)).message())
		out = append(out, k.brings(k.side, 4*rank+r, uneven(r+rank)).part())
	}
	in := k.l.field(2*k.sizes[k.other], 700)
	want := in.after(joined)
	if err := holds("Alltoall", k.c.Alltoall(ctx, k.brings(k.side, rank, 2*k.sizes[k.other]).part(), in.part()), in, want); err != nil {
		return err
	}
	list, parts, wants := k.fields(func(r int) int { return uneven(r + rank) }, messages)
	err := Alltoallw(ctx, k.c, out, parts)
	for r, f := range list {
		err = errors.Join(err, holds("Alltoallw", err, f, wants[r]))
	}
	return err
}

// Invalid Parts, and wrong numbers of them, are detected before anything is sent.
func TestCollectivesOfPartsArguments(t *testing.T) {
	standardWorld(t, 1, func(ctx context.Context, c *Comm) error {
		bad, one := PartOf([]string{""}), PartOf([]int{1})
		return errors.Join(
			expect(c.Bcast(ctx, bad, 0), ErrType, "Bcast on world"), expect(c.Gather(ctx, one, bad, 0), ErrType), expect(c.Gather(ctx, bad, one, 0), ErrType),
			expect(c.Scatter(ctx, bad, one, 0), ErrType), expect(c.Allgather(ctx, bad, one), ErrType), expect(c.Alltoall(ctx, one, bad), ErrType),
			expect(c.Gatherv(ctx, one, []Part{bad}, 0), ErrType), expect(c.Gatherv(ctx, one, nil, 0), ErrCount), expect(c.Gatherv(ctx, one, nil, 1), ErrRank),
			expect(c.Scatterv(ctx, []Part{bad}, one, 0), ErrType), expect(c.Scatterv(ctx, nil, one, 0), ErrCount),
			expect(c.Allgatherv(ctx, one, nil), ErrCount), expect(c.Allgatherv(ctx, one, []Part{bad}), ErrType),
			expect(Alltoallw(ctx, c, []Part{one}, []Part{bad}), ErrType),
			Barrier(ctx, c))
	})
}

// Ranks may transfer Parts where others transfer slices: the debug mode accepts that, but not
// different roots.
func TestCollectivesOfPartsAndSlices(t *testing.T) {
	column := must(TypeVector(3, 1, 2, must(TypeOf[float64]())))
	if err := column.Commit(); err != nil {
		t.Fatal(err)
	}
	standardWorld(t, 3, func(ctx context.Context, c *Comm) error {
		buf, mine := []float64{1, 0, 2, 0, 3}, []float64{1, 2, 3}
		bcast := func(root int) error {
			if c.Rank() == 1 {
				return c.Bcast(ctx, PartAs(buf, 1, column), root)
			}
			return Bcast(ctx, c, mine, root)
		}
		if err := bcast(1); err != nil {
			return err
		}
		return expect(bcast(c.Rank()%2), ErrMismatch, "Bcast(root 0", "rank 1: Bcast(root 1)")
	}, WithDebug(io.Discard))
}

// A message that is shorter than the Part of its receiver is an error of that rank only.
func TestPartOfWrongLength(t *testing.T) {
	TestWorld(t, 2, func(ctx context.Context, c *Comm) error {
		one, into := []int{7}, make([]int, 1+c.Rank()) // rank 1 expects two elements of rank 0
		send, recv := []Part{PartOf(one), PartOf(one)}, []Part{PartOf(into), PartOf(make([]int, 1))}
		err := Alltoallw(ctx, c, send, recv)
		if c.Rank() == 1 {
			return expect(err, ErrCount, "the message has 8 bytes, the buffer 16")
		}
		return err
	})
}
