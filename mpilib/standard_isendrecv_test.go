package mpilib

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// completions are the calls that complete one request.
var completions = []func(ctx context.Context, r *Request) (Status, error){
	func(ctx context.Context, r *Request) (Status, error) { return r.Wait(ctx) },
	func(ctx context.Context, r *Request) (Status, error) {
		for ctx.Err() == nil {
			if st, done, err := r.Test(); done || err != nil {
				return st, err
			}
		}
		return Status{}, ctx.Err()
	},
	func(ctx context.Context, r *Request) (Status, error) {
		_, st, err := Waitany(ctx, nil, r)
		return st, err
	},
	func(ctx context.Context, r *Request) (Status, error) {
		some, st, err := Waitsome(ctx, nil, r)
		if err == nil && len(some) != 1 {
			err = fmt.Errorf("Waitsome returned %v", some)
		}
		return append(st, Status{})[0], err
	},
}

// 3.11: Isendrecv and Isendrecv_replace transfer what the blocking calls do, and any call for requests completes them.
func TestStandard_3_11_Isendrecv(t *testing.T) {
	parallel(t)
	for _, ranks := range worldSizes(1) {
		eachSize(t, ranks, func(ctx context.Context, c *Comm, n int) error {
			next, before := (c.Rank()+1)%ranks, (c.Rank()+ranks-1)%ranks
			complete := completions[(n+c.Rank())%len(completions)]
			buf := make([]byte, n+ranks)
			st, err := complete(ctx, Isendrecv(c, pattern(n+c.Rank(), c.Rank()), next, 1, buf, before, 1))
			if err := errors.Join(err, isPattern(buf, st, n+before, before)); err != nil || st.Source != before || st.Tag != 1 {
				return fmt.Errorf("Isendrecv: %+v, %w", st, err)
			}
			one := pattern(n, c.Rank()+10)
			st, err = complete(ctx, IsendrecvReplace(c, one, next, 2, before, 2))
			if err := errors.Join(err, isPattern(one, st, n, before+10)); err != nil || st.Source != before {
				return fmt.Errorf("IsendrecvReplace: %+v, %w", st, err)
			}
			return nil
		})
	}
}

// 3.11: the request is complete when both transfers are; until then nothing finds it complete, and a wait ends with
// its context.
func TestStandard_3_11_IsendrecvNeedsBoth(t *testing.T) {
	if *replicated || *killed {
		t.Skip("a send between ranks with replicas is copied, and needs no receive to be complete")
	}
	parallel(t)
	const large = 1 << 20 // it is not sent before its receive is posted
	standardAmong(t, 2, func(ctx context.Context, c *Comm) error {
		if c.Rank() == 1 {
			err := Send(ctx, c, pattern(8, 1), 0, 2)
			return errors.Join(err, fence(ctx, c, 0), arrivesAs(ctx, c, 0, 1, large, 3))
		}
		buf := make([]byte, 8)
		r := Isendrecv(c, pattern(large, 3), 1, 1, buf, 1, 2)
		for !r.core.Done() && ctx.Err() == nil {
		}
		_, one, err1 := r.Test()
		_, all, err2 := Testall(r)
		_, _, any, err3 := Testany(r)
		some, _, err4 := Testsome(r)
		if err := errors.Join(err1, err2, err3, err4); err != nil || one || all || any || len(some) > 0 {
			return fmt.Errorf("complete without its send: %t, %t, %t, %v, %v", one, all, any, some, err)
		}
		short, cancel := context.WithCancel(ctx)
		cancel()
		if i, _, err := Waitany(short, r); i != Undefined || !errors.Is(err, context.Canceled) {
			return fmt.Errorf("Waitany returned %d, %v, want the context's error", i, err)
		}
		if err := fence(ctx, c, 1); err != nil {
			return err
		}
		i, st, err := Waitany(ctx, r)
		if err := errors.Join(err, isPattern(buf, st, 8, 1)); err != nil || i != 0 || st.Tag != 2 {
			return fmt.Errorf("Waitany returned %d, %+v, %w", i, st, err)
		}
		return nil
	}, WithUnexpectedLimit(1<<16))
}

// 3.11: if one of the two cannot start, the request has that error and the other is not waited for. It cannot be cancelled.
func TestStandard_3_11_IsendrecvWrong(t *testing.T) {
	parallel(t)
	standardAmong(t, 2, func(ctx context.Context, c *Comm) error {
		buf := make([]byte, 1)
		for _, complete := range completions {
			if _, err := complete(ctx, Isendrecv(c, buf, c.Size(), 1, buf, 1-c.Rank(), 1)); !errors.Is(err, ErrRank) {
				return fmt.Errorf("to no rank: %v", err)
			}
			if _, err := complete(ctx, Isendrecv(c, buf, ProcNull, 1, buf, c.Size(), 1)); !errors.Is(err, ErrRank) {
				return fmt.Errorf("from no rank: %v", err)
			}
			st, err := complete(ctx, IsendrecvReplace(c, buf, ProcNull, 1, ProcNull, 1))
			if st != nullStatus || err != nil {
				return fmt.Errorf("between no ranks: %+v, %v", st, err)
			}
		}
		r := Isendrecv(c, []byte{5}, c.Rank(), 1, buf, c.Rank(), 1)
		if err := r.Cancel(); !errors.Is(err, errNoCancel) {
			return fmt.Errorf("cancelled: %v", err)
		}
		if _, err := r.Wait(ctx); err != nil || buf[0] != 5 {
			return fmt.Errorf("received %v, %v", buf, err)
		}
		return nil
	})
}
