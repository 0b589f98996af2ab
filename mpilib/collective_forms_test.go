package mpilib

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/isthmus-grid/isthmus/mpilib/internal/calls"
)

// A deed is one collective call of this rank, in its three variants, and its expected result.
type deed struct {
	name    string
	call    func(ctx context.Context) error
	start   func() *Request
	prepare func() *Persistent
	fill    func()       // sets the buffers before
	check   func() error // checks them after
}

// deeds returns every collective call, each with separate buffers. Blocks have n elements, those of
// the calls with counts (rank+salt)%3 more; contents depend on salt.
func deeds(c *Comm, n, salt int) []deed {
	p, me := c.Size(), c.Rank()
	root := salt % p
	word := func(r, i int) int64 { return int64(salt*1000000 + r*1000 + i) }
	vector := func(r, from, n int) []int64 {
		v := make([]int64, n)
		for i := range v {
			v[i] = word(r, from+i)
		}
		return v
	}
	f := func(r, i int) affine { return affine{uint64(2 + salt + r + i), uint64(3*r + i + 1)} }
	maps := func(r, n int) []affine {
		v := make([]affine, n)
		for i := range v {
			v[i] = f(r, i)
		}
		return v
	}
	composed := func(first, end, n int) []affine {
		v := maps(first, n)
		for i := range v {
			for r := first + 1; r < end; r++ {
				g := f(r, i)
				v[i] = affine{v[i].A * g.A % prime, (v[i].A*g.B + v[i].B) % prime}
			}
		}
		return v
	}
	counts, displs := make([]int, p), make([]int, p)
	total := 0
	for r := range counts {
		counts[r], displs[r] = n+(r+salt)%3, total+r // with a gap between blocks
		total += counts[r]
	}
	room := total + p
	var all []deed
	add := func(name string, fill func(), check func() error, call func(context.Context) error, start func() *Request, prepare func() *Persistent) {
		all = append(all, deed{name, call, start, prepare, fill, check})
	}

	add("Barrier", func() {}, func() error { return nil },
		func(ctx context.Context) error { return Barrier(ctx, c) }, func() *Request { return Ibarrier(c) }, func() *Persistent { return BarrierInit(c) })

	buf := make([]int64, n)
	add("Bcast", func() {
		clear(buf)
		if me == root {
			copy(buf, vector(root, 0, n))
		}
	}, func() error { return equal("Bcast", buf, vector(root, 0, n)) },
		func(ctx context.Context) error { return Bcast(ctx, c, buf, root) },
		func() *Request { return Ibcast(c, buf, root) }, func() *Persistent { return BcastInit(c, buf, root) })

	part := make([]int64, n)
	add("Bcast of Parts", func() {
		clear(part)
		if me == root {
			copy(part, vector(root, 0, n))
		}
	}, func() error { return equal("Bcast of Parts", part, vector(root, 0, n)) },
		func(ctx context.Context) error { return c.Bcast(ctx, PartOf(part), root) },
		func() *Request { return c.Ibcast(PartOf(part), root) }, func() *Persistent { return c.BcastInit(PartOf(part), root) })

	mine := maps(me, n)
	sum := make([]affine, n)
	add("Reduce", func() { clear(sum) }, func() error {
		if me != root {
			return equal("Reduce elsewhere", sum, make([]affine, n))
		}
		return equal("Reduce", sum, composed(0, p, n))
	}, func(ctx context.Context) error { return Reduce(ctx, c, mine, sum, compose, root) },
		func() *Request { return Ireduce(c, mine, sum, compose, root) },
		func() *Persistent { return ReduceInit(c, mine, sum, compose, root) })

	place := make([]affine, n)
	add("Allreduce in place", func() { copy(place, mine) }, func() error { return equal("Allreduce", place, composed(0, p, n)) },
		func(ctx context.Context) error { return Allreduce(ctx, c, place, place, compose) },
		func() *Request { return Iallreduce(c, place, place, compose) },
		func() *Persistent { return AllreduceInit(c, place, place, compose) })

	upTo := make([]affine, n)
	add("Scan", func() { clear(upTo) }, func() error { return equal("Scan", upTo, composed(0, me+1, n)) },
		func(ctx context.Context) error { return Scan(ctx, c, mine, upTo, compose) },
		func() *Request { return Iscan(c, mine, upTo, compose) }, func() *Persistent { return ScanInit(c, mine, upTo, compose) })

	before := make([]affine, n)
	add("Exscan in place", func() { copy(before, mine) }, func() error {
		if me == 0 {
			return equal("Exscan at rank 0", before, mine)
		}
		return equal("Exscan", before, composed(0, me, n))
	}, func(ctx context.Context) error { return Exscan(ctx, c, before, before, compose) },
		func() *Request { return Iexscan(c, before, before, compose) },
		func() *Persistent { return ExscanInit(c, before, before, compose) })

	long, share := maps(me, total), make([]affine, counts[me])
	first := displs[me] - me
	add("ReduceScatter", func() { clear(share) }, func() error {
		return equal("ReduceScatter", share, composed(0, p, total)[first:first+counts[me]])
	}, func(ctx context.Context) error { return ReduceScatter(ctx, c, long, share, counts, compose) },
		func() *Request { return IreduceScatter(c, long, share, counts, compose) },
		func() *Persistent { return ReduceScatterInit(c, long, share, counts, compose) })

	whole := maps(me, n*p)
	add("ReduceScatterBlock in place", func() { copy(whole, maps(me, n*p)) }, func() error {
		return equal("ReduceScatterBlock", whole[:n], composed(0, p, n*p)[me*n:][:n])
	}, func(ctx context.Context) error { return ReduceScatterBlock(ctx, c, whole, whole[:n], compose) },
		func() *Request { return IreduceScatterBlock(c, whole, whole[:n], compose) },
		func() *Persistent { return ReduceScatterBlockInit(c, whole, whole[:n], compose) })

	gathered := func(have []int64, at int) error {
		for r := range p {
			if err := equal(fmt.Sprintf("block %d", r), have[r*n:][:n], vector(r, at, n)); err != nil {
				return err
			}
		}
		return nil
	}
	rows, one := make([]int64, n*p), vector(me, 5, n)
	add("Gather", func() { clear(rows) }, func() error {
		if me != root {
			return nil
		}
		return gathered(rows, 5)
	}, func(ctx context.Context) error { return Gather(ctx, c, one, rows, root) },
		func() *Request { return Igather(c, one, rows, root) }, func() *Persistent { return GatherInit(c, one, rows, root) })

	table := make([]int64, n*p)
	add("Allgather in place", func() { clear(table); copy(table[me*n:], vector(me, 6, n)) }, func() error { return gathered(table, 6) },
		func(ctx context.Context) error { return Allgather(ctx, c, table[me*n:][:n], table) },
		func() *Request { return Iallgather(c, table[me*n:][:n], table) },
		func() *Persistent { return AllgatherInit(c, table[me*n:][:n], table) })

	ragged := func(have []int64, at int) error {
		for r := range p {
			if err := equal(fmt.Sprintf("block %d", r), have[displs[r]:][:counts[r]], vector(r, at, counts[r])); err != nil {
				return err
			}
			if have[displs[r]+counts[r]] != 0 {
				return fmt.Errorf("the gap behind block %d was written to", r)
			}
		}
		return nil
	}
	lines, oneLine := make([]int64, room), vector(me, 7, counts[me])
	add("Gatherv", func() { clear(lines) }, func() error {
		if me != root {
			return nil
		}
		return ragged(lines, 7)
	}, func(ctx context.Context) error { return Gatherv(ctx, c, oneLine, lines, counts, displs, root) },
		func() *Request { return Igatherv(c, oneLine, lines, counts, displs, root) },
		func() *Persistent { return GathervInit(c, oneLine, lines, counts, displs, root) })

	text := make([]int64, room)
	own := text[displs[me]:][:counts[me]]
	add("Allgatherv in place", func() { clear(text); copy(own, vector(me, 8, counts[me])) }, func() error { return ragged(text, 8) },
		func(ctx context.Context) error { return Allgatherv(ctx, c, own, text, counts, displs) },
		func() *Request { return Iallgatherv(c, own, text, counts, displs) },
		func() *Persistent { return AllgathervInit(c, own, text, counts, displs) })

	got := make([]int64, n)
	add("Scatter", func() { clear(got) }, func() error { return equal("Scatter", got, vector(root, me*n, n)) },
		func(ctx context.Context) error { return Scatter(ctx, c, vector(root, 0, n*p), got, root) },
		func() *Request { return Iscatter(c, vector(root, 0, n*p), got, root) },
		func() *Persistent { return ScatterInit(c, vector(root, 0, n*p), got, root) })

	gotLine := make([]int64, counts[me])
	add("Scatterv", func() { clear(gotLine) }, func() error { return equal("Scatterv", gotLine, vector(root, displs[me], counts[me])) },
		func(ctx context.Context) error {
			return Scatterv(ctx, c, vector(root, 0, room), counts, displs, gotLine, root)
		},
		func() *Request { return Iscatterv(c, vector(root, 0, room), counts, displs, gotLine, root) },
		func() *Persistent { return ScattervInit(c, vector(root, 0, room), counts, displs, gotLine, root) })

	turned := make([]int64, n*p)
	add("Alltoall in place", func() { copy(turned, vector(me, 0, n*p)) }, func() error {
		for r := range p {
			if err := equal("Alltoall", turned[r*n:][:n], vector(r, me*n, n)); err != nil {
				return err
			}
		}
		return nil
	}, func(ctx context.Context) error { return Alltoall(ctx, c, turned, turned) },
		func() *Request { return Ialltoall(c, turned, turned) }, func() *Persistent { return AlltoallInit(c, turned, turned) })

	// Every rank sends as many elements to rank r as r gathers above.
	outs, ins := vector(me, 0, room), make([]int64, p*counts[me])
	inCounts, inDispls := slices.Repeat([]int{counts[me]}, p), make([]int, p)
	for r := range inDispls {
		inDispls[r] = r * counts[me]
	}
	add("Alltoallv", func() { clear(ins) }, func() error {
		for r := range p {
			if err := equal("Alltoallv", ins[inDispls[r]:][:counts[me]], vector(r, displs[me], counts[me])); err != nil {
				return err
			}
		}
		return nil
	}, func(ctx context.Context) error {
		return Alltoallv(ctx, c, outs, counts, displs, ins, inCounts, inDispls)
	},
		func() *Request { return Ialltoallv(c, outs, counts, displs, ins, inCounts, inDispls) },
		func() *Persistent { return AlltoallvInit(c, outs, counts, displs, ins, inCounts, inDispls) })

	blocksOf := func(b []int64) (parts []Part) {
		for r := range p {
			parts = append(parts, PartOf(b[r*n:][:n]))
		}
		return parts
	}
	swapped := make([]int64, n*p)
	add("Alltoallw in place", func() { copy(swapped, vector(me, 9, n*p)) }, func() error {
		for r := range p {
			if err := equal("Alltoallw", swapped[r*n:][:n], vector(r, 9+me*n, n)); err != nil {
				return err
			}
		}
		return nil
	}, func(ctx context.Context) error { return Alltoallw(ctx, c, blocksOf(swapped), blocksOf(swapped)) },
		func() *Request { return Ialltoallw(c, blocksOf(swapped), blocksOf(swapped)) },
		func() *Persistent { return AlltoallwInit(c, blocksOf(swapped), blocksOf(swapped)) })

	return append(all, partDeeds(c, n, root, vector)...)
}

// partDeeds returns the calls of the methods that transfer Parts in blocks.
func partDeeds(c *Comm, n, root int, vector func(r, from, n int) []int64) (all []deed) {
	p, me := c.Size(), c.Rank()
	gathered := func(what string, rows []int64, at int) func() error {
		return func() error {
			for r := range p {
				if err := equal(what, rows[r*n:][:n], vector(r, at, n)); err != nil {
					return err
				}
			}
			return nil
		}
	}
	atRoot := func(check func() error) func() error {
		if me != root {
			return func() error { return nil }
		}
		return check
	}
	cut := func(b []int64) (parts []Part) {
		for r := range p {
			parts = append(parts, PartOf(b[r*n:][:n]))
		}
		return parts
	}
	one, wide := PartOf(vector(me, 11, n)), vector(root, 12, n*p)
	a, b, d, e, f, g, h := make([]int64, n*p), make([]int64, n*p), make([]int64, n*p), make([]int64, n*p), make([]int64, n), make([]int64, n), make([]int64, n*p)
	scattered := func(what string, got []int64) func() error {
		return func() error { return equal(what, got, vector(root, 12+me*n, n)) }
	}
	turns := vector(me, 13, n*p)
	return []deed{
		{"Gather of Parts", func(ctx context.Context) error { return c.Gather(ctx, one, PartOf(a), root) },
			func() *Request { return c.Igather(one, PartOf(a), root) }, func() *Persistent { return c.GatherInit(one, PartOf(a), root) },
			func() { clear(a) }, atRoot(gathered("Gather of Parts", a, 11))},
		{"Gatherv of Parts", func(ctx context.Context) error { return c.Gatherv(ctx, one, cut(b), root) },
			func() *Request { return c.Igatherv(one, cut(b), root) }, func() *Persistent { return c.GathervInit(one, cut(b), root) },
			func() { clear(b) }, atRoot(gathered("Gatherv of Parts", b, 11))},
		{"Allgather of Parts", func(ctx context.Context) error { return c.Allgather(ctx, one, PartOf(d)) },
			func() *Request { return c.Iallgather(one, PartOf(d)) }, func() *Persistent { return c.AllgatherInit(one, PartOf(d)) },
			func() { clear(d) }, gathered("Allgather of Parts", d, 11)},
		{"Allgatherv of Parts", func(ctx context.Context) error { return c.Allgatherv(ctx, one, cut(e)) },
			func() *Request { return c.Iallgatherv(one, cut(e)) }, func() *Persistent { return c.AllgathervInit(one, cut(e)) },
			func() { clear(e) }, gathered("Allgatherv of Parts", e, 11)},
		{"Scatter of Parts", func(ctx context.Context) error { return c.Scatter(ctx, PartOf(wide), PartOf(f), root) },
			func() *Request { return c.Iscatter(PartOf(wide), PartOf(f), root) },
			func() *Persistent { return c.ScatterInit(PartOf(wide), PartOf(f), root) },
			func() { clear(f) }, scattered("Scatter of Parts", f)},
		{"Scatterv of Parts", func(ctx context.Context) error { return c.Scatterv(ctx, cut(wide), PartOf(g), root) },
			func() *Request { return c.Iscatterv(cut(wide), PartOf(g), root) },
			func() *Persistent { return c.ScattervInit(cut(wide), PartOf(g), root) },
			func() { clear(g) }, scattered("Scatterv of Parts", g)},
		{"Alltoall of Parts", func(ctx context.Context) error { return c.Alltoall(ctx, PartOf(turns), PartOf(h)) },
			func() *Request { return c.Ialltoall(PartOf(turns), PartOf(h)) }, func() *Persistent { return c.AlltoallInit(PartOf(turns), PartOf(h)) },
			func() { clear(h) }, func() error {
				for r := range p {
					if err := equal("Alltoall of Parts", h[r*n:][:n], vector(r, 13+me*n, n)); err != nil {
						return err
					}
				}
				return nil
			}},
	}
}

// after adds the name of the failed deed.
func (d deed) after(form string, err error) error {
	if err == nil {
		err = d.check()
	}
	if err != nil {
		return fmt.Errorf("%s, %s: %w", d.name, form, err)
	}
	return nil
}

// MPI-4.1, sections 6.3 to 6.11: every collective call has the specified result, also in place.
func TestStandard_6_Blocking(t *testing.T) {
	sizes(t, func(t *testing.T, p int) {
		standardWorld(t, p, func(ctx context.Context, c *Comm) error {
			for salt, n := range either([]int{3, 0, 1000}, []int{3, 0, 1000, 17}) {
				for _, d := range deeds(c, n, salt) {
					d.fill()
					if err := d.after("blocking", d.call(ctx)); err != nil {
						return err
					}
				}
			}
			return nil
		})
	})
}

// MPI-4.1, section 6.12: several nonblocking calls may be pending on one communicator, with
// blocking ones and messages, and complete in any order.
func TestStandard_6_12_Nonblocking(t *testing.T) {
	sizes(t, func(t *testing.T, p int) {
		standardWorld(t, p, func(ctx context.Context, c *Comm) error {
			right, left := (c.Rank()+1)%p, (c.Rank()+p-1)%p
			for salt, n := range []int{2, 3000} {
				var requests []*Request
				var started []deed
				var tokens [][]int
				for i, d := range deeds(c, n, salt) {
					d.fill()
					requests, started = append(requests, d.start()), append(started, d)
					token := []int{0}
					tokens = append(tokens, token)
					requests = append(requests, Irecv(c, token, left, i), Isend(c, []int{i + 1}, right, i))
				}
				for _, d := range deeds(c, 5, salt+1) { // meanwhile
					d.fill()
					if err := d.after("blocking meanwhile", d.call(ctx)); err != nil {
						return err
					}
				}
				if err := finishAnyhow(ctx, requests, uint64(c.Rank()+salt)); err != nil {
					return err
				}
				for i, d := range started {
					if err := d.after("nonblocking", nil); err != nil {
						return err
					}
					if tokens[i][0] != i+1 {
						return fmt.Errorf("message %d brought %d", i, tokens[i][0])
					}
				}
			}
			return nil
		})
	})
}

// finishAnyhow completes the requests by different calls.
func finishAnyhow(ctx context.Context, requests []*Request, seed uint64) error {
	random := rand.New(rand.NewPCG(seed, 6))
	for left := len(requests); left > 0; {
		switch random.IntN(4) {
		case 0:
			i, _, err := Waitany(ctx, requests...)
			if err != nil || i == Undefined {
				return fmt.Errorf("Waitany: request %d, %w", i, err)
			}
			requests[i] = nil
			left--
		case 1:
			some, _, err := Waitsome(ctx, requests...)
			if err != nil {
				return err
			}
			for _, i := range some {
				requests[i] = nil
			}
			left -= len(some)
		case 2:
			i := random.IntN(len(requests))
			if requests[i] == nil {
				continue
			}
			if st, err := requests[i].Wait(ctx); err != nil || requests[i].transfer().call != "" && st != emptyStatus {
				return fmt.Errorf("%v: %+v, %w", requests[i].transfer(), st, err)
			}
			requests[i] = nil
			left--
		case 3:
			if i, _, done, err := Testany(requests...); err != nil {
				return err
			} else if done {
				requests[i] = nil
				left--
			}
		}
	}
	return nil
}

// MPI-4.1, section 6.13: persistent calls are started any number of times, and in an order
// that may differ between ranks.
func TestStandard_6_13_Persistent(t *testing.T) {
	sizes(t, func(t *testing.T, p int) {
		standardWorld(t, p, func(ctx context.Context, c *Comm) error {
			all := deeds(c, 7, 2)
			var prepared []*Persistent
			for _, d := range all {
				prepared = append(prepared, d.prepare())
			}
			for round := range 2 {
				order := rand.New(rand.NewPCG(uint64(c.Rank()), uint64(round))).Perm(len(all))
				for _, i := range order {
					all[i].fill()
					if err := prepared[i].Start(); err != nil {
						return err
					}
				}
				slices.Reverse(order)
				for _, i := range order {
					_, err := prepared[i].Wait(ctx)
					if err := all[i].after(fmt.Sprintf("start %d", round), err); err != nil {
						return err
					}
				}
				if err := Barrier(ctx, c); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// MPI-4.1, section 6.12: nonblocking calls can be neither cancelled nor, while they are active,
// started again.
func TestStandard_6_12_NoCancel(t *testing.T) {
	standardWorld(t, 2, func(ctx context.Context, c *Comm) error {
		r, q := Ibarrier(c), BarrierInit(c)
		if c.Rank() == 1 { // it enters the second barrier when the other has checked
			_, err := r.Wait(ctx)
			_, recvErr := Recv(ctx, c, []int{0}, 0, 0)
			err = errors.Join(err, recvErr, q.Start())
			_, waitErr := q.Wait(ctx)
			return errors.Join(err, waitErr)
		}
		err := errors.Join(expect(r.Cancel(), errNoCancel, "Ibarrier on world"), q.Start(),
			expect(q.Start(), ErrActive, "BarrierInit on world"), expect(q.Cancel(), errNoCancel))
		if _, done, _ := q.Test(); done {
			err = errors.Join(err, errors.New("a barrier is over before all have come to it"))
		}
		_, waitErr := r.Wait(ctx)
		err = errors.Join(err, waitErr, Send(ctx, c, []int{1}, 1, 0))
		_, waitErr = q.Wait(ctx)
		return errors.Join(err, waitErr)
	})
}

// A cancelled call fails on this rank and releases the buffer; a persistent one cannot be started
// again, since its messages might match those of the earlier start.
func TestGivenUp(t *testing.T) {
	standardWorld(t, 2, func(ctx context.Context, c *Comm) error {
		d, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		gone, cancel := context.WithCancel(ctx)
		cancel()
		if c.Rank() == 0 {
			buf := make([]int, 1<<20)
			r, p := Ibcast(d, buf, 1), started(BcastInit(d, buf[:10], 1))
			_, err := r.Wait(gone)
			_, again := r.Wait(ctx)
			_, prepared := p.Wait(gone)
			_, third := started(p).Wait(ctx)
			clear(buf) // the race detector reports a concurrent write
			return errors.Join(expect(err, context.Canceled, "Ibcast on world dup"), expect(again, context.Canceled),
				expect(prepared, context.Canceled), expect(third, context.Canceled, "make another request"), Send(ctx, c, buf[:1], 1, 0))
		}
		_, err = Recv(ctx, c, make([]int, 1), 0, 0)
		return err
	})
}

// A request returns the error in its arguments, and the ranks stay in step.
func TestBadCollectiveArguments(t *testing.T) {
	standardWorld(t, 3, func(ctx context.Context, c *Comm) error {
		buf, one := make([]int, 9), make([]int, 1)
		me := c.Rank()
		var errs []error
		for _, tc := range []struct {
			what string
			want error
			op   *calls.Operation
		}{
			{"root 3", ErrRank, calls.Bcast(one, 3)},
			{"root -3", ErrRank, calls.Gather(one, buf, Root)},
			{"string", ErrType, calls.Bcast([]string{"x"}, 0)},
			{"nil", ErrType, calls.Allreduce(one, one, Op[int](nil).reduction())},
			{"9 bytes", ErrCount, calls.Allgather(make([]byte, 1), make([]byte, 9))},
			{"counts", ErrCount, calls.Allgatherv(one, buf, []int{1}, []int{0})},
			{"outside", ErrCount, calls.Alltoallv(buf, []int{1, 1, 1}, []int{0, 0, 9}, make([]int, 3), []int{1, 1, 1}, []int{0, 1, 2})},
			{"32 bytes", ErrCount, calls.Scan(one, buf[:4], Op[int](Sum[int]).reduction())},
			{"send and recv share memory", ErrArg, calls.Scan(buf[:4], buf[1:5], Op[int](Sum[int]).reduction())},
			{"send and recv share memory", ErrArg, calls.Allreduce(buf[:4], buf[1:5], Op[int](Sum[int]).reduction())},
			{"send and recv share memory", ErrArg, calls.Allgather(buf[(me+1)%3*3:][:3], buf)},
			{"send and recv share memory", ErrArg, calls.Allgatherv(buf[(me+1)%3*3:][:3], buf, []int{3, 3, 3}, []int{0, 3, 6})},
			{"send and recv share memory", ErrArg, calls.Alltoall(buf[:6], buf[3:])},
			{"send and recv share memory", ErrArg, calls.ReduceScatterBlock(buf[:6], buf[5:7], Op[int](Sum[int]).reduction())},
		} {
			errs = append(errs, expect(blocking(ctx, c, tc.op), tc.want, tc.op.Name+" on world"),
				expect(second(nonblocking(c, tc.op).Wait(ctx)), tc.want, "on world, rank"),
				expect(second(started(persistent(c, tc.op)).Wait(ctx)), tc.want, tc.op.Name+"Init on world"))
		}
		errs = append(errs, Barrier(ctx, c))
		for _, op := range []*calls.Operation{calls.Gather(buf[3:6], buf, 0), calls.Scatter(buf, buf[3:6], 0)} { // at the root only
			wait, cancel := context.WithCancel(ctx)
			if me == 0 {
				errs = append(errs, expect(blocking(ctx, c, op), ErrArg, "send and recv share memory"))
				errs = append(errs, Send(ctx, c, one, 1, 0), Send(ctx, c, one, 2, 0))
			} else {
				r := nonblocking(c, op)
				errs = append(errs, second(Recv(ctx, c, one, 0, 0)))
				cancel()
				r.Wait(wait) // the root has not received its message, or has not sent one
			}
			cancel()
		}
		return errors.Join(errs...)
	})
}

// MPI-4.1, section 6.11: intercommunicators do not support scans. Other calls are started and
// prepared there as elsewhere.
func TestStandard_6_12_Inter(t *testing.T) {
	interWorld(t, func(ctx context.Context, s sideOf) error {
		c := s.inter
		one := []int{1}
		err := errors.Join(expect(Scan(ctx, c, one, []int{0}, Sum), ErrIntercomm, "call Merge"), expect(second(Iexscan(c, one, []int{0}, Sum).Wait(ctx)), ErrIntercomm),
			expect(Allreduce(ctx, c, one, one, Sum), ErrArg, "nothing is in place"))
		sums, rows := [3][]int{{0}, {0}, {0}}, make([]int, c.RemoteSize())
		prepared := AllreduceInit(c, one, sums[2], Sum)
		requests := []*Request{Iallreduce(c, one, sums[0], Sum), Ibarrier(c), Iallgather(c, []int{c.Rank()}, rows), Iallreduce(c, one, sums[1], Sum)}
		for range 2 {
			_, startErr := started(prepared).Wait(ctx)
			err = errors.Join(err, startErr)
		}
		_, waitErr := Waitall(ctx, requests...)
		for _, sum := range sums {
			err = errors.Join(err, equal("Iallreduce", sum, []int{c.RemoteSize()}))
		}
		for r, v := range rows {
			err = errors.Join(err, equal("Iallgather", []int{v}, []int{r}))
		}
		return errors.Join(err, waitErr)
	})
}

// MPI-4.1, sections 8.6 to 8.8: neighbourhood collectives in all three variants.
func TestStandard_8_7_NeighbourForms(t *testing.T) {
	standardWorld(t, 6, func(ctx context.Context, c *Comm) error {
		ring, err := c.CartCreate(ctx, []int{6}, []bool{true}, false)
		if err != nil {
			return err
		}
		me, left, right := ring.Rank(), (ring.Rank()+5)%6, (ring.Rank()+1)%6
		send, one := []int{10*me + left, 10*me + right}, []int{100 + me}
		turned, told := []int{10*left + me, 10*right + me}, []int{100 + left, 100 + right}
		ones, at := []int{1, 1}, []int{0, 1}
		got := make([][]int, 5)
		for i := range got {
			got[i] = make([]int, 2)
		}
		parts := func(b []int) []Part { return []Part{PartOf(b[:1]), PartOf(b[1:])} }
		check := func(form string, err error) error {
			for i, want := range [][]int{told, told, turned, turned, turned} {
				err = errors.Join(err, equal(fmt.Sprintf("%s %d", form, i), got[i], want))
				clear(got[i])
			}
			return err
		}
		err = check("blocking", errors.Join(NeighborAllgather(ctx, ring, one, got[0]), NeighborAllgatherv(ctx, ring, one, got[1], ones, at),
			NeighborAlltoall(ctx, ring, send, got[2]), NeighborAlltoallv(ctx, ring, send, ones, at, got[3], ones, at),
			NeighborAlltoallw(ctx, ring, parts(send), parts(got[4]))))
		_, waitErr := Waitall(ctx, IneighborAllgather(ring, one, got[0]), IneighborAllgatherv(ring, one, got[1], ones, at),
			IneighborAlltoall(ring, send, got[2]), IneighborAlltoallv(ring, send, ones, at, got[3], ones, at),
			IneighborAlltoallw(ring, parts(send), parts(got[4])))
		err = errors.Join(err, check("nonblocking", waitErr))
		prepared := []*Persistent{NeighborAllgatherInit(ring, one, got[0]), NeighborAllgathervInit(ring, one, got[1], ones, at),
			NeighborAlltoallInit(ring, send, got[2]), NeighborAlltoallvInit(ring, send, ones, at, got[3], ones, at),
			NeighborAlltoallwInit(ring, parts(send), parts(got[4]))}
		for range 2 {
			waitErr := Startall(prepared...)
			for _, p := range prepared {
				_, err := p.Wait(ctx)
				waitErr = errors.Join(waitErr, err)
			}
			err = errors.Join(err, check("persistent", waitErr))
		}
		return err
	})
}

// Finalize ends calls that other ranks do not enter.
func TestFinalizeEndsCalls(t *testing.T) {
	var r *Request
	TestWorld(t, 2, func(ctx context.Context, c *Comm) error {
		// A rank that has never been linked to the other would wait for its start.
		if err := Barrier(ctx, c); err != nil {
			return err
		}
		if c.Rank() == 0 {
			r = Ibarrier(c)
		}
		return nil
	})
	if _, err := r.Wait(t.Context()); !errors.Is(err, ErrFinalized) {
		t.Errorf("it ended with %v", err)
	}
}
