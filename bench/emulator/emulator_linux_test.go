//go:build system

package emulator

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/wan"
)

func TestMain(m *testing.M) {
	lab.Main() // an ordinary user may build the rig too
	m.Run()
}

func TestMeasurements(t *testing.T) {
	const delay = 3 * time.Millisecond
	err := with(&wan.Shape{Delay: delay}, func(r rig) error {
		times, err := r.roundTrips(t.Context(), 10)
		if err != nil {
			return err
		}
		if len(times) != 10 || times[0] < ms(2*delay) {
			t.Errorf("round trips %v, none may be less than %v", times, 2*delay)
		}
		times, err = r.deliver(t.Context(), 100, 100*time.Microsecond)
		if err != nil {
			return err
		}
		if len(times) != 100 || times[0] < ms(delay) {
			t.Errorf("%d one-way times from %v, want 100, none less than %v", len(times), times[0], delay)
		}
		v, err := r.goodput(t.Context(), 2, 10*time.Millisecond, 50*time.Millisecond)
		if err == nil && v <= 0 {
			t.Errorf("goodput %v", v)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestLossAccounts(t *testing.T) {
	rows, err := loss(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if r.Met == nil || !*r.Met {
			t.Errorf("%+v", r)
		}
	}
}

func TestMeasurementsEndWithTheirContext(t *testing.T) {
	err := with(nil, func(r rig) error {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, measure := range []func() error{
			func() error { _, err := r.roundTrips(ctx, 10); return err },
			func() error { _, err := r.deliver(ctx, 10, time.Millisecond); return err },
			func() error { _, err := r.goodput(ctx, 1, time.Hour, time.Hour); return err },
		} {
			start := time.Now()
			err := measure()
			if err == nil || time.Since(start) > patience/2 {
				t.Errorf("ended with %v after %v", err, time.Since(start))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jitter(canceled()); !errors.Is(err, context.Canceled) {
		t.Errorf("jitter: %v", err)
	}
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
