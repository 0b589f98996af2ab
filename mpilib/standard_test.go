package mpilib

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/testload"
)

// The files standard*_test.go check the library against MPI-4.1. Each test checks one rule, with
// its section: of point-to-point communication (chapter 3), groups and communicators (7),
// topologies (8) and others. No test waits for time to pass: to check that something has not
// happened, a test waits for something that happens after it. The tests run in parallel, because a
// world is idle for a while at its end.

// tagFence is the tag of fences; no other message uses it.
const tagFence = MaxTag

// fence returns when peer has called it too. Messages that the two sent each other before have then
// arrived, as far as they are sent before a receive is posted. With the own rank it does nothing.
func fence(ctx context.Context, c *Comm, peer int) error {
	if peer == c.Rank() {
		return nil
	}
	_, err := Sendrecv(ctx, c, []byte{}, peer, tagFence, []byte{}, peer, tagFence)
	return err
}

// standardSizes are sizes on both sides of the engine's limits: for messages that are copied (16
// KiB) and for eager messages (64 KiB less the overhead of a message).
var standardSizes = either(
	[]int{0, 16 << 10, 64<<10 - 63, 1<<20 + 1},
	[]int{0, 1, 16<<10 - 1, 16 << 10, 64<<10 - 64, 64<<10 - 63, 64 << 10, 64<<10 + 1, 100 << 10, 1<<20 + 1})

// noise has the random bytes of which messages consist.
var noise = func() []byte {
	b := make([]byte, 1<<20+64<<10)
	rand.NewChaCha8([32]byte{3}).Read(b)
	return b
}()

// pattern returns a message of n bytes that differs for each seed below 1000.
func pattern(n, seed int) []byte { return bytes.Clone(noise[64*seed:][:n:n]) }

// arrivesAs receives a message from src with tag and compares it with the pattern.
func arrivesAs(ctx context.Context, c *Comm, src, tag, n, seed int) error {
	buf := make([]byte, n+1)
	st, err := Recv(ctx, c, buf, src, tag)
	if err != nil {
		return err
	}
	return isPattern(buf, st, n, seed)
}

func isPattern(buf []byte, st Status, n, seed int) error {
	if st.Bytes != n || !bytes.Equal(buf[:n], noise[64*seed:][:n]) {
		return fmt.Errorf("want message %d of %d bytes, got %+v", seed, n, st)
	}
	return nil
}

// worldSizes returns the numbers of ranks with which a rule is tested, all at least the given one.
func worldSizes(from int) (sizes []int) {
	most := either(4, 5) // of four every two are connected differently: mixedPlace
	if *everyWay {
		most = 9
	}
	for n := from; n <= most; n++ {
		if n != 3 || testload.Full() || *everyWay {
			sizes = append(sizes, n)
		}
	}
	return sizes
}

// often returns the number of repetitions of a step: all with -every, and otherwise a quarter of it, or
// without the tag "system" an eighth.
func often(all int) int {
	if *everyWay {
		return all
	}
	return all / either(8, 4)
}

// limits are a large and a small limit of the memory for unexpected messages.
var limits = []int{16 << 20, 64 << 10}

// eachSize runs f in a world of ranks for every size, with a large and a small limit of the memory
// for unexpected messages.
func eachSize(t *testing.T, ranks int, f func(ctx context.Context, c *Comm, n int) error) {
	t.Helper()
	for _, limit := range limits {
		standardWorld(t, ranks, everySize(limit, f), WithUnexpectedLimit(limit))
	}
}

// eachSizeAmong is eachSize for a rule about a number of ranks in a world that may have more.
func eachSizeAmong(t *testing.T, ranks int, f func(ctx context.Context, c *Comm, n int) error) {
	t.Helper()
	for _, limit := range limits {
		standardAmong(t, ranks, everySize(limit, f), WithUnexpectedLimit(limit))
	}
}

func everySize(limit int, f func(ctx context.Context, c *Comm, n int) error) func(context.Context, *Comm) error {
	return func(ctx context.Context, c *Comm) error {
		for _, n := range standardSizes {
			if err := f(ctx, c, n); err != nil {
				return fmt.Errorf("%d bytes, limit %d: %w", n, limit, err)
			}
		}
		return nil
	}
}

// standardAmong runs f in communicators of the given number of ranks, as many as a world allows, in
// worlds of that size and of other sizes.
func standardAmong(t *testing.T, ranks int, f func(ctx context.Context, c *Comm) error, opts ...Option) {
	t.Helper()
	sizes := worldSizes(ranks)
	if !*everyWay {
		sizes = []int{ranks + max(0, turn(t)%8-4)} // half of the worlds have that size
	}
	for _, n := range sizes {
		standardWorld(t, n, func(ctx context.Context, world *Comm) error {
			apart := n / ranks // so that the ranks of each are connected differently
			colour := world.Rank() % apart
			if world.Rank() >= apart*ranks {
				colour = Undefined
			}
			c, err := world.Split(ctx, colour, world.Rank())
			if err != nil || c == nil {
				return err
			}
			return f(ctx, c)
		}, opts...)
	}
}

// standardWorld runs f in a world that is connected in any way, in which no rank finalizes before f
// has returned on all.
func standardWorld(t *testing.T, ranks int, f func(ctx context.Context, c *Comm) error, opts ...Option) {
	t.Helper()
	anyWay(t, ranks, func(ctx context.Context, c *Comm) error {
		if err := f(ctx, c); err != nil {
			return err
		}
		return Barrier(ctx, c)
	}, opts...)
}

// startModes are the ways to start a send, by their sections in 3.7.2.
var startModes = []struct {
	name  string
	start func(c *Comm, buf []byte, dst, tag int) *Request
}{
	{"Isend", Isend[byte]}, {"Issend", Issend[byte]}, {"Ibsend", Ibsend[byte]}, {"Irsend", Irsend[byte]},
}

// 3.2.2: a message may have no elements. Its envelope is received, with an empty or a nil buffer.
func TestStandard_3_2_2_ZeroCount(t *testing.T) {
	parallel(t)
	for _, n := range worldSizes(1) {
		standardWorld(t, n, func(ctx context.Context, c *Comm) error {
			next, before := (c.Rank()+1)%n, (c.Rank()+n-1)%n
			for i, buf := range [][]int64{nil, {}, make([]int64, 3)} {
				out := Isend(c, []int64(nil), next, i)
				st, err := Recv(ctx, c, buf, before, i)
				if (st != Status{Source: before, Tag: i}) || err != nil {
					return fmt.Errorf("%+v, %v", st, err)
				}
				if _, err := out.Wait(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// 3.2.3: the envelope is source, destination, tag and communicator, and a receive gets a message
// only if all of them match. Tags are 0 to the upper bound.
func TestStandard_3_2_3_Envelope(t *testing.T) {
	parallel(t)
	standardAmong(t, 3, func(ctx context.Context, world *Comm) error {
		other, err := world.Dup(ctx)
		if err != nil {
			return err
		}
		type envelope struct {
			c        *Comm
			src, tag int
		}
		var all []envelope
		for _, c := range []*Comm{world, other} {
			for _, tag := range []int{0, 1, MaxTag - 1} {
				for src := range 2 {
					all = append(all, envelope{c, src, tag})
				}
			}
		}
		for i, e := range all {
			if e.src == world.Rank() {
				if err := Bsend(ctx, e.c, []int{i}, 2, e.tag); err != nil {
					return err
				}
			}
		}
		if world.Rank() != 2 {
			return nil
		}
		for i := len(all) - 1; i >= 0; i-- { // not in the order of their arrival
			got, e := []int{-1}, all[i]
			st, err := Recv(ctx, e.c, got, e.src, e.tag)
			if got[0] != i || st.Source != e.src || st.Tag != e.tag || err != nil {
				return fmt.Errorf("%d got %d, %+v, %v", i, got[0], st, err)
			}
		}
		return nil
	})
}

// 3.2.4: a message may be shorter than the receive buffer, whose other elements are unchanged. A
// longer message is an error, which does not affect later messages.
func TestStandard_3_2_4_Lengths(t *testing.T) {
	parallel(t)
	eachSizeAmong(t, 2, func(ctx context.Context, c *Comm, n int) error {
		if c.Rank() == 0 {
			for i := range 3 {
				if err := Bsend(ctx, c, pattern(n, i), 1, 0); err != nil {
					return err
				}
			}
			return nil
		}
		buf := bytes.Repeat([]byte{9}, n+100)
		st, err := Recv(ctx, c, buf, 0, 0)
		if err := errors.Join(err, isPattern(buf, st, n, 0)); err != nil {
			return err
		}
		if !bytes.Equal(buf[n:], bytes.Repeat([]byte{9}, 100)) {
			return errors.New("the buffer behind the message was changed")
		}
		if n == 0 {
			_, err = Recv(ctx, c, buf, 0, 0)
		} else if _, err = Recv(ctx, c, make([]byte, n-1), 0, 0); errors.Is(err, ErrTruncate) {
			err = nil
		} else {
			err = fmt.Errorf("one byte too few: %v", err)
		}
		return errors.Join(err, arrivesAs(ctx, c, 0, 0, n, 2))
	})
}

// 3.2.5: the status has the source and the tag also for wildcards. GetCount returns the number of
// elements of a type, or an error if it is not a whole number.
func TestStandard_3_2_5_Status(t *testing.T) {
	parallel(t)
	for _, n := range worldSizes(1) {
		standardWorld(t, n, func(ctx context.Context, c *Comm) error {
			if err := Bsend(ctx, c, make([]int32, 3*c.Rank()), 0, c.Rank()+7); err != nil || c.Rank() != 0 {
				return err
			}
			seen := make([]bool, n)
			for range n {
				st, err := Recv(ctx, c, make([]int32, 3*n), AnySource, AnyTag)
				if err != nil || seen[st.Source] || (st != Status{Source: st.Source, Tag: st.Source + 7, Count: 3 * st.Source, Bytes: 12 * st.Source}) {
					return fmt.Errorf("%+v, %v", st, err)
				}
				seen[st.Source] = true
				bytes, err1 := GetCount[byte](st)
				whole, err2 := GetCount[[3]int32](st)
				if bytes != 12*st.Source || whole != st.Source || err1 != nil || err2 != nil {
					return fmt.Errorf("%d bytes, %d triples, %v, %v", bytes, whole, err1, err2)
				}
				if _, err := GetCount[int64](st); st.Source%2 == 1 != errors.Is(err, ErrCount) {
					return fmt.Errorf("%d bytes as int64: %v", st.Bytes, err)
				}
			}
			return nil
		})
	}
}

// 3.4: a synchronous send is not complete before a receive has matched it.
func TestStandard_3_4_Synchronous(t *testing.T) {
	parallel(t)
	eachSizeAmong(t, 2, func(ctx context.Context, c *Comm, n int) error {
		if c.Rank() == 1 {
			err1, err2 := fence(ctx, c, 0), fence(ctx, c, 0)
			return errors.Join(err1, err2, arrivesAs(ctx, c, 0, 1, n, 1))
		}
		r := Issend(c, pattern(n, 1), 1, 1)
		if err := fence(ctx, c, 1); err != nil {
			return err
		}
		if _, done, err := r.Test(); done {
			return fmt.Errorf("complete before there was a receive: %v", err)
		}
		err := fence(ctx, c, 1)
		_, err1 := r.Wait(ctx)
		return errors.Join(err, err1)
	})
}

// 3.4: a blocking synchronous send does not return before either.
func TestStandard_3_4_SynchronousBlocks(t *testing.T) {
	parallel(t)
	eachSizeAmong(t, 2, func(ctx context.Context, c *Comm, n int) error {
		if c.Rank() == 0 {
			announced := Irecv(c, []byte{}, 1, 2) // which is here before the other rank posts its receive
			if err := Ssend(ctx, c, pattern(n, 2), 1, 1); err != nil {
				return err
			}
			if _, done, err := announced.Test(); err != nil || !done {
				return errors.Join(errors.New("Ssend returned before there was a receive"), err)
			}
			return fence(ctx, c, 1)
		}
		if _, err := c.Probe(ctx, 0, 1); err != nil {
			return err
		}
		err := Ssend(ctx, c, []byte{}, 0, 2)
		return errors.Join(err, arrivesAs(ctx, c, 0, 1, n, 2), fence(ctx, c, 0))
	})
}

// 3.4 and 3.6: a buffered send is complete at once, regardless of its receiver, and the caller owns
// the buffer again. Only memory bounds their number.
func TestStandard_3_4_Buffered(t *testing.T) {
	parallel(t)
	for _, ranks := range worldSizes(1)[:3] {
		eachSize(t, ranks, func(ctx context.Context, c *Comm, n int) error {
			count := min(10, 2+200_000/(n+1))
			for to := range ranks {
				for i := range count {
					buf := pattern(n, i)
					r := Ibsend(c, buf, to, 1)
					if _, done, err := r.Test(); !done || err != nil {
						return fmt.Errorf("not complete at once: %v", err)
					}
					clear(buf)
				}
			}
			for to := range ranks { // no rank receives before all have sent
				if err := fence(ctx, c, to); err != nil {
					return err
				}
			}
			for from := range ranks {
				for i := range count {
					if err := arrivesAs(ctx, c, from, 1, n, i); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
}

// 3.4: a ready send whose receive is posted is like any other send.
func TestStandard_3_4_Ready(t *testing.T) {
	parallel(t)
	eachSizeAmong(t, 2, func(ctx context.Context, c *Comm, n int) error {
		if c.Rank() == 0 {
			return errors.Join(fence(ctx, c, 1), Rsend(ctx, c, pattern(n, 3), 1, 1))
		}
		buf := make([]byte, n)
		r := Irecv(c, buf, 0, 1)
		if err := fence(ctx, c, 0); err != nil {
			return err
		}
		st, err := r.Wait(ctx)
		return errors.Join(err, isPattern(buf, st, n, 3))
	})
}

// 3.4: when a send of any mode has returned, the caller owns the buffer: what it writes there does
// not reach the receiver.
func TestStandard_3_4_BufferAfterSend(t *testing.T) {
	parallel(t)
	modes := []func(context.Context, *Comm, []byte, int, int) error{Send[byte], Ssend[byte], Bsend[byte], Rsend[byte]}
	eachSizeAmong(t, 2, func(ctx context.Context, c *Comm, n int) error {
		for i, send := range modes {
			if c.Rank() == 1 {
				if err := arrivesAs(ctx, c, 0, i, n, i); err != nil {
					return err
				}
				continue
			}
			buf := pattern(n, i)
			if err := send(ctx, c, buf, 1, i); err != nil {
				return err
			}
			clear(buf)
		}
		return nil
	})
}

// 3.4, 3.7: in every mode a process may send to itself.
func TestStandard_3_4_Self(t *testing.T) {
	parallel(t)
	eachSizeAmong(t, 1, func(ctx context.Context, c *Comm, n int) error {
		for i, mode := range startModes {
			for _, posted := range []bool{true, false} {
				buf, out := make([]byte, n), pattern(n, i)
				var in, r *Request
				if posted {
					in = Irecv(c, buf, 0, 1)
					r = mode.start(c, out, 0, 1)
				} else {
					r = mode.start(c, out, 0, 1)
					if _, done, _ := r.Test(); done && mode.name == "Issend" {
						return errors.New("Issend to self is complete before there is a receive")
					}
					in = Irecv(c, buf, 0, 1)
				}
				st, err := in.Wait(ctx)
				_, err1 := r.Wait(ctx)
				if err := errors.Join(err, err1, isPattern(buf, st, n, i)); err != nil {
					return fmt.Errorf("%s, posted %t: %w", mode.name, posted, err)
				}
			}
		}
		return nil
	})
}

// 3.6: the message of a buffered send arrives also if the sender finalizes at once.
func TestStandard_3_6_BufferedThenFinalize(t *testing.T) {
	parallel(t)
	for _, n := range standardSizes {
		anyWay(t, 2, func(ctx context.Context, c *Comm) error {
			if c.Rank() == 0 {
				return Bsend(ctx, c, pattern(n, 4), 1, 1)
			}
			if _, err := c.Probe(ctx, 0, 1); err != nil {
				return err
			}
			return arrivesAs(ctx, c, 0, 1, n, 4)
		})
	}
}
