package mpilib

import (
	"context"
	"errors"
	"slices"
	"testing"
)

// Each rank of a ring puts values for the next one until it has the last value of the one before.
func TestSlots(t *testing.T) {
	const last = 200
	for _, opts := range [][]Option{nil, {WithoutSharedMemory()}} {
		TestWorld(t, 3, func(ctx context.Context, c *Comm) error {
			next, before := (c.Rank()+1)%3, (c.Rank()+2)%3
			out, err := PutTo[float64](c, next, 1, 100)
			if err != nil {
				return err
			}
			in, err := GetFrom[float64](c, before, 1, 100)
			if err != nil {
				return err
			}
			defer in.Close()
			v, got := make([]float64, 100), make([]float64, 100)
			for i := range uint64(last) {
				for k := range v {
					v[k] = float64(c.Rank()*1000) + float64(i+1)
				}
				if err := out.Put(i+1, v[:50+i%50]); err != nil {
					return err
				}
			}
			for number, n := uint64(0), 0; number < last; {
				if err := in.Await(ctx, number); err != nil {
					return err
				}
				before, was := number, number
				if number, n, err = in.Get(got); err != nil {
					return err
				}
				want := float64((c.Rank()+2)%3*1000) + float64(number)
				if number <= was || n != 50+int(number-1)%50 || slices.ContainsFunc(got[:n], func(x float64) bool { return x != want }) {
					t.Errorf("after value %d: value %d of %d elements, %v", before, number, n, got[:n])
				}
			}
			counts := in.Counts()
			if counts.Received == 0 || counts.Dropped != 0 {
				t.Errorf("rank %d: %+v", c.Rank(), counts)
			}
			return Barrier(ctx, c) // nobody leaves before all have the last value
		}, opts...)
	}
}

func TestSlotArguments(t *testing.T) {
	TestWorld(t, 2, func(_ context.Context, c *Comm) error {
		for name, err := range map[string]error{
			"no such rank":   second(PutTo[int](c, 2, 1, 1)),
			"no such number": second(PutTo[int](c, 1-c.Rank(), -1, 1)),
			"no elements":    second(GetFrom[int](c, 1-c.Rank(), 1, 0)),
			"itself":         second(GetFrom[int](c, c.Rank(), 1, 1)),
			"any rank":       second(GetFrom[int](c, AnySource, 1, 1)),
		} {
			if err == nil {
				t.Errorf("%s: no error", name)
			}
		}
		out, err := PutTo[int](c, 1-c.Rank(), 1, 1)
		if err != nil {
			return err
		}
		if err := out.Put(0, nil); !errors.Is(err, ErrSlot) {
			t.Errorf("number 0: %v", err)
		}
		if err := out.Put(1, []int{1, 2}); !errors.Is(err, ErrSlot) {
			t.Errorf("too long: %v", err)
		}
		return nil
	})
}
