package control

import (
	"slices"
	"testing"
	"time"
)

// TestPauses: the waits double up to their bound and start over after a session, and the first
// failure is logged and then one every ten seconds.
func TestPauses(t *testing.T) {
	for _, tc := range []struct {
		name     string
		longest  time.Duration
		accepted []int // after which failures there had been a session
		want     []time.Duration
		told     []int
	}{
		{"the default", 0, nil, []time.Duration{100, 200, 400, 800, 1600, 2000, 2000, 2000, 2000, 2000}, []int{0, 9}},
		{"within a site", time.Second, nil, []time.Duration{100, 200, 400, 800, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000}, []int{0, 13}},
		{"a session in between", 0, []int{3}, []time.Duration{100, 200, 400, 50, 100}, []int{0, 3}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := pauses{longest: tc.longest}
			now := time.Now()
			for i, want := range tc.want {
				wait, tell := p.next(slices.Contains(tc.accepted, i), now)
				if wait != want*time.Millisecond || tell != slices.Contains(tc.told, i) {
					t.Errorf("failure %d: wait %v, told %t; want %v, %t", i, wait, tell, want*time.Millisecond, slices.Contains(tc.told, i))
				}
				now = now.Add(wait)
			}
		})
	}
}
