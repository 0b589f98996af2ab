package mpilib

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
)

// 3.7.3: Test returns false while there is no message, and completes without other calls; a
// complete request stays complete, and Wait and Test return the same.
func TestStandard_3_7_3_WaitTest(t *testing.T) {
	parallel(t)
	eachSizeAmong(t, 2, func(ctx context.Context, c *Comm, n int) error {
		if c.Rank() == 0 {
			return errors.Join(fence(ctx, c, 1), fence(ctx, c, 1), Send(ctx, c, pattern(n, 1), 1, 1), Send(ctx, c, []byte{}, 1, 2))
		}
		buf := make([]byte, n)
		r := Irecv(c, buf, 0, 1)
		if err := fence(ctx, c, 0); err != nil {
			return err
		}
		if _, done, err := r.Test(); done {
			return fmt.Errorf("complete before anything was sent: %v", err)
		}
		err1, err2 := fence(ctx, c, 0), arrivesAs(ctx, c, 0, 2, 0, 0)
		st, err := r.Wait(ctx)
		again, done, err3 := r.Test()
		if !done || again != st {
			return fmt.Errorf("Wait returned %+v, Test %+v, %t", st, again, done)
		}
		gone, cancel := context.WithCancel(ctx)
		cancel()
		if again, err := r.Wait(gone); again != st || err != nil {
			return fmt.Errorf("Wait returned %+v, then %+v, %v", st, again, err)
		}
		return errors.Join(err, err1, err2, err3, isPattern(buf, st, n, 1))
	})
}

// 3.7.5: null requests are ignored; if there are no others the calls return at once, with Undefined
// as the index.
func TestStandard_3_7_5_NullRequests(t *testing.T) {
	parallel(t)
	standardAmong(t, 1, func(ctx context.Context, c *Comm) error {
		for _, none := range [][]*Request{nil, {nil}, {nil, nil, nil}} {
			if i, st, err := Waitany(ctx, none...); i != Undefined || st != emptyStatus || err != nil {
				return fmt.Errorf("Waitany: %d, %+v, %v", i, st, err)
			}
			if i, st, done, err := Testany(none...); i != Undefined || st != emptyStatus || !done || err != nil {
				return fmt.Errorf("Testany: %d, %+v, %t, %v", i, st, done, err)
			}
			if done, sts, err := Waitsome(ctx, none...); len(done)+len(sts) != 0 || err != nil {
				return fmt.Errorf("Waitsome: %v, %v, %v", done, sts, err)
			}
			if done, sts, err := Testsome(none...); len(done)+len(sts) != 0 || err != nil {
				return fmt.Errorf("Testsome: %v, %v, %v", done, sts, err)
			}
			if sts, err := Waitall(ctx, none...); len(sts) != len(none) || err != nil {
				return fmt.Errorf("Waitall: %v, %v", sts, err)
			}
			if sts, done, err := Testall(none...); len(sts) != len(none) || !done || err != nil {
				return fmt.Errorf("Testall: %v, %t, %v", sts, done, err)
			}
		}
		open := Irecv(c, make([]byte, 1), 0, 1)
		if _, _, done, err := Testany(nil, open); done || err != nil {
			return fmt.Errorf("Testany of an open receive: %t, %v", done, err)
		}
		if _, done, err := Testall(nil, open); done || err != nil {
			return fmt.Errorf("Testall of an open receive: %t, %v", done, err)
		}
		if done, _, err := Testsome(nil, open); len(done) > 0 || err != nil {
			return fmt.Errorf("Testsome of an open receive: %v, %v", done, err)
		}
		if err := Send(ctx, c, []byte{3}, 0, 1); err != nil {
			return err
		}
		want := Status{Source: 0, Tag: 1, Count: 1, Bytes: 1}
		if i, st, err := Waitany(ctx, nil, open, nil); i != 1 || st != want || err != nil {
			return fmt.Errorf("Waitany: %d, %+v, %v", i, st, err)
		}
		if sts, err := Waitall(ctx, nil, open); len(sts) != 2 || sts[1] != want || err != nil {
			return fmt.Errorf("Waitall: %v, %v", sts, err)
		}
		return nil
	})
}

// 3.7.5: Waitany and Waitsome return each request once, and do not wait while one is complete;
// Testsome and Waitsome return all complete requests.
func TestStandard_3_7_5_AnySome(t *testing.T) {
	parallel(t)
	for _, ranks := range worldSizes(1) {
		for _, some := range []bool{false, true} {
			eachSize(t, ranks, func(ctx context.Context, c *Comm, n int) error {
				open := make([]*Request, 2*ranks)
				bufs := make([][]byte, ranks)
				for src := range ranks {
					bufs[src] = make([]byte, n)
					open[src] = Irecv(c, bufs[src], src, 1)
				}
				for dst := range ranks {
					open[ranks+dst] = Isend(c, pattern(n, c.Rank()), dst, 1)
				}
				for left := len(open); left > 0; {
					var done []int
					var statuses []Status
					var err error
					if some {
						done, statuses, err = Waitsome(ctx, open...)
					} else {
						var i int
						var st Status
						i, st, err = Waitany(ctx, open...)
						done, statuses = []int{i}, []Status{st}
					}
					if err != nil || len(done) == 0 || len(done) != len(statuses) {
						return fmt.Errorf("%v, %v, %v", done, statuses, err)
					}
					for k, i := range done {
						if open[i] == nil {
							return fmt.Errorf("request %d is complete twice", i)
						}
						open[i] = nil
						left--
						if i < ranks {
							if err := isPattern(bufs[i], statuses[k], n, i); err != nil || statuses[k].Source != i {
								return fmt.Errorf("from %d: %w", i, err)
							}
						}
					}
				}
				return nil
			})
		}
	}
}

// 3.7.5: Waitany returns as soon as one request is complete, and Waitall when all are; the error of
// one request does not affect the others.
func TestStandard_3_7_5_All(t *testing.T) {
	parallel(t)
	eachSizeAmong(t, 2, func(ctx context.Context, c *Comm, n int) error {
		if c.Rank() == 0 {
			err := errors.Join(fence(ctx, c, 1), Send(ctx, c, pattern(n, 2), 1, 2), fence(ctx, c, 1))
			return errors.Join(err, Send(ctx, c, pattern(n+1, 1), 1, 1), Send(ctx, c, pattern(n, 3), 1, 3))
		}
		bufs := [][]byte{make([]byte, n), make([]byte, n), make([]byte, n)}
		open := []*Request{Irecv(c, bufs[0], 0, 1), Irecv(c, bufs[1], 0, 2), Irecv(c, bufs[2], 0, 3)}
		if err := fence(ctx, c, 0); err != nil {
			return err
		}
		if i, st, err := Waitany(ctx, open...); i != 1 || err != nil || isPattern(bufs[1], st, n, 2) != nil {
			return fmt.Errorf("Waitany: %d, %+v, %v", i, st, err)
		}
		if done, _, err := Testsome(open...); len(done) != 1 || done[0] != 1 || err != nil {
			return fmt.Errorf("Testsome: %v, %v", done, err)
		}
		if _, done, err := Testall(open...); done {
			return fmt.Errorf("Testall: done with %v", err)
		}
		if err := fence(ctx, c, 0); err != nil {
			return err
		}
		statuses, err := Waitall(ctx, open...)
		if !errors.Is(err, ErrTruncate) { // the error of the first request only
			return fmt.Errorf("Waitall: %v", err)
		}
		if _, done, err := Testall(open...); !done || !errors.Is(err, ErrTruncate) {
			return fmt.Errorf("Testall afterwards: %t, %v", done, err)
		}
		return errors.Join(isPattern(bufs[1], statuses[1], n, 2), isPattern(bufs[2], statuses[2], n, 3))
	})
}

// A Waitany or Waitsome that ends with its context cancels no request.
func TestStandard_3_7_5_AnyGivenUp(t *testing.T) {
	parallel(t)
	eachSizeAmong(t, 2, func(ctx context.Context, c *Comm, n int) error {
		if c.Rank() == 0 {
			return errors.Join(fence(ctx, c, 1), Send(ctx, c, pattern(n, 1), 1, 1))
		}
		buf := make([]byte, n)
		r := Irecv(c, buf, 0, 1)
		gone, cancel := context.WithCancel(ctx)
		cancel()
		if i, _, err := Waitany(gone, r); i != Undefined || !errors.Is(err, context.Canceled) {
			return fmt.Errorf("Waitany: %d, %v", i, err)
		}
		if _, _, err := Waitsome(gone, r); !errors.Is(err, context.Canceled) {
			return fmt.Errorf("Waitsome: %v", err)
		}
		if err := fence(ctx, c, 0); err != nil {
			return err
		}
		st, err := r.Wait(ctx)
		return errors.Join(err, isPattern(buf, st, n, 1))
	})
}

// A receive whose Wait has ended with its context does not use its buffer any more, and the next
// receive gets the message. Nor does such a send, and later messages arrive.
func TestStandard_WaitGivenUp(t *testing.T) {
	parallel(t)
	eachSizeAmong(t, 2, func(ctx context.Context, c *Comm, n int) error {
		gone, cancel := context.WithCancel(ctx)
		cancel()
		if c.Rank() == 0 {
			if err := fence(ctx, c, 1); err != nil {
				return err
			}
			buf := pattern(n, 1)
			err := Ssend(gone, c, buf, 1, 2) // there is no receive for it
			if !errors.Is(err, context.Canceled) {
				return fmt.Errorf("Ssend: %v", err)
			}
			clear(buf)
			return errors.Join(Send(ctx, c, pattern(n, 3), 1, 1), fence(ctx, c, 1))
		}
		buf := bytes.Repeat([]byte{9}, n)
		if _, err := Recv(gone, c, buf, 0, 1); !errors.Is(err, context.Canceled) {
			return fmt.Errorf("Recv: %v", err)
		}
		if err := fence(ctx, c, 0); err != nil {
			return err
		}
		if err := arrivesAs(ctx, c, 0, 1, n, 3); err != nil {
			return err
		}
		if err := fence(ctx, c, 0); err != nil {
			return err
		}
		if !bytes.Equal(buf, bytes.Repeat([]byte{9}, n)) {
			return errors.New("the buffer was changed after its receive was given up")
		}
		if _, here, err := c.Iprobe(0, 2); err != nil || !here { // the message may have been cancelled
			return err
		}
		return arrivesAs(ctx, c, 0, 2, n, 1) // otherwise it has the contents at the time of the send
	})
}
