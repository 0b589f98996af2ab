package carrier

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// TestLosses: connections on paths of many kinds. Those that lose data at random on a long path are
// found, and soon; those that lose none, fill a queue, or lose data in one burst are not.
func TestLosses(t *testing.T) {
	const long = 200 * time.Millisecond
	for _, tc := range []struct {
		name     string
		segments int // a second
		part     float64
		rtt      time.Duration
		queue    time.Duration // queueing delay on top of it
		burst    int           // lost in the third second
		within   int           // seconds until it must be found; 0: never
	}{
		{name: "one in a hundred at 1 Mb/s", segments: 90, part: 0.01, rtt: long, within: 20},
		{name: "one in a hundred at 50 Mb/s", segments: 4000, part: 0.01, rtt: long, within: 4},
		{name: "one in three hundred", segments: 1000, part: 1.0 / 300, rtt: long, within: 12},
		{name: "none", segments: 1000, rtt: long},
		{name: "one in ten thousand", segments: 4000, part: 0.0001, rtt: long},
		{name: "a short path", segments: 4000, part: 0.01, rtt: time.Millisecond},
		{name: "a full path", segments: 4000, part: 0.01, rtt: long, queue: 150 * time.Millisecond},
		{name: "a short full path", segments: 4000, part: 0.01, rtt: 10 * time.Millisecond, queue: 6 * time.Millisecond},
		{name: "one burst", segments: 4000, rtt: long, burst: 3000},
		{name: "idle", rtt: long},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for seed := range uint64(20) {
				draw := rand.New(rand.NewPCG(seed, 1))
				var l losses
				x := lossSample{segments: 1<<32 - 500, again: 1<<32 - 3, rtt: tc.rtt + tc.queue, shortest: tc.rtt} // counters wrap
				found := 0
				for second := 1; second <= 120 && found == 0; second++ {
					if l.lossy(x, time.Unix(int64(second), 0)) {
						found = second
					}
					x.segments += uint32(tc.segments)
					for range tc.segments {
						if draw.Float64() < tc.part {
							x.again++
						}
					}
					if second == 3 {
						x.again += uint32(tc.burst)
					}
				}
				if says := fmt.Sprintf("seed %d: found after %d s, want within %d (0: never)", seed, found, tc.within); tc.within == 0 && found > 0 || tc.within > 0 && (found == 0 || found > tc.within) {
					t.Error(says)
				}
			}
		})
	}
}
