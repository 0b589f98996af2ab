package mpilib

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
)

// then composes two affine functions modulo 16, of which a byte has the factor and the summand. It
// is associative, and does not commute: it tells every order of operands from the ranks' order.
func then(a, b byte) byte {
	return a>>4*(b>>4)<<4 | (b>>4*(a&15)+b&15)&15
}

// composes is the operator on elements of l.
func (l typeMap) composes(commutative bool) Reduction {
	return NewReduction("compose", commutative, func(inout, in []byte, origin, count int) error {
		for _, at := range l.displaced(l.run(count, origin)...) {
			inout[at] = then(in[at], inout[at])
		}
		return nil
	})
}

// composed is what becomes of the messages, from the first to the last.
func composed(messages [][]byte) []byte {
	all := bytes.Clone(messages[0])
	for _, m := range messages[1:] {
		for i, b := range m {
			all[i] = then(all[i], b)
		}
	}
	return all
}

// inForms makes a call that has a result in f in each of its forms, of which f.memory is reset
// before.
func inForms(ctx context.Context, name string, f field, want []byte, call func() Collective) error {
	initial := bytes.Clone(f.memory)
	persistent := call().Init()
	if err := holds(name, call().Call(ctx), f, want); err != nil {
		return err
	}
	copy(f.memory, initial)
	if _, err := call().Start().Wait(ctx); err != nil {
		return fmt.Errorf("%s, nonblocking: %w", name, err)
	}
	if err := holds(name+", nonblocking", nil, f, want); err != nil {
		return err
	}
	for range 2 {
		copy(f.memory, initial)
		if err := persistent.Start(); err != nil {
			return err
		}
		_, err := persistent.Wait(ctx)
		if err := holds(name+", persistent", err, f, want); err != nil {
			return err
		}
	}
	return nil
}

// reductions makes the calls that reduce. Each rank gives scattered elements, which the ranks of
// groups of 1 to 4 share evenly.
func (k partCalls) reductions(ctx context.Context) error {
	const scattered = 12
	rank, size := k.c.Rank(), k.sizes[k.side]
	op := k.l.composes(false)
	messages, _ := k.from(func(int) int { return scattered })
	mine := k.brings(k.side, rank, scattered)
	all := composed(messages)
	into := func() field { return k.l.field(scattered, 700) }

	err := k.roots(func(side, root, arg int, isRoot, _ bool) error {
		f, send, recv := into(), mine.part(), Part{}
		want := bytes.Clone(f.memory)
		if isRoot {
			recv, want = f.part(), f.after(all)
			if k.sides == 2 {
				send = Part{}
			}
		}
		return inForms(ctx, "Reduce", f, want, func() Collective { return ReduceParts(k.c, send, recv, op, arg) })
	})
	if err != nil {
		return err
	}
	f := into()
	if err := inForms(ctx, "Allreduce", f, f.after(all), func() Collective { return AllreduceParts(k.c, mine.part(), f.part(), op) }); err != nil {
		return err
	}
	counts := slices.Repeat([]int{scattered / size}, size)
	counts[0]++
	counts[size-1]--
	before := 0
	for _, n := range counts[:rank] {
		before += n
	}
	one := len(all) / scattered
	g := k.l.field(counts[rank], 700)
	if err := inForms(ctx, "ReduceScatter", g, g.after(all[before*one:][:counts[rank]*one]), func() Collective {
		return ReduceScatterParts(k.c, mine.part(), g.part(), counts, op)
	}); err != nil {
		return err
	}
	h := k.l.field(scattered/size, 700)
	if err := inForms(ctx, "ReduceScatterBlock", h, h.after(all[rank*scattered/size*one:][:scattered/size*one]), func() Collective {
		return ReduceScatterBlockParts(k.c, mine.part(), h.part(), op)
	}); err != nil || k.sides == 2 {
		return err
	}
	f = into()
	if err := inForms(ctx, "Scan", f, f.after(composed(messages[:rank+1])), func() Collective { return ScanParts(k.c, mine.part(), f.part(), op) }); err != nil {
		return err
	}
	f = into()
	recv, want := f.part(), bytes.Clone(f.memory)
	if rank > 0 {
		want = f.after(composed(messages[:rank]))
	} else if len(k.l.text)%2 == 0 {
		recv = Part{}
	}
	return inForms(ctx, "Exscan", f, want, func() Collective { return ExscanParts(k.c, mine.part(), recv, op) })
}

// 6.9 to 6.11: an operator of the program reduces elements of any datatype, in the order of the
// ranks, and only data: what lies between them stays.
func TestStandard_6_9_ReductionsOfParts(t *testing.T) {
	for _, p := range either([]int{1, 3}, []int{1, 2, 3, 4}) {
		t.Run(fmt.Sprintf("p=%d", p), func(t *testing.T) {
			t.Parallel()
			standardWorld(t, p, func(ctx context.Context, c *Comm) error {
				return everyConstructor(func(l typeMap) error { return newPartCalls(c, l).reductions(ctx) })
			})
		})
	}
	t.Run("inter", func(t *testing.T) {
		interWorld(t, func(ctx context.Context, s sideOf) error {
			each := 0
			return everyConstructor(func(l typeMap) error {
				if each++; each%either(2, 8) != s.sizes[0]%either(2, 8) { // others in worlds of other sizes
					return nil
				}
				return interPartCalls(s, l).reductions(ctx)
			})
		})
	})
}

// 6.9.2: the predefined operators on named types give what those on slices do; ranks may use either.
func TestStandard_6_9_2_NamedReductions(t *testing.T) {
	sum, byName := must(ReductionNamed("MPI_SUM")), must(TypeNamed("MPI_DOUBLE"))
	for _, opts := range [][]Option{nil, {WithDebug(io.Discard)}} {
		standardWorld(t, 4, func(ctx context.Context, c *Comm) error {
			for _, n := range []int{0, 1, 1000, 100_000} {
				send, recv := make([]float64, n), make([]float64, n)
				for i := range send {
					send[i] = float64(i * c.Rank())
				}
				var err error
				switch c.Rank() {
				case 0:
					err = AllreduceParts(c, PartAs(send, n, byName), PartAs(recv, n, byName), sum).Call(ctx)
				case 1:
					err = AllreduceParts(c, PartOf(send), PartOf(recv), sum).Call(ctx)
				case 2: // in place
					copy(recv, send)
					err = AllreduceParts(c, PartOf(recv), PartOf(recv), sum).Call(ctx)
				default:
					err = Allreduce(ctx, c, send, recv, Sum)
				}
				for i, v := range recv {
					if v != float64(6*i) {
						return fmt.Errorf("element %d of %d is %v", i, n, v)
					}
				}
				if err != nil {
					return err
				}
			}
			return nil
		}, opts...)
	}
}

// The debug mode takes a call of Parts, in each of its forms, for one of slices.
func TestNamesOfCallsOfParts(t *testing.T) {
	sum := must(ReductionNamed("MPI_SUM"))
	standardWorld(t, 2, func(ctx context.Context, c *Comm) error {
		one, all := []int{1 + c.Rank()}, make([]int, 1)
		parts := AllreduceParts(c, PartOf(one), PartOf(all), sum)
		bcast, start, prepare := BcastParts(c, PartOf(one), 0).Call, parts.Start, parts.Init
		if c.Rank() == 0 {
			bcast = func(ctx context.Context) error { return Bcast(ctx, c, one, 0) }
			start = func() *Request { return Iallreduce(c, one, all, Sum) }
			prepare = func() *Persistent { return AllreduceInit(c, one, all, Sum) }
		}
		_, err := start().Wait(ctx)
		if err = errors.Join(err, equal("Start", all, []int{3})); err != nil {
			return err
		}
		all[0] = 0
		again := prepare()
		err = again.Start()
		_, waited := again.Wait(ctx)
		if err = errors.Join(err, waited, equal("Init", all, []int{3})); err != nil {
			return err
		}
		if err := errors.Join(bcast(ctx), equal("Call", one, []int{1})); err != nil {
			return err
		}
		in, counts, displs := make([]int, 2), []int{1, 1}, []int{0, 1}
		each := func(buf []int) []Part { return []Part{PartOf(buf[:1]), PartOf(buf[len(buf)-1:])} }
		alltoallv := AlltoallvParts(c, each(one), each(in)).Call
		if c.Rank() == 0 {
			alltoallv = func(ctx context.Context) error {
				return Alltoallv(ctx, c, one, counts, []int{0, 0}, in, counts, displs)
			}
		}
		if err := errors.Join(alltoallv(ctx), equal("Alltoallv", in, []int{1, 1})); err != nil {
			return err
		}
		same := AlltoallwParts(c, each(one), each(in)).As("Alltoallv")
		if c.Rank() == 0 {
			same = AlltoallvParts(c, each(one), each(in))
		}
		if err := same.Call(ctx); err != nil {
			return err
		}
		other := BarrierCall(c).Call // a call of another operation is not taken for it
		if c.Rank() == 0 {
			other = AllgatherParts(c, PartOf(one), PartOf(make([]int, 2))).Call
		}
		return expect(other(ctx), ErrMismatch)
	}, WithDebug(io.Discard))
}

// On an intercommunicator, too.
func TestNamesOfInterCalls(t *testing.T) {
	standardWorld(t, 3, func(ctx context.Context, c *Comm) error {
		side := c.Rank() / 2
		half, err := c.Split(ctx, side, 0)
		if err != nil {
			return err
		}
		inter, err := IntercommCreate(ctx, half, 0, c, []int{2, 0}[side], 3)
		if err != nil {
			return err
		}
		if c.Rank() == 1 {
			return BarrierCall(inter).Call(ctx)
		}
		return Barrier(ctx, inter)
	}, WithDebug(io.Discard))
}

// 6.9.4: the pairs of C, with padding between them, find the least value and its lowest index.
func TestStandard_6_9_4_Minloc(t *testing.T) {
	type doubleInt struct {
		Value float64
		Index int32
		_     int32
	}
	minloc, pair := must(ReductionNamed("MPI_MINLOC")), must(TypeNamed("MPI_DOUBLE_INT"))
	standardWorld(t, 4, func(ctx context.Context, c *Comm) error {
		send := []doubleInt{{Value: float64(c.Rank() % 3), Index: int32(10 + c.Rank())}, {Value: 5, Index: int32(3 - c.Rank())}, {Value: -float64(c.Rank()), Index: 1}}
		recv := make([]doubleInt, 3)
		if err := AllreduceParts(c, PartAs(send, 3, pair), PartAs(recv, 3, pair), minloc).Call(ctx); err != nil {
			return err
		}
		return equal("MINLOC", recv, []doubleInt{{Value: 0, Index: 10}, {Value: 5, Index: 0}, {Value: -3, Index: 1}})
	})
}

// 6.9.8: ReduceLocal needs no communicator, and its first operand is that of the lower ranks.
func TestStandard_6_9_8_ReduceLocal(t *testing.T) {
	if err := everyConstructor(func(l typeMap) error {
		in, inout := l.field(3, 1), l.field(3, 500)
		want := inout.after(composed([][]byte{in.message(), inout.message()}))
		return holds("ReduceLocal", ReduceLocal(in.part(), inout.part(), l.composes(false)), inout, want)
	}); err != nil {
		t.Error(err)
	}
	sum, one, two := must(ReductionNamed("MPI_SUM")), PartOf([]int{1}), PartOf([]int{1, 2})
	failure := errors.New("no")
	fails := NewReduction("", true, func(_, _ []byte, _, _ int) error { return failure })
	if err := errors.Join(
		expect(ReduceLocal(one, two, sum), ErrCount), expect(ReduceLocal(one, one, Reduction{}), ErrOp),
		expect(ReduceLocal(PartOf([]string{""}), one, sum), ErrType), expect(ReduceLocal(one, PartOf([]string{""}), sum), ErrType),
		expect(ReduceLocal(one, one, fails), failure), ReduceLocal(Part{}, Part{}, sum),
	); err != nil {
		t.Error(err)
	}
}

// Invalid arguments of reductions of Parts are detected before anything is sent.
func TestReductionsOfPartsArguments(t *testing.T) {
	standardWorld(t, 1, func(ctx context.Context, c *Comm) error {
		sum, bad, one := must(ReductionNamed("MPI_SUM")), PartOf([]string{""}), PartOf([]int{1})
		_, unknown := ReductionNamed("MPI_REPLACE")
		double := must(ReductionNamed("MPI_BAND"))
		return errors.Join(
			expect(unknown, ErrOp), expect(AllreduceParts(c, PartOf([]float64{1}), PartOf([]float64{1}), double).Call(ctx), ErrOp, "Allreduce on world"),
			expect(ReduceParts(c, one, bad, sum, 0).Call(ctx), ErrType), expect(ReduceParts(c, bad, one, sum, 0).Call(ctx), ErrType),
			expect(ReduceParts(c, one, one, Reduction{}, 0).Call(ctx), ErrOp), expect(ReduceParts(c, one, one, sum, 1).Call(ctx), ErrRank),
			expect(AllreduceParts(c, one, PartOf([]int{1, 2}), sum).Call(ctx), ErrCount), expect(ScanParts(c, one, bad, sum).Call(ctx), ErrType),
			expect(ReduceScatterParts(c, one, one, []int{2}, sum).Call(ctx), ErrCount), expect(ReduceScatterParts(c, one, one, nil, sum).Call(ctx), ErrCount),
			expect(ReduceScatterBlockParts(c, one, PartOf([]int{1, 2}), sum).Call(ctx), ErrCount), ExscanParts(c, one, bad, sum).Call(ctx),
			Barrier(ctx, c))
	})
}
