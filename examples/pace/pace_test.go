package pace

import (
	"context"
	"errors"
	"testing"
	"time"
)

// clock is a time that passes only in work and in sleep.
type clock struct {
	now  time.Time
	naps int
	late time.Duration // by which sleeps are
}

func (c *clock) processor(rate float64) *Processor {
	p := New(rate)
	p.now = func() time.Time { return c.now }
	p.sleep = func(_ context.Context, d time.Duration) error {
		c.naps++
		c.now = c.now.Add(d + c.late)
		return nil
	}
	return p
}

func TestWorkTakesItsTime(t *testing.T) {
	for _, tt := range []struct {
		name       string
		pieces     int
		work, rate float64
		real, late time.Duration
		want       time.Duration
		naps       int
	}{
		{"a second's work", 1, 500, 500, 100 * time.Millisecond, 0, time.Second, 1},
		{"small pieces are put together", 100, 1, 10_000, 0, 0, 9900 * time.Microsecond, 33},
		{"late timers are made up for", 10, 10, 1000, time.Millisecond, 2 * time.Millisecond, 102 * time.Millisecond, 10},
		{"a slow machine is not", 3, 1, 1000, 50 * time.Millisecond, 0, 150 * time.Millisecond, 0},
		{"no rate", 3, 1e9, 0, 50 * time.Millisecond, 0, 150 * time.Millisecond, 0},
	} {
		c := &clock{now: time.Unix(0, 0), late: tt.late}
		p := c.processor(tt.rate)
		for range tt.pieces {
			if err := p.Do(t.Context(), tt.work, func() { c.now = c.now.Add(tt.real) }); err != nil {
				t.Fatal(err)
			}
		}
		if got := c.now.Sub(time.Unix(0, 0)); got != tt.want || c.naps != tt.naps {
			t.Errorf("%s: took %v with %d naps, want %v with %d", tt.name, got, c.naps, tt.want, tt.naps)
		}
	}
}

// What came much too late is not made up for at any speed.
func TestCreditIsBounded(t *testing.T) {
	c := &clock{now: time.Unix(0, 0)}
	p := c.processor(1)
	if err := p.Do(t.Context(), 1, func() { c.now = c.now.Add(time.Minute) }); err != nil {
		t.Fatal(err)
	}
	before := c.now
	if err := p.Do(t.Context(), 1, func() {}); err != nil {
		t.Fatal(err)
	}
	if got := c.now.Sub(before); got != time.Second-maxCredit {
		t.Errorf("took %v", got)
	}
}

func TestEndOfContext(t *testing.T) {
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(enough)
	if err := New(1).Do(ctx, 3600, func() {}); !errors.Is(err, enough) {
		t.Errorf("error %v", err)
	}
}
