package mpilib

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/isthmus-grid/isthmus/mpilib/internal/buffer"
)

// 5.1.13: envelope and contents have the constructor's arguments: a type constructed from them,
// down to the named types, is equal.
func TestStandard_5_1_13_Contents(t *testing.T) {
	for last, constructor := range constructors {
		t.Run(constructor.name, func(t *testing.T) {
			for seed := range either(10, 40) {
				l, err := someLayout(rand.New(rand.NewPCG(uint64(seed), uint64(last))), last)
				if err != nil {
					t.Fatal(err)
				}
				again, err := remade(l.t)
				if err := errors.Join(err, again.Commit()); err != nil {
					t.Fatal(err)
				}
				out := l.field(3, 1)
				packed, err1 := Pack(nil, out.part())
				other, err2 := Pack(nil, PartAt(out.memory, out.origin, 3, again))
				if err := errors.Join(err1, err2); err != nil || !bytes.Equal(packed, other) || l.extent() != (typeMap{t: again}).extent() {
					t.Fatalf("seed %d: %s: differs when made again: %v", seed, l.text, err)
				}
			}
		})
	}
}

// remade constructs a type from the contents of another.
func remade(t *Datatype) (*Datatype, error) {
	combiner, integers, addresses, types := t.Envelope()
	if combiner == CombinerNamed {
		return t, nil
	}
	c, err := t.Contents()
	if err != nil {
		return nil, err
	}
	if c.Combiner != combiner || len(c.Integers) != integers || len(c.Addresses) != addresses || len(c.Types) != types {
		return nil, fmt.Errorf("%v: envelope %v %d %d %d, contents %+v", t, combiner, integers, addresses, types, c)
	}
	for i := range c.Types {
		old := c.Types[i]
		if c.Types[i], err = remade(old); err != nil {
			return nil, err
		}
	}
	i, a := c.Integers, c.Addresses
	n := 0
	if len(i) > 0 {
		n = i[0]
	}
	switch old := c.Types[0:]; combiner {
	case CombinerDup:
		return old[0].Dup()
	case CombinerContiguous:
		return TypeContiguous(n, old[0])
	case CombinerVector:
		return TypeVector(n, i[1], i[2], old[0])
	case CombinerHvector:
		return TypeHvector(n, i[1], a[0], old[0])
	case CombinerIndexed:
		return TypeIndexed(i[1:n+1], i[n+1:], old[0])
	case CombinerHindexed:
		return TypeHindexed(i[1:], a, old[0])
	case CombinerIndexedBlock:
		return TypeIndexedBlock(i[1], i[2:], old[0])
	case CombinerHindexedBlock:
		return TypeHindexedBlock(i[1], a, old[0])
	case CombinerStruct:
		return TypeStruct(i[1:], a, old)
	case CombinerResized:
		return TypeResized(old[0], a[0], a[1])
	case CombinerSubarray:
		return TypeSubarray(i[1:n+1], i[n+1:2*n+1], i[2*n+1:3*n+1], Order(i[3*n+1]), old[0])
	case CombinerDarray:
		d := i[2]
		array := Darray{Sizes: i[3:][:d], Arguments: i[3+2*d:][:d], Processes: i[3+3*d:][:d]}
		for _, how := range i[3+d:][:d] {
			array.Distributions = append(array.Distributions, Distribution(how))
		}
		return TypeDarray(i[0], i[1], array, Order(i[3+4*d]), old[0])
	}
	return nil, fmt.Errorf("%v: no constructor known", combiner)
}

// 5.2: packed bytes are those of a message. They may be sent as Packed and received as the types
// that were packed, or sent as these types and received as Packed.
func TestStandard_5_2_Pack(t *testing.T) {
	parallel(t)
	eachField(t, func(ctx context.Context, c *Comm, seed int, out, in field) error {
		if in.overlaps() {
			return nil
		}
		numbers := []float64{1, 2, 3}
		b, err1 := Pack([]byte("behind"), PartOf(numbers))
		b, err2 := Pack(b, out.part())
		size, err3 := out.t.PackSize(out.count)
		want := append(append([]byte("behind"), mustView(numbers)...), out.message()...)
		if err := errors.Join(err1, err2, err3); err != nil || !bytes.Equal(b, want) || size != len(out.places) {
			return fmt.Errorf("packed %d bytes, size %d: %w", len(b), size, err)
		}
		if c.Rank() == 0 {
			message := b[len(b)-size:]
			return errors.Join(c.Send(ctx, PartAs(message, len(message), Packed), 1, 1), c.Send(ctx, out.part(), 1, 2))
		}
		if err := arrivesIn(ctx, c, in, out.message(), 1); err != nil {
			return err
		}
		got := make([]byte, size)
		if st, err := c.Recv(ctx, PartAs(got, size, Packed), 0, 2); err != nil || st.Count != size || !bytes.Equal(got, out.message()) {
			return fmt.Errorf("received packed: %+v, %w", st, err)
		}
		unpacked, first := in.typeMap.field(in.count, 600), make([]float64, 3)
		after := unpacked.after(out.message())
		rest, err1 := Unpack(b[len("behind"):], PartOf(first))
		rest, err2 = Unpack(rest, unpacked.part())
		if err := errors.Join(err1, err2); err != nil || len(rest) > 0 || !slices.Equal(first, numbers) || !bytes.Equal(unpacked.memory, after) {
			return fmt.Errorf("unpacked %v, %d bytes left: %w", first, len(rest), err)
		}
		_, err := Unpack(b[:7], PartOf(first))
		return expect(err, ErrTruncate, "7 bytes are left of 24")
	}, WithTypeCheck())
}

func mustView[T Elem](buf []T) []byte {
	b, err := buffer.View(buf)
	if err != nil {
		panic(err)
	}
	return b
}

// 5.3: external32 is big-endian and defines its own sizes; unpacking restores the values.
func TestStandard_5_3_External(t *testing.T) {
	long, err := TypeNamed("MPI_LONG")
	if err != nil {
		t.Fatal(err)
	}
	mixed, err1 := TypeStruct([]int{1, 2}, []int{8, -8}, []*Datatype{long, must(TypeOf[int16]())})
	if err := errors.Join(err1, mixed.Commit()); err != nil {
		t.Fatal(err)
	}
	buf := []int16{1, -2, 0, 0, 0, 0, 0, 0, -3, -1, -1, -1}
	p := PartAt(buf, 4, 1, mixed)
	b, err := PackExternal([]byte{9}, p)
	want := []byte{9, 0xff, 0xff, 0xff, 0xfd, 0, 1, 0xff, 0xfe} // a long has 4 bytes in external32
	if size, err1 := mixed.PackExternalSize(1); err != nil || err1 != nil || size != 8 || !bytes.Equal(b, want) {
		t.Fatalf("% x, size %d, %v, %v", b, size, err, err1)
	}
	got := slices.Clone(buf)
	clear(got)
	if rest, err := UnpackExternal(append(b[1:], 7), PartAt(got, 4, 1, mixed)); err != nil || !bytes.Equal(rest, []byte{7}) || !slices.Equal(got, buf) {
		t.Fatalf("%v, % x, %v", got, rest, err)
	}
	if _, err := UnpackExternal(b[2:], p); !errors.Is(err, ErrTruncate) {
		t.Errorf("a byte too few: %v", err)
	}
	buf[11] = 0x7fff
	if b, err := PackExternal([]byte{9}, p); !errors.Is(err, ErrConversion) || len(b) != 1 {
		t.Errorf("a long beyond 32 bits: % x, %v", b, err)
	}
	if b, err := PackExternal(nil, PartOf([]padded{{1, 2, 3}})); err != nil || !bytes.Equal(b, []byte{1, 0, 0, 0, 2, 0, 3}) {
		t.Errorf("a Go struct: % x, %v", b, err)
	}
	if b, err := PackExternal(nil, Part{}); err != nil || len(b) > 0 {
		t.Errorf("nothing: % x, %v", b, err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// 3.3.1 and 5.1.11: with type checking, a receive fails and writes nothing if its basic elements
// are not those of the message (all cases: internal/buffer).
func TestStandard_3_3_1_Signatures(t *testing.T) {
	parallel(t)
	type pair struct{ A, B int32 }
	column := must(TypeVector(3, 1, 2, must(TypeOf[int32]())))
	if err := column.Commit(); err != nil {
		t.Fatal(err)
	}
	ints := func() Part { return PartOf([]int32{1, 2, 3, 4, 5, 6}) }
	for _, c := range []struct {
		name      string
		out, in   Part
		different bool
	}{
		{"column", PartAs(make([]int32, 6), 1, column), ints(), false},
		{"into struct", ints(), PartOf(make([]pair, 4)), false},
		{"unsigned", PartOf([]uint32{1}), ints(), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, blocking := range []bool{true, false} {
				standardWorld(t, 2, func(ctx context.Context, comm *Comm) error {
					if comm.Rank() == 0 {
						return errors.Join(comm.Send(ctx, c.out, 1, 1), Send(ctx, comm, []int8{3}, 1, 2))
					}
					before, _ := Pack(nil, c.in)
					var err error
					if blocking {
						_, err = comm.Recv(ctx, c.in, 0, 1)
					} else if m, err1 := comm.Mprobe(ctx, 0, 1); err1 != nil || m.Status.Bytes != c.out.p.Size {
						return fmt.Errorf("probed %+v, %w", m, err1)
					} else {
						_, err = m.Recv(ctx, c.in)
					}
					if c.different {
						after, _ := Pack(nil, c.in)
						err = errors.Join(expect(err, ErrSignature, "receive from rank 0 of world, tag 1"), equal("memory", after, before))
					}
					got := []int8{0}
					st, err1 := Recv(ctx, comm, got, 0, 2) // the functions for slices check it too
					if (st != Status{Source: 0, Tag: 2, Count: 1, Bytes: 1}) || got[0] != 3 {
						err1 = fmt.Errorf("%+v, %v, %w", st, got, err1)
					}
					return errors.Join(err, err1)
				}, WithTypeCheck())
			}
		})
	}
}
