package mpilib

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
)

// mixedSizes alternate between eager, lent and rendezvous messages, with and without enough memory
// for all, so that a message overtakes if it can.
var mixedSizes = []int{16, 20 << 10, 100 << 10, 1 << 20, 16, 1 << 20, 20 << 10, 100 << 10}

// 3.5: messages of one pair of processes that could match the same receive match in the order of
// their sends, for all sizes, modes and tags, for receives posted before, after or between the
// sends, and with or without wildcards.
func TestStandard_3_5_Order(t *testing.T) {
	parallel(t)
	for _, limit := range []int{16 << 20, 64 << 10} {
		for _, ranks := range worldSizes(1) {
			for _, posted := range either([]int{5}, []int{0, 5, 16}) {
				t.Run(fmt.Sprintf("limit=%d/p=%d/posted=%d", limit, ranks, posted), func(t *testing.T) {
					standardWorld(t, ranks, func(ctx context.Context, c *Comm) error {
						if c.Rank() == 0 {
							return orderReceived(ctx, c, posted)
						}
						if _, err := Recv(ctx, c, []byte{}, 0, tagFence); err != nil {
							return err
						}
						_, err := Waitall(ctx, orderSent(c)...)
						return err
					}, WithUnexpectedLimit(limit))
				})
			}
		}
	}
}

const orderCount = 16 // messages from each rank

func orderSize(i int) int { return mixedSizes[i%len(mixedSizes)] }

// orderSent starts the messages of a rank to rank 0; a message's number determines its mode and
// tag.
func orderSent(c *Comm) []*Request {
	var open []*Request
	for i := range orderCount {
		open = append(open, startModes[(i+i/4)%len(startModes)].start(c, pattern(orderSize(i), i), 0, i%3))
	}
	return open
}

// orderReceived receives the messages of all other ranks, or its own if there are none. It posts
// the first receives for each rank before the messages are sent.
func orderReceived(ctx context.Context, c *Comm, posted int) error {
	first := min(1, c.Size()-1)
	receive := func(src, i int) (*Request, []byte) {
		buf, tag := make([]byte, 1<<20), AnyTag
		if i%4 == 3 {
			tag = i % 3 // matches the same message as AnyTag would, because the earliest one has this tag
		}
		return Irecv(c, buf, src, tag), buf
	}
	type pair struct {
		in  *Request
		buf []byte
	}
	early := map[int][]pair{}
	for src := first; src < c.Size(); src++ {
		for i := range posted {
			in, buf := receive(src, i)
			early[src] = append(early[src], pair{in, buf})
		}
	}
	for src := first; src < c.Size(); src++ {
		if src == 0 {
			break
		}
		if err := Send(ctx, c, []byte{}, src, tagFence); err != nil { // not a fence, whose answer a receive with AnyTag would match
			return err
		}
	}
	var own []*Request
	if c.Size() == 1 {
		own = orderSent(c)
	}
	for i := range orderCount {
		for src := first; src < c.Size(); src++ {
			var p pair
			if i < posted {
				p = early[src][i]
			} else {
				p.in, p.buf = receive(src, i)
			}
			st, err := p.in.Wait(ctx)
			if err := errors.Join(err, isPattern(p.buf, st, orderSize(i), i)); err != nil || st.Source != src || st.Tag != i%3 {
				return fmt.Errorf("message %d from %d: %+v, %w", i, src, st, err)
			}
		}
	}
	_, err := Waitall(ctx, own...)
	return err
}

// 3.5: with AnySource, too, all messages arrive, and those of each source in their order.
func TestStandard_3_5_OrderAnySource(t *testing.T) {
	parallel(t)
	for _, limit := range []int{16 << 20, 64 << 10} {
		for _, ranks := range worldSizes(2) {
			standardWorld(t, ranks, func(ctx context.Context, c *Comm) error {
				if c.Rank() != 0 {
					_, err := Waitall(ctx, orderSent(c)...)
					return err
				}
				next := make([]int, ranks)
				for range orderCount * (ranks - 1) {
					buf := make([]byte, 1<<20)
					st, err := Recv(ctx, c, buf, AnySource, AnyTag)
					if err == nil {
						err = isPattern(buf, st, orderSize(next[st.Source]), next[st.Source])
					}
					if err != nil {
						return err
					}
					next[st.Source]++
				}
				return nil
			}, WithUnexpectedLimit(limit))
		}
	}
}

// 3.5: if two receives match a message, the receive that was posted first gets it, with or without
// wildcards.
func TestStandard_3_5_ReceivesInOrder(t *testing.T) {
	parallel(t)
	any, specific := [2]int{AnySource, AnyTag}, [2]int{0, 5}
	for _, posted := range [][][2]int{
		{any, specific}, {specific, any}, {any, any}, {specific, specific},
		{{AnySource, 5}, {0, AnyTag}}, {{0, AnyTag}, {AnySource, 5}},
	} {
		eachSizeAmong(t, 2, func(ctx context.Context, c *Comm, n int) error {
			if c.Rank() == 0 {
				return errors.Join(fence(ctx, c, 1), Send(ctx, c, pattern(n, 0), 1, 5), Send(ctx, c, pattern(10, 1), 1, 5))
			}
			// The fence has its own tag, but a receive with AnyTag would match its message.
			buf := make([]byte, max(n, 10))
			other := Isend(c, []byte{}, 0, tagFence)
			if _, err := Recv(ctx, c, []byte{}, 0, tagFence); err != nil {
				return err
			}
			first, buf2 := Irecv(c, buf, posted[0][0], posted[0][1]), make([]byte, max(n, 10))
			second := Irecv(c, buf2, posted[1][0], posted[1][1])
			statuses, err := Waitall(ctx, first, second, other)
			return errors.Join(err, isPattern(buf, statuses[0], n, 0), isPattern(buf2, statuses[1], 10, 1))
		})
	}
}

// 3.5: a receive that was posted earlier does not prevent a message from matching another that only
// it matches.
func TestStandard_3_5_LaterReceive(t *testing.T) {
	parallel(t)
	eachSizeAmong(t, 2, func(ctx context.Context, c *Comm, n int) error {
		if c.Rank() == 0 {
			return errors.Join(fence(ctx, c, 1), Ssend(ctx, c, pattern(n, 1), 1, 1), Ssend(ctx, c, pattern(n, 2), 1, 2))
		}
		bufs := [3][]byte{make([]byte, n), make([]byte, n), make([]byte, n)}
		never := Irecv(c, bufs[0], 0, 0)
		two, one := Irecv(c, bufs[2], 0, 2), Irecv(c, bufs[1], AnySource, 1)
		if err := fence(ctx, c, 0); err != nil {
			return err
		}
		st1, err1 := one.Wait(ctx)
		st2, err2 := two.Wait(ctx)
		if _, done, err := never.Test(); done {
			return fmt.Errorf("a receive with tag 0 got one of the others: %v", err)
		}
		if err := never.Cancel(); err != nil {
			return err
		}
		st, err := never.Wait(ctx)
		if !st.Cancelled {
			err = fmt.Errorf("not cancelled: %+v, %v", st, err)
		}
		return errors.Join(err, err1, err2, isPattern(bufs[1], st1, n, 1), isPattern(bufs[2], st2, n, 2))
	})
}

// 3.5: a receive with wildcards gets the earliest of the available messages, and a receive with a
// tag the earliest message with that tag.
func TestStandard_3_5_EarliestOfTags(t *testing.T) {
	parallel(t)
	tags := []int{3, 1, 2, 1, 3, 0, 2}
	for _, limit := range []int{16 << 20, 64 << 10} {
		standardAmong(t, 2, func(ctx context.Context, c *Comm) error {
			if c.Rank() == 0 {
				for i, tag := range tags {
					if err := Bsend(ctx, c, pattern(orderSize(i), i), 1, tag); err != nil {
						return err
					}
				}
				return errors.Join(fence(ctx, c, 1), fence(ctx, c, 1))
			}
			if err := fence(ctx, c, 0); err != nil {
				return err
			}
			for _, want := range []struct{ ask, i int }{{1, 1}, {AnyTag, 0}, {2, 2}, {AnyTag, 3}, {0, 5}, {AnyTag, 4}, {AnyTag, 6}} {
				if err := arrivesAs(ctx, c, AnySource, want.ask, orderSize(want.i), want.i); err != nil {
					return fmt.Errorf("with tag %d: %w", want.ask, err)
				}
			}
			return fence(ctx, c, 0)
		}, WithUnexpectedLimit(limit))
	}
}

// 3.5, progress: a receive completes when its message is sent, although earlier messages without a
// receive fill the memory for unexpected messages.
func TestStandard_3_5_Progress(t *testing.T) {
	parallel(t)
	const count = 40
	for _, n := range []int{16, 20 << 10, 100 << 10} {
		standardAmong(t, 2, func(ctx context.Context, c *Comm) error {
			if c.Rank() == 0 {
				for i := range count {
					if err := Bsend(ctx, c, pattern(n, i), 1, 1); err != nil {
						return err
					}
				}
				return errors.Join(Ssend(ctx, c, pattern(n, 77), 1, 2), Send(ctx, c, pattern(1<<20, 78), 1, 3), fence(ctx, c, 1))
			}
			err1, err2 := arrivesAs(ctx, c, 0, 2, n, 77), arrivesAs(ctx, c, 0, 3, 1<<20, 78)
			if err := errors.Join(err1, err2); err != nil {
				return err
			}
			for i := range count {
				if err := arrivesAs(ctx, c, 0, 1, n, i); err != nil {
					return err
				}
			}
			return fence(ctx, c, 0)
		}, WithUnexpectedLimit(64<<10))
	}
}

// 3.5, 3.7.4: a send and a receive that match complete although neither process makes further
// calls.
func TestStandard_3_5_ProgressWithoutCalls(t *testing.T) {
	parallel(t)
	for _, ranks := range worldSizes(2) {
		eachSize(t, ranks, func(ctx context.Context, c *Comm, n int) error {
			var in, out []*Request
			var bufs [][]byte
			for other := range ranks {
				bufs = append(bufs, make([]byte, n))
				in = append(in, Irecv(c, bufs[other], other, 1))
			}
			for other := range ranks {
				out = append(out, Issend(c, pattern(n, c.Rank()), other, 1))
			}
			for _, r := range append(in, out...) {
				select {
				case <-r.core.Finished():
				case <-ctx.Done():
					return fmt.Errorf("%v: %w", r.transfer(), ctx.Err())
				}
			}
			if _, err := Waitall(ctx, append(in, out...)...); err != nil { // only then may the buffers be read
				return err
			}
			for other := range ranks {
				if !bytes.Equal(bufs[other], noise[64*other:][:n]) {
					return fmt.Errorf("wrong contents from %d", other)
				}
			}
			return nil
		})
	}
}
