package faults

import (
	"testing"
	"time"
)

func TestGaps(t *testing.T) {
	var g gaps
	if q := g.quantile(0.99); q != 0 {
		t.Errorf("of nothing: %v", q)
	}
	start := time.Unix(1000, 0)
	now := start
	g.note(now)
	for range 98 {
		now = now.Add(time.Millisecond)
		g.note(now)
	}
	for range 2 {
		now = now.Add(time.Second)
		g.note(now)
	}
	for _, c := range []struct {
		q    float64
		want time.Duration
	}{{0.5, time.Millisecond}, {0.98, time.Millisecond}, {0.99, time.Second}, {1, time.Second}} {
		if got := g.quantile(c.q); got < c.want || got > c.want*12/10 {
			t.Errorf("quantile %v: %v, want %v", c.q, got, c.want)
		}
	}
	if len(g.long) != 2 || g.long[0].Length != time.Second || !g.long[1].to().Equal(now) {
		t.Errorf("long gaps: %v", g.long)
	}
}
