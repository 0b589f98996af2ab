package mpilib

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestSendRecv(t *testing.T) {
	for _, n := range []int{0, 1, 1000, 16<<10/8 - 1, 16 << 10 / 8, 1 << 17, 1 << 21} {
		t.Run(fmt.Sprintf("n=%d", n), func(t *testing.T) {
			anyWay(t, 2, func(ctx context.Context, c *Comm) error {
				want := make([]float64, n)
				for i := range want {
					want[i] = float64(i) * 1.5
				}
				if c.Rank() == 0 {
					return Send(ctx, c, want, 1, 7)
				}
				got := make([]float64, n+3)
				st, err := Recv(ctx, c, got, 0, 7)
				if err != nil {
					return err
				}
				if (st != Status{Source: 0, Tag: 7, Count: n, Bytes: 8 * n}) || !slices.Equal(got[:n], want) {
					return fmt.Errorf("status %+v, equal %t", st, slices.Equal(got[:n], want))
				}
				return nil
			})
		})
	}
}

// Messages of one source and communicator match in the order in which they were sent, regardless of
// their sizes and of when their receives are posted.
func TestNonOvertaking(t *testing.T) {
	const count = 200
	size := func(i int) int { return []int{1, 5000, 10, 0, 70000}[i%5] + i }
	anyWay(t, 3, func(ctx context.Context, c *Comm) error {
		if c.Rank() != 0 {
			var reqs []*Request
			for i := range count {
				reqs = append(reqs, Isend(c, slices.Repeat([]int32{int32(i)}, size(i)), 0, i%2))
			}
			_, err := Waitall(ctx, reqs...)
			return err
		}
		next := map[[2]int]int{{1, 0}: 0, {1, 1}: 1, {2, 0}: 0, {2, 1}: 1}
		buf := make([]int32, 80000)
		for range 2 * count {
			st, err := Recv(ctx, c, buf, AnySource, AnyTag)
			if err != nil {
				return err
			}
			key := [2]int{st.Source, st.Tag}
			i := next[key]
			next[key] += 2
			if st.Count != size(i) || st.Count > 0 && (buf[0] != int32(i) || buf[st.Count-1] != int32(i)) {
				return fmt.Errorf("from %v: want message %d of %d elements, got %+v starting with %d", key, i, size(i), st, buf[0])
			}
		}
		return nil
	})
}

func TestTruncation(t *testing.T) {
	for _, posted := range []bool{true, false} {
		for _, n := range []int{5, 50000} {
			anyWay(t, 2, func(ctx context.Context, c *Comm) error {
				if c.Rank() == 0 {
					if posted {
						if _, err := Recv(ctx, c, []byte{0}, 1, 1); err != nil {
							return err
						}
					}
					if err := Send(ctx, c, make([]int64, n), 1, 3); err != nil {
						return err
					}
					return Send(ctx, c, []int64{42}, 1, 4)
				}
				buf := []int64{-1, -1}
				var r *Request
				if posted {
					r = Irecv(c, buf, 0, 3)
					if err := Send(ctx, c, []byte{1}, 0, 1); err != nil {
						return err
					}
				} else {
					if _, err := c.Probe(ctx, 0, 3); err != nil {
						return err
					}
					r = Irecv(c, buf, 0, 3)
				}
				_, err := r.Wait(ctx)
				want := fmt.Sprintf("mpilib: rank 1: receive from rank 0 of world, tag 3: message is longer than the receive buffer: the message has %d bytes, the buffer 16", 8*n)
				if !errors.Is(err, ErrTruncate) || err.Error() != want {
					return fmt.Errorf("got %v, want %s", err, want)
				}
				if buf[0] != -1 {
					return fmt.Errorf("the buffer was touched")
				}
				// The next message is intact.
				if _, err := Recv(ctx, c, buf, 0, 4); err != nil || buf[0] != 42 {
					return fmt.Errorf("after it: %v, %v", buf, err)
				}
				return nil
			})
		}
	}
}

func TestSelf(t *testing.T) {
	anyWay(t, 1, func(ctx context.Context, c *Comm) error {
		// Small messages are buffered, and large ones wait for their receives.
		if err := Send(ctx, c, []int{1, 2}, 0, 1); err != nil {
			return err
		}
		big := slices.Repeat([]int{9}, 100000)
		r := Isend(c, big, 0, 2)
		if _, done, _ := r.Test(); done {
			return errors.New("a large send to self was complete without a receive")
		}
		got := make([]int, len(big))
		if st, err := Recv(ctx, c, got, AnySource, 2); err != nil || st.Source != 0 || !slices.Equal(got, big) {
			return fmt.Errorf("%+v, %v", st, err)
		}
		if _, err := r.Wait(ctx); err != nil {
			return err
		}
		in := Irecv(c, got, 0, 3)
		if err := Send(ctx, c, []int{7}, 0, 3); err != nil {
			return err
		}
		if st, err := in.Wait(ctx); err != nil || got[0] != 7 || st.Count != 1 {
			return fmt.Errorf("%+v, %v", st, err)
		}
		st, err := Recv(ctx, c, got, 0, 1)
		if err != nil || st.Count != 2 || got[1] != 2 {
			return fmt.Errorf("%+v, %v", st, err)
		}
		return nil
	})
}

func TestProbe(t *testing.T) {
	anyWay(t, 2, func(ctx context.Context, c *Comm) error {
		if c.Rank() == 0 {
			return Send(ctx, c, make([]int32, 12), 1, 9)
		}
		st, err := c.Probe(ctx, AnySource, AnyTag)
		if err != nil || (st != Status{Source: 0, Tag: 9, Count: 48, Bytes: 48}) {
			return fmt.Errorf("%+v, %v", st, err)
		}
		if n, err := GetCount[int32](st); n != 12 || err != nil {
			return fmt.Errorf("%d, %v", n, err)
		}
		if _, err := GetCount[[5]int64](st); !errors.Is(err, ErrCount) {
			return fmt.Errorf("48 bytes are whole elements of 40: %v", err)
		}
		if _, ok, err := c.Iprobe(0, 8); ok || err != nil {
			return fmt.Errorf("a message with tag 8: %t, %v", ok, err)
		}
		if st2, ok, err := c.Iprobe(0, 9); !ok || err != nil || st2 != st {
			return fmt.Errorf("%+v, %t, %v", st2, ok, err)
		}
		_, err = Recv(ctx, c, make([]int32, 12), 0, 9)
		return err
	})
}

// A wait ends with its context. Afterwards the library does not use the buffer, and later messages
// are intact even if the message was partly transferred.
func TestGivingUp(t *testing.T) {
	anyWay(t, 2, func(ctx context.Context, c *Comm) error {
		const big = 8 << 20
		gone, cancel := context.WithCancel(ctx)
		cancel()
		if c.Rank() == 0 {
			for range either(4, 20) {
				short, cancel := context.WithTimeout(ctx, time.Millisecond)
				buf := slices.Repeat([]byte{1}, big)
				err := Send(short, c, buf, 1, 1) // there is no receive: it blocks when the socket buffers are full
				cancel()
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					return err
				}
				clear(buf) // must not reach the peer
			}
			return Send(ctx, c, []byte{5}, 1, 2)
		}
		_, err := Recv(gone, c, make([]byte, 8), 0, 3)
		if !errors.Is(err, context.Canceled) {
			return fmt.Errorf("receive: %v", err)
		}
		buf := make([]byte, big)
		if _, err := Recv(ctx, c, buf[:1], 0, 2); err != nil || buf[0] != 5 {
			return fmt.Errorf("%d, %v", buf[0], err)
		}
		for {
			_, ok, err := c.Iprobe(0, 1)
			if err != nil || !ok {
				return err
			}
			if _, err := Recv(ctx, c, buf, 0, 1); err != nil {
				return err
			}
			if i := slices.IndexFunc(buf, func(b byte) bool { return b != 1 }); i >= 0 {
				return fmt.Errorf("byte %d is %d: the sender's buffer was read after its Send returned", i, buf[i])
			}
		}
	})
}

func TestArguments(t *testing.T) {
	anyWay(t, 1, func(ctx context.Context, c *Comm) error {
		for _, tc := range []struct {
			err   error
			class error
			text  string
		}{
			{Send(ctx, c, []int{1}, 1, 0), ErrRank, "send to rank 1 of world, tag 0: no such rank: 1, communicator world has ranks 0 to 0"},
			{Send(ctx, c, []int{1}, AnySource, 0), ErrRank, "no such rank: -1"},
			{Send(ctx, c, []int{1}, 0, -1), ErrTag, "no such tag: -1, tags are 0 to 2147483647"},
			{Send(ctx, c, []string{"a"}, 0, 0), ErrType, "type cannot be sent: string: a string refers to this process's memory"},
			{Bcast(ctx, c, []*int{nil}, 0), ErrType, "a ptr refers"},
			{Alltoallv(ctx, c, []int{1}, []int{1 << 61}, []int{0}, []int{0}, []int{1}, []int{0}), nil, "send block of rank 0"},
		} {
			if tc.err == nil || tc.class != nil && !errors.Is(tc.err, tc.class) || !strings.Contains(tc.err.Error(), tc.text) {
				t.Errorf("got %v, want %q", tc.err, tc.text)
			}
		}
		return nil
	})
}

func TestPlainStructs(t *testing.T) {
	type point struct {
		X, Y float32
		On   bool
		ID   [3]uint16
		Z    complex128
	}
	anyWay(t, 2, func(ctx context.Context, c *Comm) error {
		mine := []point{{X: 1, On: true, ID: [3]uint16{1, 2, 3}, Z: complex(float64(c.Rank()), 4)}}
		theirs := make([]point, 1)
		other := 1 - c.Rank()
		st, err := Sendrecv(ctx, c, mine, other, 1, theirs, other, 1)
		if err != nil || st.Count != 1 || st.Source != other {
			return fmt.Errorf("%+v, %v", st, err)
		}
		mine[0].Z = complex(float64(other), 4)
		if theirs[0] != mine[0] {
			return fmt.Errorf("got %+v", theirs)
		}
		return nil
	})
}

// A receive that is cancelled while its message is transferred does not write to the buffer any
// more, and later messages are intact.
func TestGivingUpHalfWay(t *testing.T) {
	big, rounds := either(8<<20, 32<<20), either(4, 10)
	anyWay(t, 2, func(ctx context.Context, c *Comm) error {
		buf := slices.Repeat([]byte{1}, big)
		for i := range rounds {
			if c.Rank() == 0 {
				if _, err := Recv(ctx, c, []byte{0}, 1, 0); err != nil {
					return err
				}
				sent := Isend(c, buf, 1, 1) // a Send might wait forever for the cancelled receive
				if err := Send(ctx, c, []int{i}, 1, 2); err != nil {
					return err
				}
				if _, err := sent.Wait(ctx); err != nil {
					return err
				}
				continue
			}
			r := Irecv(c, buf, 0, 1)
			if err := Send(ctx, c, []byte{0}, 0, 0); err != nil {
				return err
			}
			short, cancel := context.WithTimeout(ctx, time.Duration(i)*time.Millisecond)
			_, err := r.Wait(short)
			cancel()
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				return err
			}
			for j := range buf {
				buf[j] = 7
			}
			got := []int{-1}
			if _, err := Recv(ctx, c, got, 0, 2); err != nil || got[0] != i {
				return fmt.Errorf("round %d: %d, %w", i, got[0], err)
			}
			if j := slices.IndexFunc(buf, func(b byte) bool { return b != 7 }); j >= 0 {
				return fmt.Errorf("round %d: byte %d was written after Wait returned", i, j)
			}
			if _, ok, _ := c.Iprobe(0, 1); ok { // the receive was cancelled before it matched
				if _, err := Recv(ctx, c, buf, 0, 1); err != nil {
					return err
				}
			}
		}
		return Barrier(ctx, c) // so that the sender of the cancelled transfer does not leave before
	})
}
