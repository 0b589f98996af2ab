//go:build system

package abitest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/mpilib"
)

// mixedKey names a variable that makes the test program a rank of TestMixed, with the mode as its value.
const mixedKey = "ISTHMUS_TEST_MIXED"

// Ranks in C, of each ABI, and in Go are in one job: what they send, reduce and make together is the same for all. The debug mode finds
// nothing but the mistakes that are made on purpose.
func TestMixed(t *testing.T)        { mixed(t, standardProgram(t, "mixed.c")) }
func TestMPICHMixed(t *testing.T)   { mixed(t, mpichProgram(t, "mixed.c")) }
func TestOpenMPIMixed(t *testing.T) { mixed(t, openMPIProgram(t, "mixed.c")) }

// All three ABIs and Go.
func TestAllMixed(t *testing.T) {
	programs := []string{standardProgram(t, "mixed.c"), mpichProgram(t, "mixed.c"), openMPIProgram(t, "mixed.c"), ""}
	passesMixed(t, 7, "", func(rank int) string { return programs[rank%4] })
}

func mixed(t *testing.T, program string) {
	t.Helper()
	either := func(first int) func(rank int) string {
		return func(rank int) string {
			if rank%2 == first {
				return ""
			}
			return program
		}
	}
	for _, ranks := range []int{2, 5} {
		for first := range 2 {
			passesMixed(t, ranks, "", either(first))
			passesMixed(t, ranks, "", either(first), mpilib.EnvShared+"=off")
			passesMixed(t, ranks, "types", either(first), mpilib.EnvDebug+"=all")
		}
	}
}

// passesMixed runs a job whose ranks are programs, in C or, where there is none, in Go.
func passesMixed(t *testing.T, ranks int, mode string, program func(rank int) string, env ...string) {
	t.Helper()
	outputs, errs := jobOf(t, ranks, func(rank int) []string {
		name := program(rank)
		if name == "" {
			return []string{os.Args[0], "-test.run=^TestMixedRank$", "-test.timeout=4m"}
		}
		return append([]string{name}, strings.Fields(mode)...)
	}, append(env, mixedKey+"="+mode)...)
	if err := errors.Join(errs...); err != nil || !strings.Contains(outputs[0], fmt.Sprintf("passed by %d\n", ranks)) {
		t.Fatalf("%d ranks, %v, rank 0 is %q: %v\n%s", ranks, env, program(0), err, strings.Join(outputs, ""))
	}
}

// TestMixedRank is a rank in Go of TestMixed's jobs. It does what testdata/mixed.c does.
func TestMixedRank(t *testing.T) {
	mode, is := os.LookupEnv(mixedKey)
	if !is {
		t.Log("only as a rank of TestMixed")
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	w, err := mpilib.Init(ctx)
	if err != nil {
		t.Fatal(err)
	}
	r := &mixedRank{T: t, ctx: ctx}
	for n := 1; n <= 100000; n *= 100 {
		r.everything(w.Comm(), n)
	}
	r.communicators(w.Comm())
	r.errors(w.Comm())
	if mode == "types" {
		r.types(w.Comm())
	}
	r.succeeds("Barrier", mpilib.Barrier(r.ctx, w.Comm()))
	if w.Comm().Rank() == 0 {
		fmt.Printf("passed by %d\n", w.Comm().Size())
	}
	r.succeeds("Finalize", w.Finalize(r.ctx))
}

type mixedRank struct {
	*testing.T
	ctx context.Context
}

// succeeds ends the rank unless a call has succeeded, with results that are right.
func (r *mixedRank) succeeds(call string, err error, right ...bool) {
	r.Helper()
	if err != nil || slices.Contains(right, false) {
		r.Fatalf("%s: %v, results %v", call, err, right)
	}
}

// mixedValue is what a rank sends at a place.
func mixedValue(from, i int) int32 { return int32(from*1000 + i%1000) }

func mixedNumbers(from, n int) []int32 {
	all := make([]int32, n)
	for i := range all {
		all[i] = mixedValue(from, i)
	}
	return all
}

// are is whether numbers are what a rank has sent.
func are(all []int32, from int) bool { return slices.Equal(all, mixedNumbers(from, len(all))) }

func (r *mixedRank) everything(c *mpilib.Comm, n int) {
	r.messages(c, n)
	r.moves(c, n)
	r.reductions(c, n)
}

func (r *mixedRank) messages(c *mpilib.Comm, n int) {
	me, all := c.Rank(), c.Size()
	right, left := (me+1)%all, (me+all-1)%all
	out, in := mixedNumbers(me, n), make([]int32, 2*n*all)
	st, err := mpilib.Sendrecv(r.ctx, c, out, right, 1, in[:2*n], left, 1)
	r.succeeds("Sendrecv", err, st == mpilib.Status{Source: left, Tag: 1, Count: n, Bytes: 4 * n}, are(in[:n], left))

	var requests []*mpilib.Request
	for p := range all {
		requests = append(requests, mpilib.Irecv(c, in[p*n:][:n], p, 2), mpilib.Isend(c, out, p, 2))
	}
	_, err = mpilib.Waitall(r.ctx, requests...)
	for p := range all {
		r.succeeds("Waitall", err, are(in[p*n:][:n], p))
	}

	copy(in, out)
	_, err = mpilib.SendrecvReplace(r.ctx, c, in[:n], right, 3, left, 3)
	r.succeeds("SendrecvReplace", err, are(in[:n], left))

	if me > 0 {
		r.succeeds("Ssend", mpilib.Ssend(r.ctx, c, out, 0, 10+me))
		return
	}
	for range all - 1 {
		st, err := c.Probe(r.ctx, mpilib.AnySource, mpilib.AnyTag)
		r.succeeds("Probe", err, st.Bytes == 4*n, st.Tag == 10+st.Source)
		_, err = mpilib.Recv(r.ctx, c, in[:n], st.Source, st.Tag)
		r.succeeds("Recv", err, are(in[:n], st.Source))
	}
}

func (r *mixedRank) moves(c *mpilib.Comm, n int) {
	me, all := c.Rank(), c.Size()
	out, in := mixedNumbers(me, n*all), make([]int32, 2*n*all*all)
	for root := range all {
		if me == root {
			copy(in, out[:n])
		}
		r.succeeds("Bcast", mpilib.Bcast(r.ctx, c, in[:n], root))
		r.succeeds("Bcast", nil, are(in[:n], root))
		r.succeeds("Gather", mpilib.Gather(r.ctx, c, out[:n], in[:n*all], root))
		for p := 0; p < all && me == root; p++ {
			r.succeeds("Gather", nil, are(in[p*n:][:n], p))
		}
		r.succeeds("Scatter", mpilib.Scatter(r.ctx, c, out, in[:n], root))
		r.succeeds("Scatter", nil, slices.Equal(in[:n], mixedNumbers(root, n*all)[me*n:][:n]))
	}
	counts, displs, end := make([]int, all), make([]int, all), 0
	for p := range all {
		counts[p], displs[p] = p*n, end
		end += counts[p]
	}
	eachFrom := func(call string) {
		for p := range all {
			r.succeeds(call, nil, are(in[displs[p]:][:counts[p]], p))
		}
	}
	mine := mixedNumbers(me, counts[me])
	r.succeeds("Gatherv", mpilib.Gatherv(r.ctx, c, mine, in[:end], counts, displs, 0))
	if me == 0 {
		eachFrom("Gatherv")
	}
	r.succeeds("Scatterv", mpilib.Scatterv(r.ctx, c, in[:end], counts, displs, mine, 0))
	r.succeeds("Scatterv", nil, are(mine, me))
	r.succeeds("Allgather", mpilib.Allgather(r.ctx, c, out[:n], in[:n*all]))
	for p := range all {
		r.succeeds("Allgather", nil, are(in[p*n:][:n], p))
	}
	r.succeeds("Allgatherv", mpilib.Allgatherv(r.ctx, c, mine, in[:end], counts, displs))
	eachFrom("Allgatherv")
	r.succeeds("Alltoall", mpilib.Alltoall(r.ctx, c, out, in[:n*all]))
	for p := range all {
		r.succeeds("Alltoall", nil, slices.Equal(in[p*n:][:n], mixedNumbers(p, n*all)[me*n:][:n]))
	}
	sent := slices.Clone(counts) // rank p gets p times n from each
	for p := range all {
		counts[p], displs[p] = me*n, p*me*n
	}
	r.succeeds("Alltoallv", mpilib.Alltoallv(r.ctx, c, out, sent, make([]int, all), in, counts, displs))
	eachFrom("Alltoallv")
	r.succeeds("Barrier", mpilib.Barrier(r.ctx, c))
}

func (r *mixedRank) reductions(c *mpilib.Comm, n int) {
	me, all := c.Rank(), c.Size()
	out, in := mixedNumbers(me, n*all), make([]int32, n*all)
	sum := func(ranks, of, from, n int) []int32 { // of numbers from a place on, of so many ranks whose sum is known
		sums := make([]int32, n)
		for i := range sums {
			sums[i] = int32(ranks*1000 + of*((from+i)%1000))
		}
		return sums
	}
	ranks := all * (all - 1) / 2
	for root := range all {
		r.succeeds("Reduce", mpilib.Reduce(r.ctx, c, out[:n], in[:n], mpilib.Sum, root))
		r.succeeds("Reduce", nil, me != root || slices.Equal(in[:n], sum(ranks, all, 0, n)))
	}
	r.succeeds("Allreduce", mpilib.Allreduce(r.ctx, c, out[:n], in[:n], mpilib.Sum))
	r.succeeds("Allreduce", nil, slices.Equal(in[:n], sum(ranks, all, 0, n)))
	greatest, set, is := []float64{-1}, []int64{0}, []bool{false}
	r.succeeds("Max", mpilib.Allreduce(r.ctx, c, []float64{float64(me) / 2}, greatest, mpilib.Max))
	r.succeeds("BXor", mpilib.Allreduce(r.ctx, c, []int64{1 << me}, set, mpilib.BXor))
	r.succeeds("LOr", mpilib.Allreduce(r.ctx, c, []bool{me == all-1}, is, mpilib.LOr))
	r.succeeds("Allreduce", nil, greatest[0] == float64(all-1)/2, set[0] == 1<<all-1, is[0])
	r.minloc(c)
	r.succeeds("ReduceScatterBlock", mpilib.ReduceScatterBlock(r.ctx, c, out, in[:n], mpilib.Sum))
	r.succeeds("ReduceScatterBlock", nil, slices.Equal(in[:n], sum(ranks, all, me*n, n)))
	if all > 1 { // the last rank gets 2 n, the first none
		blocks := slices.Repeat([]int{n}, all)
		blocks[0], blocks[all-1] = 0, 2*n
		r.succeeds("ReduceScatter", mpilib.ReduceScatter(r.ctx, c, out, in[:blocks[me]], blocks, mpilib.Sum))
		r.succeeds("ReduceScatter", nil, slices.Equal(in[:blocks[me]], sum(ranks, all, (me-1)*n, blocks[me])))
	}
	r.succeeds("Scan", mpilib.Scan(r.ctx, c, out[:n], in[:n], mpilib.Sum))
	r.succeeds("Scan", nil, slices.Equal(in[:n], sum(me*(me+1)/2, me+1, 0, n)))
	r.succeeds("Exscan", mpilib.Exscan(r.ctx, c, out[:n], in[:n], mpilib.Sum))
	r.succeeds("Exscan", nil, me == 0 || slices.Equal(in[:n], sum(me*(me-1)/2, me, 0, n)))
	_, err := mpilib.Iallreduce(c, out[:n], in[:n], mpilib.Sum).Wait(r.ctx)
	r.succeeds("Iallreduce", err, slices.Equal(in[:n], sum(ranks, all, 0, n)))
}

// minloc reduces pairs that C has a named type for.
func (r *mixedRank) minloc(c *mpilib.Comm) {
	type doubleInt struct {
		Value float64
		Rank  int32
		_     int32
	}
	minloc, err := mpilib.ReductionNamed("MPI_MINLOC")
	r.succeeds("ReductionNamed", err)
	pair, err := mpilib.TypeNamed("MPI_DOUBLE_INT")
	r.succeeds("TypeNamed", err)
	mine, least := []doubleInt{{Value: -float64(c.Rank() % 2), Rank: int32(c.Rank())}}, make([]doubleInt, 1)
	err = mpilib.AllreduceParts(c, mpilib.PartAs(mine, 1, pair), mpilib.PartAs(least, 1, pair), minloc).Call(r.ctx)
	r.succeeds("Minloc", err, c.Size() == 1 || least[0] == doubleInt{Value: -1, Rank: 1})
}

func (r *mixedRank) communicators(world *mpilib.Comm) {
	same, err := world.Dup(r.ctx)
	r.succeeds("Dup", err)
	r.everything(same, 10)
	colour := 0
	if world.Rank()%3 == 0 {
		colour = 1
	}
	part, err := same.Split(r.ctx, colour, -world.Rank())
	r.succeeds("Split", err)
	r.everything(part, 100)
	r.succeeds("Free", part.Free())
	colour = 1
	if world.Rank() == 0 {
		colour = mpilib.Undefined
	}
	part, err = same.Split(r.ctx, colour, 0)
	r.succeeds("Split", err, (part == nil) == (world.Rank() == 0))
	if part != nil {
		r.succeeds("Free", part.Free())
	}
	me, size := world.Rank(), world.Size()
	left, right, in := (me+size-1)%size, (me+1)%size, make([]int32, 2)
	part, err = same.CartCreate(r.ctx, []int{size}, []bool{true}, false)
	r.succeeds("CartCreate", err)
	err = mpilib.NeighborAllgather(r.ctx, part, []int32{int32(me)}, in)
	r.succeeds("NeighborAllgather", err, slices.Equal(in, []int32{int32(left), int32(right)}))
	err = mpilib.NeighborAlltoall(r.ctx, part, []int32{int32(2 * me), int32(2*me + 1)}, in)
	r.succeeds("NeighborAlltoall", err, int(in[0]+in[1]) == 2*left+1+2*right)
	r.succeeds("Free", part.Free())
	r.succeeds("Free", same.Free())
}

// errors receives into memory that is too short, which harms nothing that follows.
func (r *mixedRank) errors(c *mpilib.Comm) {
	right, left := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	sent := mpilib.Isend(c, make([]int32, 2), right, 20)
	if _, err := mpilib.Recv(r.ctx, c, make([]int32, 1), left, 20); !errors.Is(err, mpilib.ErrTruncate) {
		r.Fatalf("2 numbers into 1: %v", err)
	}
	_, err := sent.Wait(r.ctx)
	r.succeeds("Isend", err)
	r.succeeds("Barrier", mpilib.Barrier(r.ctx, c))
}

// types passes on elements of types that match, and of such that do not.
func (r *mixedRank) types(c *mpilib.Comm) {
	for i, exchange := range []func(*mpilib.Comm, int) error{
		exchanged[byte], exchanged[byte], exchanged[uint8], exchanged[int8], exchanged[int16], exchanged[int32], exchanged[uint32], exchanged[int], exchanged[int64], exchanged[int64],
		exchanged[uint], exchanged[int], exchanged[float32], exchanged[float64], exchanged[bool], exchanged[complex128], exchanged[int32], exchanged[float64],
	} {
		r.succeeds(fmt.Sprintf("type %d", i), exchange(c, 30+i))
	}
	for tag, err := range map[int]error{60: exchange[float32, int32](c, 60), 61: exchange[uint32, int32](c, 61)} {
		if !errors.Is(err, mpilib.ErrSignature) {
			r.Fatalf("tag %d: %v", tag, err)
		}
	}
	same, err := c.Dup(r.ctx) // in which the ranks are in different calls
	r.succeeds("Dup", err)
	if err := mpilib.Barrier(r.ctx, same); !errors.Is(err, mpilib.ErrMismatch) {
		r.Fatalf("Barrier and Bcast: %v", err)
	}
}

func exchanged[T mpilib.Elem](c *mpilib.Comm, tag int) error { return exchange[T, T](c, tag) }

// exchange passes four elements on.
func exchange[Out, In mpilib.Elem](c *mpilib.Comm, tag int) error {
	_, err := mpilib.Sendrecv(context.Background(), c, make([]Out, 4), (c.Rank()+1)%c.Size(), tag, make([]In, 4), (c.Rank()+c.Size()-1)%c.Size(), tag)
	return err
}
