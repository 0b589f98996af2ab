package mpilib

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// These tests hold the library to chapter 5 of MPI-4.1, datatypes, as the others of
// their name hold it to chapter 3. What a message of a type consists of is said by
// a list of the displacements of all its bytes (typeMap), made without cleverness.

// typeMap is a type, and where each byte of its data lies.
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

// basics are types that others are made of.
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

// constructors make a type map of another with small random arguments.
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

// someLayout makes a type map that the given constructor made last, the same on all
// ranks.
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

// field is memory for count elements of a type map, filled with a pattern, and what a
// message of them has.
type field struct {
	typeMap
	count  int
	memory []byte
	origin int
	places []int // in memory, of each byte of the message
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

// message is what the dumb packer packs.
func (f field) message() []byte {
	b := make([]byte, len(f.places))
	for i, at := range f.places {
		b[i] = f.memory[at]
	}
	return b
}

// after is the memory once the dumb packer has unpacked a message.
func (f field) after(message []byte) []byte {
	memory := bytes.Clone(f.memory)
	for i, b := range message {
		memory[f.places[i]] = b
	}
	return memory
}

// overlaps says that a byte of memory is in the message twice: no receive may have
// such a type (MPI-4.1, section 5.1.11).
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

// eachField runs f for random types of every constructor, with few and many
// elements, in a world of two.
func eachField(t *testing.T, f func(ctx context.Context, c *Comm, seed int, out, in field) error, opts ...Option) {
	t.Helper()
	for last, constructor := range constructors {
		t.Run(constructor.name, func(t *testing.T) {
			parallel(t)
			standardWorld(t, 2, func(ctx context.Context, c *Comm) error {
				for seed := range 24 {
					l, err := someLayout(rand.New(rand.NewPCG(uint64(seed), uint64(last))), last)
					if err != nil {
						return err
					}
					count := []int{0, 1, 2, 7, 60, 70_000 / max(1, len(l.at))}[seed%6] // the last is offered, not sent at once
					if err := f(ctx, c, seed, l.field(count, 1), l.field(count, 500)); err != nil {
						return fmt.Errorf("seed %d, %d times %s: %w", seed, count, l.text, err)
					}
				}
				return nil
			}, opts...)
		})
	}
}

// sendModes are the blocking sends of Parts.
var sendModes = []func(*Comm, context.Context, Part, int, int) error{(*Comm).Send, (*Comm).Ssend, (*Comm).Bsend, (*Comm).Rsend}

// 5.1.2 to 5.1.4 and 5.1.7: what is sent of a type is the bytes of its type map in
// their order; what is received into one goes there and nowhere else.
func TestStandard_5_1_TypeMaps(t *testing.T) {
	parallel(t)
	eachField(t, func(ctx context.Context, c *Comm, seed int, out, in field) error {
		n := len(out.places)
		if c.Rank() == 0 {
			err := sendModes[seed%4](c, ctx, out.part(), 1, 1)
			return errors.Join(err, Send(ctx, c, out.message(), 1, 2), sendModes[seed/4%4](c, ctx, out.part(), 1, 3))
		}
		got := make([]byte, n+1)
		st, err := Recv(ctx, c, got, 0, 1)
		if err != nil || st.Bytes != n || !bytes.Equal(got[:n], out.message()) {
			return fmt.Errorf("sent wrong: %+v, %w", st, err)
		}
		for tag := 2; tag <= 3; tag++ { // from bytes, and from the type
			if in.overlaps() {
				_, err = Recv(ctx, c, got, 0, tag)
			} else {
				err = arrivesIn(ctx, c, in, out.message(), tag)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// arrivesIn receives a message of that content into a field.
func arrivesIn(ctx context.Context, c *Comm, in field, message []byte, tag int) error {
	want := in.after(message)
	st, err := c.Recv(ctx, in.part(), 0, tag)
	if err != nil {
		return err
	}
	count := in.count
	if len(message) == 0 {
		count = 0
	}
	if (st != Status{Source: 0, Tag: tag, Count: count, Bytes: len(message)}) {
		return fmt.Errorf("tag %d: %+v", tag, st)
	}
	if !bytes.Equal(in.memory, want) {
		return fmt.Errorf("tag %d: the memory is wrong", tag)
	}
	return nil
}

// 5.1.11: a receive may be larger than its message; then only the elements that
// came are written. If it is smaller that is an error, and nothing is written.
func TestStandard_5_1_11_Lengths(t *testing.T) {
	parallel(t)
	eachField(t, func(ctx context.Context, c *Comm, seed int, out, in field) error {
		if in.overlaps() || in.count == 0 || len(in.places) == 0 {
			return nil
		}
		message := out.message()
		short := message[:len(message)*(seed%7)/7]
		if c.Rank() == 0 {
			return errors.Join(Send(ctx, c, short, 1, 1), Send(ctx, c, append(message, 1), 1, 2))
		}
		want := in.after(short)
		if st, err := c.Recv(ctx, in.part(), 0, 1); err != nil || st.Bytes != len(short) || !bytes.Equal(in.memory, want) {
			return fmt.Errorf("%d bytes of %d: %+v, %w", len(short), len(message), st, err)
		}
		_, err := c.Recv(ctx, in.part(), 0, 2)
		if err := expect(err, ErrTruncate); err != nil {
			return err
		}
		if !bytes.Equal(in.memory, want) {
			return errors.New("a message that is too long was written")
		}
		return nil
	})
}

// 5.1.11, the standard's example: GetCount counts whole elements, or none where the
// message ends within one; GetElements counts what they are made of.
func TestStandard_5_1_11_GetElements(t *testing.T) {
	parallel(t)
	standardWorld(t, 2, func(ctx context.Context, c *Comm) error {
		float, err := TypeOf[float32]()
		if err != nil {
			return err
		}
		pair, err := TypeContiguous(2, float)
		if err != nil {
			return err
		}
		gap, err := TypeVector(2, 1, 3, float)
		if err != nil {
			return err
		}
		if err := errors.Join(pair.Commit(), gap.Commit()); err != nil {
			return err
		}
		for sent, want := range map[int][2]int{0: {0, 0}, 2: {1, 2}, 3: {Undefined, 3}, 4: {2, 4}} {
			if c.Rank() == 0 {
				for range 2 {
					if err := Send(ctx, c, make([]float32, sent), 1, sent); err != nil {
						return err
					}
				}
				continue
			}
			for _, t := range []*Datatype{pair, gap} {
				st, err := c.Recv(ctx, PartAs(make([]float32, 20), 2, t), 0, sent)
				if got := [2]int{st.Count, st.GetElements(t)}; err != nil || got != want || st.GetCount(t) != want[0] || st.GetCount(float) != sent {
					return fmt.Errorf("%d floats into 2 of %v: %v, %+v, %w", sent, t, got, st, err)
				}
			}
		}
		if c.Rank() == 0 {
			return Send(ctx, c, make([]byte, 5), 1, 9)
		}
		st, err := c.Recv(ctx, PartAs(make([]float32, 4), 2, pair), 0, 9)
		if err != nil || st.GetElements(pair) != Undefined || st.Count != Undefined || st.GetCount(Byte) != 5 {
			return fmt.Errorf("5 bytes: %+v, %d elements, %w", st, st.GetElements(pair), err)
		}
		empty, err := TypeContiguous(0, float)
		if err != nil || (Status{}).GetCount(empty) != 0 || st.GetCount(empty) != Undefined {
			return fmt.Errorf("of a type without data: %d, %d, %w", (Status{}).GetCount(empty), st.GetCount(empty), err)
		}
		return nil
	})
}

// 3.7, 3.8, 3.9, 3.10 with datatypes: every way to send and receive goes by the type.
func TestStandard_5_1_11_EveryCall(t *testing.T) {
	parallel(t)
	for _, opts := range [][]Option{nil, {WithTypeCheck()}} {
		everyCall(t, opts...)
	}
}

func everyCall(t *testing.T, opts ...Option) {
	eachField(t, func(ctx context.Context, c *Comm, seed int, out, in field) error {
		if in.overlaps() {
			return nil
		}
		peer, want := 1-c.Rank(), in.after(out.message())
		// Each receives in a way of its own what the other sent in one of its own.
		starts := []func() *Request{
			func() *Request { return c.Isend(out.part(), peer, 1) },
			func() *Request { return c.Issend(out.part(), peer, 1) },
			func() *Request { return c.Ibsend(out.part(), peer, 1) },
			func() *Request { return c.Irsend(out.part(), peer, 1) },
			persistently(c.SendInit(out.part(), peer, 1)),
			persistently(c.SsendInit(out.part(), peer, 1)),
			persistently(c.BsendInit(out.part(), peer, 1)),
			persistently(c.RsendInit(out.part(), peer, 1)),
		}
		receives := []func() (Status, error){
			func() (Status, error) { return c.Irecv(in.part(), peer, 1).Wait(ctx) },
			func() (Status, error) { return persistently(c.RecvInit(in.part(), peer, 1))().Wait(ctx) },
			func() (Status, error) {
				m, err := c.Mprobe(ctx, AnySource, AnyTag)
				if err != nil || m.Status.Bytes != len(out.places) {
					return m.Status, fmt.Errorf("probed %+v: %w", m.Status, err)
				}
				return m.Recv(ctx, in.part())
			},
			func() (Status, error) {
				_, st, err := Waitany(ctx, nil, c.Irecv(in.part(), peer, 1))
				return st, err
			},
			func() (Status, error) {
				return c.Sendrecv(ctx, PartOf([]bool{true}), ProcNull, 0, in.part(), peer, 1)
			},
		}
		before := bytes.Clone(in.memory)
		for i, start := range starts {
			copy(in.memory, before)
			r := start()
			st, err := receives[(i+seed)%len(receives)]()
			_, err1 := r.Wait(ctx)
			if err := errors.Join(err, err1); err != nil {
				return fmt.Errorf("send %d, receive %d: %w", i, (i+seed)%len(receives), err)
			}
			if st.Bytes != len(out.places) || st.Source != peer || !bytes.Equal(in.memory, want) {
				return fmt.Errorf("send %d, receive %d: %+v", i, (i+seed)%len(receives), st)
			}
		}
		// What replaces a message is like it: of the other rank's memory.
		both := out.typeMap.field(out.count, 10+c.Rank())
		want = both.after(out.typeMap.field(out.count, 10+peer).message())
		st, err := c.SendrecvReplace(ctx, both.part(), peer, 2, peer, 2)
		if err != nil || !bytes.Equal(both.memory, want) {
			return fmt.Errorf("SendrecvReplace: %+v, %w", st, err)
		}
		st, err = c.Recv(ctx, in.part(), ProcNull, 1)
		if st != nullStatus || err != nil {
			return fmt.Errorf("from ProcNull: %+v, %w", st, err)
		}
		return c.Send(ctx, out.part(), ProcNull, 1)
	}, opts...)
}

// persistently starts a transfer twice, giving the first one up where it is a
// receive's: that a request can be started again is told elsewhere.
func persistently(p *Persistent) func() *Request {
	return func() *Request {
		if err := p.Start(); err != nil {
			panic(err)
		}
		return p.Request()
	}
}

// 5.1.9: a type goes into messages when it is committed, and builds others also
// before; freeing it touches neither messages under way nor types made from it.
func TestStandard_5_1_9_CommitAndFree(t *testing.T) {
	parallel(t)
	standardWorld(t, 1, func(ctx context.Context, c *Comm) error {
		number, err := TypeOf[int]()
		if err != nil {
			return err
		}
		column, err := TypeVector(2, 1, 2, number)
		if err != nil {
			return err
		}
		buf, got := []int{1, 2, 3, 4}, make([]int, 4)
		if err := expect(c.Send(ctx, PartAs(buf, 1, column), 0, 1), ErrUncommitted, "call its Commit", "send to rank 0 of world, tag 1"); err != nil {
			return err
		}
		twice, err := TypeResized(column, 0, 8)
		if err != nil {
			return err
		}
		if err := errors.Join(column.Commit(), column.Commit(), twice.Commit()); err != nil {
			return err
		}
		r := c.Irecv(PartAs(got, 1, column), 0, 1)
		dup, err := column.Dup()
		if err != nil {
			return err
		}
		if err := column.Free(); err != nil {
			return err
		}
		_, err = TypeContiguous(2, column)
		if err := errors.Join(
			expect(err, ErrTypeFreed, "TypeContiguous"),
			expect(column.Free(), ErrTypeFreed), expect(column.Commit(), ErrTypeFreed),
			expect(c.Send(ctx, PartAs(buf, 1, column), 0, 1), ErrTypeFreed),
			expect(number.Free(), ErrArg, "MPI_INT64_T is not the program's own"),
			c.Send(ctx, PartAs(buf, 1, dup), 0, 1)); err != nil {
			return err
		}
		if _, err := r.Wait(ctx); err != nil || !slices.Equal(got, []int{1, 0, 3, 0}) {
			return fmt.Errorf("%v, %w", got, err)
		}
		if _, err := c.Sendrecv(ctx, PartAs(buf, 2, twice), 0, 1, PartOf(got), 0, 1); err != nil || !slices.Equal(got, []int{1, 3, 2, 4}) {
			return fmt.Errorf("the transposed: %v, %w", got, err)
		}
		return nil
	})
}

// Memory that is not the buffer's is told before anything is sent; so is what is
// wrong with the arguments of constructors.
func TestTypeArguments(t *testing.T) {
	standardWorld(t, 1, func(ctx context.Context, c *Comm) error {
		number, err := TypeOf[int32]()
		if err != nil {
			return err
		}
		back, err := TypeHindexed([]int{1, 1}, []int{-4, 4}, number)
		if err != nil {
			return err
		}
		if err := back.Commit(); err != nil {
			return err
		}
		buf := make([]int32, 3)
		for _, p := range []Part{PartAs(buf, 1, back), PartAt(buf, 2, 1, back), PartAt(buf, 4, 0, back), PartAt(buf, -1, 0, back),
			PartAs(buf, -1, back), PartAs(buf, 1<<62, number), PartAs(buf, 4, number)} {
			if err := expect(c.Send(ctx, p, 0, 1), ErrArg, "send to rank 0"); err != nil {
				return err
			}
			if _, err := Pack(nil, p); expect(err, ErrArg) != nil {
				return err
			}
			if err := expect(Alltoallw(ctx, c, []Part{p}, []Part{{}}), ErrArg); err != nil {
				return err
			}
		}
		if err := c.Send(ctx, PartAt(buf, 1, 1, back), ProcNull, 1); err != nil {
			return err
		}
		_, err1 := TypeVector(-1, 1, 1, number)
		_, err2 := TypeIndexed([]int{1}, nil, number)
		_, err3 := TypeContiguous(1, nil)
		_, err4 := TypeStruct([]int{1}, []int{0}, []*Datatype{nil})
		_, err5 := TypeOf[[]int]()
		_, err6 := TypeNamed("MPI_NONSENSE")
		_, err7 := number.Contents()
		_, err8 := TypeContiguous(1<<62, number)
		return errors.Join(expect(err1, ErrArg, "mpilib: TypeVector", "count is -1"), expect(err2, ErrArg, "displacements"), expect(err3, ErrType, "nil"),
			expect(err4, ErrType, "types[0]"), expect(err5, ErrType, "TypeOf"), expect(err6, ErrType, "MPI_NONSENSE"),
			expect(err7, ErrType, "named type"), expect(err8, ErrArg),
			expect(c.Send(ctx, PartAs([]string{""}, 1, number), 0, 1), ErrType), expect(c.Send(ctx, PartAs(buf, 1, nil), 0, 1), ErrType))
	})
}

// 5.1.5 to 5.1.8: size, extents, and what resizing does to them.
func TestStandard_5_1_7_Extents(t *testing.T) {
	number, err := TypeNamed("MPI_INT")
	if err != nil {
		t.Fatal(err)
	}
	indexed, err1 := TypeHindexed([]int{1, 2}, []int{8, -4}, number)
	resized, err2 := TypeResized(indexed, -20, 64)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		t                                *Datatype
		size, lb, extent, trueLB, trueEx int
	}{{number, 4, 0, 4, 0, 4}, {indexed, 12, -4, 16, -4, 16}, {resized, 12, -20, 64, -4, 16}} {
		lb, extent := c.t.Extent()
		trueLB, trueEx := c.t.TrueExtent()
		if c.t.Size() != c.size || lb != c.lb || extent != c.extent || trueLB != c.trueLB || trueEx != c.trueEx {
			t.Errorf("%v: size %d, %d+%d, true %d+%d", c.t, c.t.Size(), lb, extent, trueLB, trueEx)
		}
	}
	resized.SetName("row")
	if resized.String() != "row" || number.String() != "MPI_INT" {
		t.Errorf("%v, %v", resized, number)
	}
}

// 5.1.13: envelope and contents are the constructor's arguments: with them another
// type like it is made, down to the named types.
func TestStandard_5_1_13_Contents(t *testing.T) {
	for last, constructor := range constructors {
		t.Run(constructor.name, func(t *testing.T) {
			for seed := range 40 {
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

// remade makes a type from the contents of another.
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

// 5.2: packed bytes are those of a message; they may be sent as Packed and received
// as the types that were packed, or the other way round.
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
	b, err := view(buf)
	if err != nil {
		panic(err)
	}
	return b
}

// 5.3: external32 is big-endian, with sizes of its own, and back it is what it was.
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
	want := []byte{9, 0xff, 0xff, 0xff, 0xfd, 0, 1, 0xff, 0xfe} // a long has 4 bytes there
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

// 3.3.1 and 5.1.11: with the check on, a receive whose basic elements are not those
// sent is an error, and nothing is written; a shorter message, and one of the same
// elements described otherwise, is none.
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
		{"same", ints(), ints(), false},
		{"column", PartAs(make([]int32, 6), 1, column), ints(), false},
		{"struct", PartOf([]pair{{1, 2}}), ints(), false},
		{"into struct", ints(), PartOf(make([]pair, 4)), false},
		{"packed", ints(), PartAs(make([]byte, 30), 30, Packed), false},
		{"nothing", PartOf([]float64{}), ints(), false},
		{"into nothing", Part{}, Part{}, false},
		{"unsigned", PartOf([]uint32{1}), ints(), true},
		{"float", PartOf([]float32{1}), ints(), true},
		{"order", PartOf([]struct {
			A float32
			B int32
		}{{1, 2}}), PartOf([]struct {
			A int32
			B float32
		}{{1, 2}}), true},
		{"Go bytes", PartAs(make([]byte, 4), 4, Byte), PartOf(make([]byte, 4)), true},
		{"padding", PartOf(make([]padded, 1)), PartAs(make([]padded, 2), 2, must(TypeOf[padded]())), true},
		{"padding both", PartOf(make([]padded, 2)), PartOf(make([]padded, 2)), false},
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
					} else if m, err1 := comm.Mprobe(ctx, 0, 1); err1 != nil || m.Status.Bytes != c.out.size {
						return fmt.Errorf("probed %+v, %w", m, err1)
					} else {
						_, err = m.Recv(ctx, c.in)
					}
					if c.different {
						after, _ := Pack(nil, c.in)
						err = errors.Join(expect(err, ErrSignature, "receive from rank 0 of world, tag 1"), equal("memory", after, before))
					}
					got := []int8{0}
					st, err1 := Recv(ctx, comm, got, 0, 2) // the slices' functions know of it too
					if (st != Status{Source: 0, Tag: 2, Count: 1, Bytes: 1}) || got[0] != 3 {
						err1 = fmt.Errorf("%+v, %v, %w", st, got, err1)
					}
					return errors.Join(err, err1)
				}, WithTypeCheck())
			}
		})
	}
}

// A receive that checks says so when its message has no signature.
func TestTypeCheckOnOneSide(t *testing.T) {
	standardWorld(t, 1, func(ctx context.Context, c *Comm) error {
		if err := Bsend(ctx, c, []int{1, 2}, 0, 1); err != nil {
			return err
		}
		c.world.config.signs = true
		_, err := Recv(ctx, c, make([]int, 5), 0, 1)
		c.world.config.signs = false
		return expect(err, ErrSignature, "the message has no signature")
	})
}
