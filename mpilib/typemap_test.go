package mpilib

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// typeMap is a type with the displacement of each byte of its data.
type typeMap struct {
	t    *Datatype
	text string
	at   []int
}

func (l typeMap) extent() int {
	_, extent := l.t.Extent()
	return extent
}

// displaced returns the bytes of l at each of the displacements.
func (l typeMap) displaced(displacements ...int) (at []int) {
	for _, d := range displacements {
		for _, b := range l.at {
			at = append(at, d+b)
		}
	}
	return at
}

// run returns the displacements of n elements of l from d on.
func (l typeMap) run(n, d int) (at []int) {
	for i := range n {
		at = append(at, d+i*l.extent())
	}
	return at
}

type padded struct {
	A int8
	B int32
	C int16
}

// basics are the types of which others are built.
func basics() []typeMap {
	plain := func(t *Datatype, err error) typeMap {
		if err != nil {
			panic(err)
		}
		at := make([]int, t.Size())
		for i := range at {
			at[i] = i
		}
		return typeMap{t, t.String(), at}
	}
	gaps := plain(TypeOf[padded]())
	gaps.at = []int{0, 4, 5, 6, 7, 8, 9}
	return []typeMap{plain(TypeOf[int8]()), plain(TypeOf[int16]()), plain(TypeOf[int32]()), plain(TypeOf[float64]()), plain(TypeOf[[3]uint16]()), gaps}
}

// constructors build a type map from another with small random arguments.
var constructors = []struct {
	name string
	make func(r *rand.Rand, old typeMap) (*Datatype, []int, error)
}{
	{"contiguous", func(r *rand.Rand, old typeMap) (*Datatype, []int, error) {
		n := r.IntN(4)
		t, err := TypeContiguous(n, old.t)
		return t, old.displaced(old.run(n, 0)...), err
	}},
	{"vector", func(r *rand.Rand, old typeMap) (*Datatype, []int, error) {
		n, length, stride := r.IntN(4), r.IntN(3), r.IntN(7)-3
		t, err := TypeVector(n, length, stride, old.t)
		return t, old.vector(n, length, stride*old.extent()), err
	}},
	{"hvector", func(r *rand.Rand, old typeMap) (*Datatype, []int, error) {
		n, length, stride := r.IntN(4), r.IntN(3), r.IntN(200)-100
		t, err := TypeHvector(n, length, stride, old.t)
		return t, old.vector(n, length, stride), err
	}},
	{"indexed", func(r *rand.Rand, old typeMap) (*Datatype, []int, error) {
		lengths, at := list(r, 3, 0, 3), list(r, 3, -5, 10)
		t, err := TypeIndexed(lengths, at, old.t)
		return t, old.indexed(lengths, at, old.extent()), err
	}},
	{"hindexed", func(r *rand.Rand, old typeMap) (*Datatype, []int, error) {
		lengths, at := list(r, 3, 0, 3), list(r, 3, -100, 200)
		t, err := TypeHindexed(lengths, at, old.t)
		return t, old.indexed(lengths, at, 1), err
	}},
	{"indexed block", func(r *rand.Rand, old typeMap) (*Datatype, []int, error) {
		n, at := r.IntN(3), list(r, 3, -5, 10)
		t, err := TypeIndexedBlock(n, at, old.t)
		return t, old.indexed([]int{n, n, n}, at, old.extent()), err
	}},
	{"hindexed block", func(r *rand.Rand, old typeMap) (*Datatype, []int, error) {
		n, at := r.IntN(3), list(r, 3, -100, 200)
		t, err := TypeHindexedBlock(n, at, old.t)
		return t, old.indexed([]int{n, n, n}, at, 1), err
	}},
	{"struct", func(r *rand.Rand, old typeMap) (*Datatype, []int, error) {
		other := basics()[r.IntN(6)]
		lengths, at := list(r, 2, 0, 3), list(r, 2, -100, 200)
		t, err := TypeStruct(lengths, at, []*Datatype{old.t, other.t})
		return t, slices.Concat(old.displaced(old.run(lengths[0], at[0])...), other.displaced(other.run(lengths[1], at[1])...)), err
	}},
	{"resized", func(r *rand.Rand, old typeMap) (*Datatype, []int, error) {
		t, err := TypeResized(old.t, r.IntN(20)-10, r.IntN(100)-20)
		return t, old.at, err
	}},
	{"dup", func(r *rand.Rand, old typeMap) (*Datatype, []int, error) {
		t, err := old.t.Dup()
		return t, old.at, err
	}},
	{"subarray", func(r *rand.Rand, old typeMap) (*Datatype, []int, error) {
		sizes := list(r, 2, 1, 5)
		sub := []int{1 + r.IntN(sizes[0]), 1 + r.IntN(sizes[1])}
		starts := []int{r.IntN(sizes[0] - sub[0] + 1), r.IntN(sizes[1] - sub[1] + 1)}
		t, err := TypeSubarray(sizes, sub, starts, OrderC, old.t)
		var at []int
		for i := range sub[0] {
			for j := range sub[1] {
				at = append(at, ((starts[0]+i)*sizes[1]+starts[1]+j)*old.extent())
			}
		}
		return t, old.displaced(at...), err
	}},
	{"darray", func(r *rand.Rand, old typeMap) (*Datatype, []int, error) {
		size, block, processes := 1+r.IntN(9), 1+r.IntN(3), 1+r.IntN(3)
		rank := r.IntN(processes)
		t, err := TypeDarray(processes, rank, Darray{[]int{size}, []Distribution{DistributeCyclic}, []int{block}, []int{processes}}, OrderFortran, old.t)
		var at []int
		for i := range size {
			if i/block%processes == rank {
				at = append(at, i*old.extent())
			}
		}
		return t, old.displaced(at...), err
	}},
}

func (l typeMap) vector(n, length, stride int) (at []int) {
	for i := range n {
		at = append(at, l.displaced(l.run(length, i*stride)...)...)
	}
	return at
}

func (l typeMap) indexed(lengths, displacements []int, scale int) (at []int) {
	for i, n := range lengths {
		at = append(at, l.displaced(l.run(n, displacements[i]*scale)...)...)
	}
	return at
}

func list(r *rand.Rand, n, low, width int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = low + r.IntN(width)
	}
	return out
}

// someLayout builds a type map, the same on all ranks, with the given constructor as the last.
func someLayout(r *rand.Rand, last int) (typeMap, error) {
	l := basics()[r.IntN(6)]
	for depth := r.IntN(3); depth >= 0; depth-- {
		c := constructors[last]
		if depth > 0 {
			c = constructors[r.IntN(len(constructors))]
		}
		t, at, err := c.make(r, l)
		if err != nil {
			return typeMap{}, fmt.Errorf("%s of %s: %w", c.name, l.text, err)
		}
		l = typeMap{t, c.name + " of " + l.text, at}
	}
	return l, l.t.Commit()
}

// field is memory for count elements of a type map, filled with a pattern, and the contents of a
// message of them.
type field struct {
	typeMap
	count  int
	memory []byte
	origin int
	places []int // index in memory of each byte of the message
}

func (l typeMap) field(count, seed int) field {
	places := l.displaced(l.run(count, 0)...)
	low, high := 0, 0
	if len(places) > 0 {
		low, high = slices.Min(places), slices.Max(places)+1
	}
	f := field{typeMap: l, count: count, origin: max(0, -low) + 3}
	f.memory = bytes.Repeat(pattern(1021, seed), (f.origin+max(high, 0))/1021+2)[:f.origin+max(high, 0)+5]
	for _, d := range places {
		f.places = append(f.places, f.origin+d)
	}
	return f
}

func (f field) part() Part { return PartAt(f.memory, f.origin, f.count, f.t) }

// message returns the bytes as a simple packer packs them.
func (f field) message() []byte {
	b := make([]byte, len(f.places))
	for i, at := range f.places {
		b[i] = f.memory[at]
	}
	return b
}

// after returns the memory after a simple packer has unpacked a message.
func (f field) after(message []byte) []byte {
	memory := bytes.Clone(f.memory)
	for i, b := range message {
		memory[f.places[i]] = b
	}
	return memory
}

// overlaps reports whether a byte of memory is in the message twice: a receive must not have such a
// type (MPI-4.1, section 5.1.11).
func (f field) overlaps() bool {
	seen := make([]bool, len(f.memory))
	for _, at := range f.places {
		if seen[at] {
			return true
		}
		seen[at] = true
	}
	return false
}

// eachField runs f for random types of every constructor, with small and large numbers of elements,
// in a world of two.
func eachField(t *testing.T, f func(ctx context.Context, c *Comm, seed int, out, in field) error, opts ...Option) {
	t.Helper()
	for last, constructor := range constructors {
		t.Run(constructor.name, func(t *testing.T) {
			parallel(t)
			standardWorld(t, 2, func(ctx context.Context, c *Comm) error {
				for seed := range either(6, 24) {
					l, err := someLayout(rand.New(rand.NewPCG(uint64(seed), uint64(last))), last)
					if err != nil {
						return err
					}
					count := []int{0, 1, 2, 7, 60, 70_000 / max(1, len(l.at))}[seed%6] // the last one uses rendezvous
					if err := f(ctx, c, seed, l.field(count, 1), l.field(count, 500)); err != nil {
						return fmt.Errorf("seed %d, %d times %s: %w", seed, count, l.text, err)
					}
				}
				return nil
			}, opts...)
		})
	}
}
