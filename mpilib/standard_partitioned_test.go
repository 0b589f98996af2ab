package mpilib

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
)

// These tests check chapter 4 of MPI-4.1, partitioned communication.

// partitionSizes are sizes of whole messages in bytes: 0, small ones, and sizes on both sides of
// the limit for eager messages, with 12 partitions and with one.
var partitionSizes = []int{0, 12, 1200, 12 * 20 << 10, 12 * 70 << 10}

// sends and receives create one end of a transfer, call f with it, and free it.
func sends(c *Comm, p Part, n, dst, tag int, f func(s *PartitionedSend) error) error {
	s, err := c.PsendInit(p, n, dst, tag)
	if err != nil {
		return err
	}
	return errors.Join(f(s), s.Free())
}

func receives(c *Comm, p Part, n, src, tag int, f func(r *PartitionedRecv) error) error {
	r, err := c.PrecvInit(p, n, src, tag)
	if err != nil {
		return err
	}
	return errors.Join(f(r), r.Free())
}

// arrived returns when partition i has arrived.
func arrived(ctx context.Context, r *PartitionedRecv, i int) error {
	for {
		ok, err := r.Parrived(i)
		if ok || err != nil {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("partition %d has not arrived: %w", i, ctx.Err())
		}
		runtime.Gosched()
	}
}

// 4.2: each partition is sent when it is released, in any order, and is available when it has
// arrived, before the others; the two ends may have different numbers of them.
func TestStandard_4_2_Partitions(t *testing.T) {
	parallel(t)
	for _, limit := range []int{16 << 20, 64 << 10} {
		standardWorld(t, 2, func(ctx context.Context, c *Comm) error {
			for _, n := range partitionSizes {
				for _, parts := range either([][2]int{{12, 1}, {1, 12}, {6, 4}}, [][2]int{{1, 1}, {4, 4}, {12, 1}, {1, 12}, {4, 3}, {3, 4}, {6, 4}}) {
					if err := partByPart(ctx, c, n, parts[0], parts[1]); err != nil {
						return fmt.Errorf("%d bytes, %d to %d partitions, limit %d: %w", n, parts[0], parts[1], limit, err)
					}
				}
			}
			return nil
		}, WithUnexpectedLimit(limit))
	}
}

func partByPart(ctx context.Context, c *Comm, n, out, in int) error {
	order := rand.New(rand.NewPCG(uint64(n), uint64(100*out+in))).Perm(out) // the same on both ranks
	const rounds = 3
	if c.Rank() == 0 {
		buf := make([]byte, n)
		return sends(c, PartOf(buf), out, 1, 5, func(s *PartitionedSend) error {
			for round := range rounds {
				copy(buf, pattern(n, round))
				if err := s.Start(); err != nil {
					return err
				}
				for _, i := range order {
					if err := errors.Join(fence(ctx, c, 1), s.Pready(i), fence(ctx, c, 1)); err != nil {
						return err
					}
				}
				st, err := s.Wait(ctx)
				if (st != Status{Source: 0, Tag: 5, Count: n, Bytes: n}) || err != nil {
					return fmt.Errorf("%+v, %w", st, err)
				}
			}
			return nil
		})
	}
	buf := make([]byte, n)
	return receives(c, PartOf(buf), in, 0, 5, func(r *PartitionedRecv) error {
		for round := range rounds {
			clear(buf)
			if err := r.Start(); err != nil {
				return err
			}
			given := make([]bool, out)
			for _, i := range order {
				if err := seen(ctx, r, buf, round, given, in); err != nil {
					return fmt.Errorf("round %d, before partition %d: %w", round, i, err)
				}
				given[i] = true
				if err := errors.Join(fence(ctx, c, 0), fence(ctx, c, 0)); err != nil {
					return err
				}
			}
			st, err := r.Wait(ctx)
			if (st != Status{Source: 0, Tag: 5, Count: n, Bytes: n}) || err != nil || !bytes.Equal(buf, pattern(n, round)) {
				return fmt.Errorf("round %d: %+v, %w", round, st, err)
			}
		}
		return nil
	})
}

// seen checks which partitions of the receiver arrive when the given ones of the sender have been
// released, and their contents.
func seen(ctx context.Context, r *PartitionedRecv, buf []byte, round int, given []bool, in int) error {
	n, all := len(buf), pattern(len(buf), round)
	for i := range in {
		low, high := i*n/in, (i+1)*n/in
		complete := true
		for j, is := range given {
			if from, to := j*n/len(given), (j+1)*n/len(given); (from < high && to > low || n == 0) && !is {
				complete = false
			}
		}
		if !complete {
			if ok, err := r.Parrived(i); ok || err != nil {
				return fmt.Errorf("partition %d has arrived and was not given away: %w", i, err)
			}
			continue
		}
		if err := arrived(ctx, r, i); err != nil {
			return err
		}
		if !bytes.Equal(buf[low:high], all[low:high]) {
			return fmt.Errorf("partition %d has arrived and is wrong", i)
		}
	}
	return nil
}

// 4.2.1: requests with equal envelopes match in the order in which they were created, regardless of
// the order in which they are started, also if one is created when the other is already started.
func TestStandard_4_2_1_InitOrder(t *testing.T) {
	parallel(t)
	const count = 5
	eachSize(t, 2, func(ctx context.Context, c *Comm, n int) error {
		orders := rand.New(rand.NewPCG(uint64(n), 1))
		for _, order := range [][]int{orders.Perm(count), orders.Perm(count)} {
			if c.Rank() == 0 {
				if err := sendInOrder(ctx, c, n, order); err != nil {
					return err
				}
				continue
			}
			var all []*PartitionedRecv
			bufs := make([][]byte, count)
			for i := range count {
				bufs[i] = make([]byte, n)
				r, err := PrecvInit(c, bufs[i], 1, 0, 5)
				if err != nil {
					return err
				}
				all = append(all, r)
			}
			for _, i := range orders.Perm(count) {
				if err := all[i].Start(); err != nil {
					return err
				}
			}
			for i, r := range all {
				st, err := r.Wait(ctx)
				if err := errors.Join(err, isPattern(bufs[i], st, n, i), r.Free()); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func sendInOrder(ctx context.Context, c *Comm, n int, order []int) error {
	var all []*PartitionedSend
	for i := range order {
		s, err := PsendInit(c, pattern(n, i), 1, 1, 5)
		if err != nil {
			return err
		}
		all = append(all, s)
	}
	for _, i := range order {
		if err := errors.Join(all[i].Start(), all[i].Pready(0)); err != nil {
			return err
		}
	}
	for _, s := range all {
		if _, err := s.Wait(ctx); err != nil {
			return err
		}
		if err := s.Free(); err != nil {
			return err
		}
	}
	return nil
}

// 4.2.1: partitioned transfers match no others, regardless of their envelopes.
func TestStandard_4_2_1_OnlyPartitioned(t *testing.T) {
	parallel(t)
	standardWorld(t, 2, func(ctx context.Context, c *Comm) error {
		if c.Rank() == 0 {
			return sends(c, PartOf([]int{7}), 1, 1, 5, func(s *PartitionedSend) error {
				if err := errors.Join(s.Start(), s.Pready(0)); err != nil {
					return err
				}
				_, err := s.Wait(ctx)
				return errors.Join(err, Send(ctx, c, []int{8}, 1, 5))
			})
		}
		plain, got := []int{0}, []int{0}
		if _, err := Recv(ctx, c, plain, AnySource, AnyTag); err != nil || plain[0] != 8 {
			return fmt.Errorf("received %v, %w", plain, err)
		}
		return receives(c, PartOf(got), 1, 0, 5, func(r *PartitionedRecv) error {
			if _, there, err := c.Iprobe(AnySource, AnyTag); there || err != nil {
				return fmt.Errorf("a partition was probed: %w", err)
			}
			if err := r.Start(); err != nil {
				return err
			}
			_, err := r.Wait(ctx)
			return errors.Join(err, equal("partitioned", got, []int{7}))
		})
	})
}

// 4.2.2: goroutines release partitions concurrently, as single ones, ranges and lists; each arrives
// once.
func TestStandard_4_2_2_Threads(t *testing.T) {
	parallel(t)
	const parts, rounds = 64, 10
	standardWorld(t, 2, func(ctx context.Context, c *Comm) error {
		peer := 1 - c.Rank()
		out, in := make([]int, 2*parts), make([]int, 2*parts)
		return sends(c, PartOf(out), parts, peer, 5, func(s *PartitionedSend) error {
			return receives(c, PartOf(in), parts/2, peer, 5, func(r *PartitionedRecv) error {
				for round := range rounds {
					if err := errors.Join(r.Start(), s.Start()); err != nil {
						return err
					}
					var threads sync.WaitGroup
					errs := make([]error, 8)
					for i := range errs {
						threads.Go(func() {
							for j := i * 8; j < i*8+8; j++ {
								out[2*j], out[2*j+1] = item(c.Rank(), round, 2*j), item(c.Rank(), round, 2*j+1)
							}
							errs[i] = errors.Join(s.Pready(i*8+3), s.PreadyRange(i*8, i*8+2), s.PreadyList([]int{i*8 + 7, i*8 + 4, i*8 + 6, i*8 + 5}))
						})
					}
					_, err1 := r.Wait(ctx)
					_, err2 := s.Wait(ctx)
					threads.Wait()
					if err := errors.Join(append(errs, err1, err2, equal("in", in, items(peer, round, 2*parts)))...); err != nil {
						return fmt.Errorf("round %d: %w", round, err)
					}
				}
				return nil
			})
		})
	})
}

// 4.2 and 3.5: a started receive makes progress without calls, even if its sender comes later.
func TestStandard_4_2_Progress(t *testing.T) {
	parallel(t)
	eachSize(t, 2, func(ctx context.Context, c *Comm, n int) error {
		if c.Rank() == 0 {
			if err := fence(ctx, c, 1); err != nil { // the receive has been started
				return err
			}
			return sends(c, PartOf(pattern(n, 1)), 1, 1, 5, func(s *PartitionedSend) error {
				if err := errors.Join(s.Start(), s.Pready(0)); err != nil {
					return err
				}
				_, err := s.Wait(ctx)
				return errors.Join(err, Send(ctx, c, []byte{}, 1, 1))
			})
		}
		buf := make([]byte, n)
		return receives(c, PartOf(buf), 1, 0, 5, func(r *PartitionedRecv) error {
			err := errors.Join(r.Start(), fence(ctx, c, 0))
			_, err1 := Recv(ctx, c, []byte{}, 0, 1) // sent after the sender's Wait
			st, err2 := r.Wait(ctx)
			return errors.Join(err, err1, err2, isPattern(buf, st, n, 1))
		})
	})
}

// 4.2: a sender may be several rounds ahead of its receiver, as long as messages are small enough
// to be sent eagerly.
func TestStandard_4_2_RoundsAhead(t *testing.T) {
	parallel(t)
	const rounds = 20
	standardWorld(t, 2, func(ctx context.Context, c *Comm) error {
		buf := make([]int, 6)
		if c.Rank() == 0 {
			return errors.Join(sends(c, PartOf(buf), 3, 1, 5, func(s *PartitionedSend) error {
				for round := range rounds {
					copy(buf, items(0, round, 6))
					if err := errors.Join(s.Start(), s.PreadyRange(0, 2)); err != nil {
						return err
					}
					if _, err := s.Wait(ctx); err != nil {
						return err
					}
				}
				return nil
			}), Send(ctx, c, buf, 1, 1))
		}
		if _, err := Recv(ctx, c, buf, 0, 1); err != nil {
			return err
		}
		return receives(c, PartOf(buf), 2, 0, 5, func(r *PartitionedRecv) error {
			for round := range rounds {
				if err := r.Start(); err != nil {
					return err
				}
				_, err := r.Wait(ctx)
				if err := errors.Join(err, equal("round", buf, items(0, round, 6))); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// 4.2 with chapter 5: partitions of all datatypes. The partitions of the two ends may divide the
// message at different places, also within an element.
func TestStandard_4_2_Datatypes(t *testing.T) {
	parallel(t)
	eachField(t, func(ctx context.Context, c *Comm, seed int, out, in field) error {
		if in.overlaps() {
			return nil
		}
		parts := 1
		if out.count%7 == 0 {
			parts = 7
		}
		if c.Rank() == 0 {
			return sends(c, out.part(), parts, 1, 5, func(s *PartitionedSend) error {
				for range 2 {
					err := s.Start()
					for i := parts - 1; i >= 0; i-- {
						err = errors.Join(err, s.Pready(i))
					}
					if _, err1 := s.Wait(ctx); err != nil || err1 != nil {
						return errors.Join(err, err1)
					}
				}
				return nil
			})
		}
		want, before := in.after(out.message()), bytes.Clone(in.memory)
		n := max(1, in.count%5)
		if in.count%n != 0 {
			n = 1
		}
		return receives(c, in.part(), n, 0, 5, func(r *PartitionedRecv) error {
			for round := range 2 {
				copy(in.memory, before)
				if err := r.Start(); err != nil {
					return err
				}
				if round == 1 {
					for i := range n {
						if err := arrived(ctx, r, i); err != nil {
							return err
						}
					}
					if !bytes.Equal(in.memory, want) {
						return errors.New("all have arrived, and the memory is wrong")
					}
				}
				st, err := r.Wait(ctx)
				if err != nil || st.Bytes != len(out.places) || !bytes.Equal(in.memory, want) {
					return fmt.Errorf("round %d: %+v, %w", round, st, err)
				}
			}
			return nil
		})
	}, WithTypeCheck())
}

// 4.2.1: a sender with fewer elements acts like a shorter message; one with more causes an error,
// as does one of another type if types are checked.
func TestStandard_4_2_1_Sizes(t *testing.T) {
	parallel(t)
	standardWorld(t, 2, func(ctx context.Context, c *Comm) error {
		buf := []int32{9, 9, 9, 9}
		for i, bad := range []error{nil, ErrTruncate, ErrSignature} {
			if c.Rank() == 0 {
				out := []Part{PartOf([]int32{1, 2}), PartOf([]int32{1, 2, 3, 4, 5}), PartOf([]float32{1, 2})}[i]
				s, err := c.PsendInit(out, 1, 1, i)
				if err := errors.Join(err, s.Start(), s.Pready(0)); err != nil {
					return err
				}
				if _, err := s.Wait(ctx); err != nil {
					return err
				}
				continue
			}
			r, err := PrecvInit(c, buf, 4, 0, i)
			if err := errors.Join(err, r.Start()); err != nil {
				return err
			}
			if bad == nil {
				for j := range 4 {
					if err := arrived(ctx, r, j); err != nil {
						return err
					}
				}
			}
			st, err := r.Wait(ctx)
			if bad != nil {
				if err := expect(err, bad, "Wait of a partitioned receive from rank 0 of world"); err != nil {
					return err
				}
			} else if err != nil || st.Count != 2 {
				return fmt.Errorf("%+v, %w", st, err)
			}
		}
		if c.Rank() == 0 {
			return nil
		}
		return equal("buf", buf, []int32{1, 2, 9, 9})
	}, WithTypeCheck())
}

// 4.2, 3.7.3 and 3.9: an inactive request is complete and empty; an active one can be neither
// started nor freed; a partition is released once, and only while active.
func TestStandard_4_2_States(t *testing.T) {
	parallel(t)
	standardWorld(t, 1, func(ctx context.Context, c *Comm) error {
		out, in := []int{1, 2}, []int{0, 0}
		s, err1 := PsendInit(c, out, 2, 0, 5)
		r, err2 := PrecvInit(c, in, 2, 0, 5)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		for range 2 {
			for _, f := range []func() (Status, error){
				func() (Status, error) { return s.Wait(ctx) }, func() (Status, error) { return r.Wait(ctx) },
				func() (Status, error) { st, done, err := s.Test(); return st, wasDone(done, err) },
				func() (Status, error) { st, done, err := r.Test(); return st, wasDone(done, err) },
			} {
				if st, err := f(); st != emptyStatus || err != nil {
					return fmt.Errorf("inactive: %+v, %w", st, err)
				}
			}
			if ok, err := r.Parrived(1); !ok || err != nil {
				return fmt.Errorf("inactive: %t, %w", ok, err)
			}
			if err := errors.Join(expect(s.Pready(0), ErrInactive, "Pready of a partitioned send to rank 0"), s.Start(), r.Start(),
				expect(s.Start(), ErrActive), expect(r.Start(), ErrActive), expect(s.Free(), ErrActive), expect(r.Free(), ErrActive),
				s.Pready(1), expect(s.Pready(1), ErrActive, "given away already"),
				expect(s.Pready(2), ErrArg), expect(s.Pready(-1), ErrArg), expect(s.PreadyRange(1, 0), ErrArg), arrived(ctx, r, 1)); err != nil {
				return err
			}
			if _, err := r.Parrived(2); expect(err, ErrArg) != nil {
				return err
			}
			gone, cancel := context.WithCancel(ctx)
			cancel()
			_, err1 = s.Wait(gone)
			_, err2 = r.Wait(gone)
			_, done1, _ := s.Test()
			_, done2, _ := r.Test()
			if err := errors.Join(expect(err1, context.Canceled, "1 of 2 partitions were never given away"), expect(err2, context.Canceled)); err != nil || done1 || done2 {
				return fmt.Errorf("%t, %t, %w", done1, done2, err)
			}
			if err := s.PreadyList([]int{0}); err != nil { // the round continues
				return err
			}
			_, err1 = s.Wait(ctx)
			_, err2 = r.Wait(ctx)
			if err := errors.Join(err1, err2, equal("in", in, out)); err != nil {
				return err
			}
			clear(in)
		}
		return errors.Join(s.Free(), r.Free(), expect(s.Start(), ErrInactive, "freed"), expect(r.Start(), ErrInactive), expect(r.Free(), ErrInactive))
	})
}

// 4.2 and 3.7.5: partitioned transfers are waited for and tested among others, and have their status there.
func TestStandard_4_2_Requests(t *testing.T) {
	parallel(t)
	standardWorld(t, 1, func(ctx context.Context, c *Comm) error {
		out, in, plain := []int{1, 2}, []int{0, 0}, []int{0}
		return sends(c, PartOf(out), 2, 0, 5, func(s *PartitionedSend) error {
			return receives(c, PartOf(in), 1, 0, 5, func(r *PartitionedRecv) error {
				for round := range 2 {
					if err := errors.Join(s.Start(), r.Start()); err != nil {
						return err
					}
					requests := []*Request{s.Request(), r.Request(), Irecv(c, plain, 0, 1)}
					if _, _, done, err := Testany(requests...); done || err != nil {
						return fmt.Errorf("one is complete, %w", err)
					}
					if err := Send(ctx, c, []int{3}, 0, 1); err != nil {
						return err
					}
					if i, _, err := Waitany(ctx, requests...); i != 2 || err != nil {
						return fmt.Errorf("request %d, %w", i, err)
					}
					out[0] = 10 * round
					if err := s.PreadyRange(0, 1); err != nil {
						return err
					}
					want := Status{Source: 0, Tag: 5, Count: 16, Bytes: 16}
					statuses, err := Waitall(ctx, requests[:2]...)
					if statuses[0] != want || statuses[1].Bytes != 16 || statuses[1].Tag != 5 || err != nil {
						return fmt.Errorf("%+v, %w", statuses, err)
					}
					if err := equal("in", in, out); err != nil {
						return err
					}
				}
				return nil
			})
		})
	})
}

func wasDone(done bool, err error) error {
	if !done && err == nil {
		return errors.New("not done")
	}
	return err
}

// 4.2.1: invalid arguments are detected when the request is created.
func TestStandard_4_2_1_Arguments(t *testing.T) {
	parallel(t)
	standardWorld(t, 1, func(ctx context.Context, c *Comm) error {
		three := make([]int, 3)
		var errs []error
		for _, a := range []struct {
			parts, peer, tag int
			want             error
		}{{0, 0, 1, ErrArg}, {-1, 0, 1, ErrArg}, {MaxPartitions + 1, 0, 1, ErrArg}, {2, 0, 1, ErrCount}, {1, 1, 1, ErrRank}, {1, AnySource, 1, ErrRank},
			{1, 0, AnyTag, ErrTag}} {
			_, err1 := PsendInit(c, three, a.parts, a.peer, a.tag)
			_, err2 := PrecvInit(c, three, a.parts, a.peer, a.tag)
			errs = append(errs, expect(err1, a.want, "PsendInit on world"), expect(err2, a.want, "PrecvInit on world"))
		}
		_, err := PsendInit(c, []string{""}, 1, 0, 1)
		errs = append(errs, expect(err, ErrType))
		c.parted = MaxTag
		_, err = PsendInit(c, three, 3, 0, 1)
		return errors.Join(append(errs, expect(err, ErrContexts, "Dup the communicator"))...)
	})
}

// 3.10 and 4.2: with ProcNull all calls succeed and nothing is transferred.
func TestStandard_4_2_ProcNull(t *testing.T) {
	parallel(t)
	standardWorld(t, 1, func(ctx context.Context, c *Comm) error {
		buf := []int{3}
		return sends(c, PartOf(buf), 1, ProcNull, 5, func(s *PartitionedSend) error {
			return receives(c, PartOf(buf), 1, ProcNull, 5, func(r *PartitionedRecv) error {
				if err := errors.Join(s.Start(), r.Start(), s.Pready(0), arrived(ctx, r, 0)); err != nil {
					return err
				}
				st1, err1 := s.Wait(ctx)
				st2, err2 := r.Wait(ctx)
				if st1 != nullStatus || st2 != nullStatus || buf[0] != 3 {
					return fmt.Errorf("%+v, %+v", st1, st2)
				}
				return errors.Join(err1, err2)
			})
		})
	})
}

// Partitioned transfers cross intercommunicators, and outlive the freeing of theirs.
func TestStandard_4_2_Communicators(t *testing.T) {
	interWorld(t, func(ctx context.Context, s sideOf) error {
		inter, err := s.inter.Dup(ctx)
		if err != nil {
			return err
		}
		rank := inter.Rank()
		var out []*PartitionedSend
		var in []*PartitionedRecv
		var bufs [][]int
		for r := range s.sizes[s.there()] {
			bufs = append(bufs, make([]int, 4))
			to, err1 := PsendInit(inter, items(s.side, 10*rank+r, 4), 2, r, 5)
			from, err2 := PrecvInit(inter, bufs[r], 4, r, 5)
			if err := errors.Join(err1, err2); err != nil {
				return err
			}
			out, in = append(out, to), append(in, from)
		}
		if err := inter.Free(); err != nil {
			return err
		}
		for range 2 {
			for r := range out {
				if err := errors.Join(in[r].Start(), out[r].Start(), out[r].PreadyRange(0, 1)); err != nil {
					return err
				}
			}
			for r := range out {
				_, err1 := in[r].Wait(ctx)
				_, err2 := out[r].Wait(ctx)
				if err := errors.Join(err1, err2, equal("in", bufs[r], items(s.there(), 10*r+rank, 4))); err != nil {
					return err
				}
			}
		}
		for r := range out {
			if err := errors.Join(out[r].Free(), in[r].Free()); err != nil {
				return err
			}
		}
		return nil
	})
}

// A receive that is never matched, or a send that is never released, does not prevent Finalize, and fails then.
func TestPartitionedFinalize(t *testing.T) {
	var left *PartitionedRecv
	TestWorld(t, 1, func(ctx context.Context, c *Comm) (err error) {
		if left, err = PrecvInit(c, []int{1}, 1, 0, 5); err != nil {
			return err
		}
		return left.Start()
	})
	if _, err := left.Wait(t.Context()); !errors.Is(err, ErrFinalized) {
		t.Errorf("got %v", err)
	}
	var request *Request
	TestWorld(t, 1, func(ctx context.Context, c *Comm) error {
		s, err := PsendInit(c, []int{1}, 1, 0, 5)
		if err != nil {
			return err
		}
		err = s.Start()
		request = s.Request()
		return err
	})
	if _, err := request.Wait(t.Context()); !errors.Is(err, ErrFinalized) {
		t.Errorf("its request: %v", err)
	}
}
