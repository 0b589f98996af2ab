package bound

import (
	"math"
	"strings"
	"testing"
	"time"
)

const (
	kib  = 1 << 10
	mib  = 1 << 20
	gbit = 1e9 / 8 // bytes per second
)

// wide is four sites of 16 ranks, 20 ms there and back, 1 Gbit/s.
var wide = Grid{Sites: 4, Ranks: 16, Latency: 10 * time.Millisecond, Rate: gbit}

// Worked by hand, in ms.
func TestOf(t *testing.T) {
	two := Grid{Sites: 2, Ranks: 4, Latency: 0, Rate: 100e6 / 8}
	dealt := Grid{Sites: 2, Ranks: 4, Latency: 4 * time.Millisecond, Rate: 136e6 / 8, Dealt: true}
	for _, tc := range []struct {
		collective string
		g          Grid
		bytes      int
		ms         float64
	}{
		{"barrier", wide, 0, 10},
		{"barrier", wide, mib, 10},
		{"bcast", wide, mib, 18.4},
		{"bcast", wide, 64 * mib, 547},
		{"reduce", wide, mib, 18.4},
		{"scan", wide, mib, 18.4},
		{"exscan", wide, mib, 18.4},
		{"scan", dealt, mib, 250.7},
		{"exscan", dealt, 64 * kib, 19.4},
		{"bcast", dealt, mib, 65.7}, // independent of the order
		{"allreduce", wide, 8, 10},
		{"allreduce", wide, mib, 22.6},
		{"allreduce", wide, 64 * mib, 815},
		{"allgather", wide, 64 * kib, 35.2},
		{"allgatherv", wide, 64 * kib, 35.2},
		{"reduce_scatter_block", wide, 64 * kib, 35.2},
		{"reduce_scatter", wide, 64 * kib, 35.2},
		{"gather", wide, 64 * kib, 35.2},
		{"gatherv", wide, 64 * kib, 35.2},
		{"scatter", wide, 64 * kib, 35.2},
		{"scatterv", wide, 64 * kib, 35.2},
		{"alltoall", wide, 4 * kib, 35.2},
		{"alltoallv", wide, 4 * kib, 35.2},
		{"alltoallw", wide, 4 * kib, 35.2},
		{"allreduce", two, mib, 83.9}, // two sites exchange all they have: m/B
		{"allgather", two, 256 * kib, 83.9},
		{"bcast", Grid{Sites: 1, Ranks: 4, Latency: time.Second, Rate: 1}, mib, 0},
		{"bcast", Grid{Sites: 3, Ranks: 4, Latency: time.Second}, mib, 1000},
	} {
		got, err := Of(tc.collective, tc.g, tc.bytes)
		if ms := float64(got.Microseconds()) / 1000; err != nil || math.Abs(ms-tc.ms) > max(0.06, 0.001*tc.ms) {
			t.Errorf("%s of %d bytes on %+v: %.3f ms, %v; want %v ms", tc.collective, tc.bytes, tc.g, ms, err, tc.ms)
		}
	}
}

func TestRefusals(t *testing.T) {
	for _, g := range []Grid{{}, {Sites: 1}, {Sites: 1, Ranks: 1, Latency: -1}, {Sites: 1, Ranks: 1, Rate: -1}} {
		if _, err := Of("bcast", g, 1); err == nil {
			t.Errorf("%+v was taken", g)
		}
	}
	if _, err := Of("bcast", wide, -1); err == nil {
		t.Error("-1 bytes were taken")
	}
	if _, err := Of("sing", wide, 1); err == nil || !strings.Contains(err.Error(), "allgather, ") {
		t.Error(err)
	}
}
