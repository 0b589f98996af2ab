package mpilib

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// These tests check section 13.2 of MPI-5.0, generalized requests.

// 13.2: work of the program's is waited for and tested among messages, and completes once, with its own status and error.
func TestStandard_13_2_Grequests(t *testing.T) {
	parallel(t)
	standardWorld(t, 1, func(ctx context.Context, c *Comm) error {
		work, complete := c.world.GrequestStart("Work")
		failing, fail := c.world.GrequestStart("Failure")
		buf, broken := []int{0}, errors.New("it broke")
		requests := []*Request{work, Irecv(c, buf, 0, 1), failing}
		if i, _, done, err := Testany(requests...); done || err != nil {
			return fmt.Errorf("request %d is complete, %w", i, err)
		}
		if err := Send(ctx, c, []int{7}, 0, 1); err != nil {
			return err
		}
		if i, st, err := Waitany(ctx, requests...); i != 1 || st.Bytes != 8 || err != nil {
			return fmt.Errorf("request %d, %+v, %w", i, st, err)
		}
		requests[1] = nil
		want := Status{Source: 3, Tag: 4, Bytes: 5}
		go complete(want, nil)
		if i, st, err := Waitany(ctx, requests...); i != 0 || st != want || err != nil {
			return fmt.Errorf("request %d, %+v, %w", i, st, err)
		}
		complete(emptyStatus, broken)
		if st, done, err := work.Test(); !done || st != want || err != nil {
			return fmt.Errorf("completed twice: %+v, %t, %w", st, done, err)
		}
		fail(emptyStatus, broken)
		_, _, err := Waitany(ctx, requests[1:]...)
		return errors.Join(expect(err, broken, "Failure on world"), expect(work.Cancel(), errNoCancel, "Work on world"))
	})
}

// A Wait that is given up returns, and the work may complete later.
func TestGrequestGivenUp(t *testing.T) {
	parallel(t)
	standardWorld(t, 1, func(ctx context.Context, c *Comm) error {
		work, complete := c.world.GrequestStart("Work")
		gone, cancel := context.WithCancel(ctx)
		cancel()
		_, err := work.Wait(gone)
		complete(Status{}, nil)
		return expect(err, context.Canceled, "Work on world")
	})
}

// Work that is never completed does not prevent Finalize, and fails then.
func TestGrequestFinalize(t *testing.T) {
	var left *Request
	TestWorld(t, 2, func(ctx context.Context, c *Comm) error {
		if c.Rank() == 0 {
			left, _ = c.world.GrequestStart("Work")
		}
		return nil
	})
	if _, err := left.Wait(t.Context()); !errors.Is(err, ErrFinalized) {
		t.Errorf("got %v", err)
	}
}
