package mpilib

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
)

// These tests check the library against chapter 5 of MPI-4.1, datatypes. The expected contents of a
// message are those of a typeMap: a simple list of the displacements of all bytes of a type.

// sendModes are the blocking sends of Parts.
var sendModes = []func(*Comm, context.Context, Part, int, int) error{(*Comm).Send, (*Comm).Ssend, (*Comm).Bsend, (*Comm).Rsend}

// 5.1.2 to 5.1.4 and 5.1.7: a message of a type has the bytes of its type map in their order, and a
// receive writes these bytes and no others.
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
		for tag := 2; tag <= 3; tag++ { // a message of bytes, and one of the type
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

// arrivesIn receives a message with the given content into a field.
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

// 5.1.11: a receive may be larger than its message; then it writes only the received elements. A
// smaller receive is an error, and writes nothing.
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

// 5.1.11, the standard's example: GetCount returns the number of whole elements, or Undefined if
// the message ends within one. GetElements counts their basic elements.
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
		if c.signs() { // type checking reports that bytes are not floats
			if err := expect(err, ErrSignature); err != nil {
				return err
			}
		} else if err != nil || st.Count != Undefined {
			return fmt.Errorf("5 bytes: %+v, %w", st, err)
		}
		if st.GetElements(pair) != Undefined || st.GetCount(Byte) != 5 {
			return fmt.Errorf("5 bytes: %+v, %d elements", st, st.GetElements(pair))
		}
		empty, err := TypeContiguous(0, float)
		if err != nil || (Status{}).GetCount(empty) != 0 || st.GetCount(empty) != Undefined {
			return fmt.Errorf("of a type without data: %d, %d, %w", (Status{}).GetCount(empty), st.GetCount(empty), err)
		}
		return nil
	})
}

// 3.7, 3.8, 3.9, 3.10 with datatypes: every kind of send and receive transfers what the type
// describes.
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
		// Each rank chooses its own kind of send and of receive.
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
		// The received message comes from the same places of the other rank's memory.
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

// persistently returns a function that starts a persistent request.
func persistently(p *Persistent) func() *Request {
	return func() *Request {
		if err := p.Start(); err != nil {
			panic(err)
		}
		return p.Request()
	}
}

// 5.1.9: a type must be committed to be used in messages, but not to build other types. Freeing it
// affects neither pending messages nor types built from it.
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

// A Part beyond its buffer causes an error before anything is sent. Constructors return the errors
// in their arguments.
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
		for _, p := range []Part{PartAs(buf, 1, back), PartAt(buf, 1<<62, 0, back)} {
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

// 5.1.5 to 5.1.8: size, extents, and the effect of resizing.
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
