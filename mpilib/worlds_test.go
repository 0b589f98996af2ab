package mpilib

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
)

// betweenWorlds runs f as rank 0 of two worlds of two ranks each, with its communicator of either. Rank 1 of world i
// sends what comes through orders[i], as a message with that tag.
func betweenWorlds(t *testing.T, opts [2][]Option, f func(ctx context.Context, comms [2]*Comm, orders [2]chan int) error) {
	t.Helper()
	orders := [2]chan int{make(chan int), make(chan int)}
	comm, over := make(chan *Comm), make(chan struct{})
	var worlds sync.WaitGroup
	for i := range orders {
		worlds.Go(func() {
			TestWorld(t, 2, func(ctx context.Context, c *Comm) error {
				if c.Rank() == 1 {
					return sendOrdered(ctx, c, orders[i])
				}
				if i == 0 {
					return lend(ctx, c, comm, over)
				}
				defer close(over)
				defer close(orders[0])
				defer close(orders[1])
				select {
				case first := <-comm:
					return f(ctx, [2]*Comm{first, c}, orders)
				case <-ctx.Done():
					return ctx.Err()
				}
			}, opts[i]...)
		})
	}
	worlds.Wait()
}

// lend passes on a communicator until its user is over.
func lend(ctx context.Context, c *Comm, to chan<- *Comm, over <-chan struct{}) error {
	select {
	case to <- c:
	case <-ctx.Done():
		return ctx.Err()
	}
	<-over
	return nil
}

// sendOrdered sends rank 0 a message with each tag of orders, until they are closed.
func sendOrdered(ctx context.Context, c *Comm, orders <-chan int) error {
	for tag := range orders {
		if err := Send(ctx, c, []int32{int32(tag)}, 0, tag); err != nil {
			return err
		}
	}
	return nil
}

// twoWorldOptions are the kinds of worlds whose requests are waited for together.
var twoWorldOptions = map[string][2][]Option{
	"memory":       {},
	"links":        {{WithoutSharedMemory()}, {WithoutSharedMemory()}},
	"both":         {{WithoutSharedMemory()}, {}},
	"debug first":  {{WithDebug(io.Discard)}, {}},
	"debug second": {{}, {WithDebug(io.Discard)}},
	"debug":        {{WithDebug(io.Discard)}, {WithDebug(io.Discard)}},
}

// Waitany, Waitsome, Testany and Testsome find a request that is complete among those of two worlds, whichever of
// them makes progress.
func TestAnyOfTwoWorlds(t *testing.T) {
	parallel(t)
	for name, opts := range twoWorldOptions {
		t.Run(name, func(t *testing.T) {
			parallel(t)
			betweenWorlds(t, opts, func(ctx context.Context, comms [2]*Comm, orders [2]chan int) error {
				for round := range 16 {
					if err := anyOfTwo(ctx, comms, orders, round); err != nil {
						return fmt.Errorf("round %d: %w", round, err)
					}
				}
				return nil
			})
		})
	}
}

// anyOfTwo receives one message in each world, in an order and by calls that depend on the round.
func anyOfTwo(ctx context.Context, comms [2]*Comm, orders [2]chan int, round int) error {
	var requests [2]*Request
	var got [2][1]int32
	for i, c := range comms {
		requests[i] = Irecv(c, got[i][:], 1, round)
	}
	first := round % 2
	orders[first] <- round
	if i, err := findOne(ctx, round/2%4, requests[:]); err != nil || i != first {
		return fmt.Errorf("request %d is complete, want %d: %v", i, first, err)
	}
	rest := []*Request{requests[0], requests[1]}
	rest[first] = nil
	orders[1-first] <- round
	if i, _, err := Waitany(ctx, rest...); err != nil || i != 1-first {
		return fmt.Errorf("then request %d is complete, want %d: %v", i, 1-first, err)
	}
	if got[0][0] != int32(round) || got[1][0] != int32(round) {
		return fmt.Errorf("received %v, want %d twice", got, round)
	}
	return nil
}

// findOne returns the only request that is, or will be, complete, found by one of four calls.
func findOne(ctx context.Context, by int, requests []*Request) (int, error) {
	var some []int
	var err error
	for ctx.Err() == nil && len(some) == 0 && err == nil {
		i, done := 0, false
		switch by {
		case 0:
			i, _, err = Waitany(ctx, requests...)
			some = []int{i}
		case 1:
			some, _, err = Waitsome(ctx, requests...)
		case 2:
			if i, _, done, err = Testany(requests...); done {
				some = []int{i}
			}
		case 3:
			some, _, err = Testsome(requests...)
		}
	}
	if err = errors.Join(err, ctx.Err()); err != nil || len(some) != 1 {
		return Undefined, fmt.Errorf("found %v, %v", some, err)
	}
	return some[0], nil
}

// A wait for requests of two worlds ends with its context, and abandons none of them.
func TestAnyOfTwoWorldsCancelled(t *testing.T) {
	parallel(t)
	betweenWorlds(t, [2][]Option{}, func(ctx context.Context, comms [2]*Comm, orders [2]chan int) error {
		var got [2][1]int32
		requests := []*Request{Irecv(comms[0], got[0][:], 1, 1), Irecv(comms[1], got[1][:], 1, 1)}
		short, cancel := context.WithCancelCause(ctx)
		why := errors.New("no more")
		go cancel(why)
		if i, _, err := Waitany(short, requests...); i != Undefined || !errors.Is(err, why) {
			return fmt.Errorf("request %d, %v; want the context's error", i, err)
		}
		orders[0] <- 1
		orders[1] <- 1
		_, err := Waitall(ctx, requests...)
		return err
	})
}
