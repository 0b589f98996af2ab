package bound

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/collectives/operation"
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
		collective operation.Operation
		g          Grid
		bytes      int
		ms         float64
	}{
		{operation.Barrier, wide, 0, 10},
		{operation.Barrier, wide, mib, 10},
		{operation.Bcast, wide, mib, 18.4},
		{operation.Bcast, wide, 64 * mib, 547},
		{operation.Reduce, wide, mib, 18.4},
		{operation.Scan, wide, mib, 18.4},
		{operation.Exscan, wide, mib, 18.4},
		{operation.Scan, dealt, mib, 250.7},
		{operation.Exscan, dealt, 64 * kib, 19.4},
		{operation.Bcast, dealt, mib, 65.7}, // independent of the order
		{operation.Allreduce, wide, 8, 10},
		{operation.Allreduce, wide, mib, 22.6},
		{operation.Allreduce, wide, 64 * mib, 815},
		{operation.Allgather, wide, 64 * kib, 35.2},
		{operation.Allgatherv, wide, 64 * kib, 35.2},
		{operation.ReduceScatterBlock, wide, 64 * kib, 35.2},
		{operation.ReduceScatter, wide, 64 * kib, 35.2},
		{operation.Gather, wide, 64 * kib, 35.2},
		{operation.Gatherv, wide, 64 * kib, 35.2},
		{operation.Scatter, wide, 64 * kib, 35.2},
		{operation.Scatterv, wide, 64 * kib, 35.2},
		{operation.Alltoall, wide, 4 * kib, 35.2},
		{operation.Alltoallv, wide, 4 * kib, 35.2},
		{operation.Alltoallw, wide, 4 * kib, 35.2},
		{operation.Allreduce, two, mib, 83.9}, // two sites exchange all they have: m/B
		{operation.Allgather, two, 256 * kib, 83.9},
		{operation.Bcast, Grid{Sites: 1, Ranks: 4, Latency: time.Second, Rate: 1}, mib, 0},
		{operation.Bcast, Grid{Sites: 3, Ranks: 4, Latency: time.Second}, mib, 1000},
	} {
		got, err := Of(tc.collective, tc.g, tc.bytes)
		if ms := float64(got.Microseconds()) / 1000; err != nil || math.Abs(ms-tc.ms) > max(0.06, 0.001*tc.ms) {
			t.Errorf("%s of %d bytes on %+v: %.3f ms, %v; want %v ms", tc.collective, tc.bytes, tc.g, ms, err, tc.ms)
		}
	}
}

func TestRefusals(t *testing.T) {
	for _, g := range []Grid{{}, {Sites: 1}, {Sites: 1, Ranks: 1, Latency: -1}, {Sites: 1, Ranks: 1, Rate: -1}} {
		if _, err := Of(operation.Bcast, g, 1); err == nil {
			t.Errorf("%+v was taken", g)
		}
	}
	if _, err := Of(operation.Bcast, wide, -1); err == nil {
		t.Error("-1 bytes were taken")
	}
	if _, err := Of(operation.Count, wide, 1); err == nil || !strings.Contains(err.Error(), "nothing is known of operation(18)") {
		t.Error(err)
	}
}
