package topology

import (
	"math"
	"slices"
	"testing"
)

// dumbDims tries every non-increasing factorisation, without pruning.
func dumbDims(n, k int) []int {
	var best []int
	var try func(cur []int, rest int)
	try = func(cur []int, rest int) {
		if len(cur) == k {
			if rest == 1 && (best == nil || closer(cur, best)) {
				best = slices.Clone(cur)
			}
			return
		}
		for d := 1; d <= rest; d++ {
			if rest%d == 0 && (len(cur) == 0 || d <= cur[len(cur)-1]) {
				try(append(cur, d), rest/d)
			}
		}
	}
	try(nil, n)
	return best
}

func closer(a, b []int) bool {
	spreadA, spreadB := a[0]-a[len(a)-1], b[0]-b[len(b)-1]
	return spreadA < spreadB || spreadA == spreadB && slices.Compare(a, b) < 0
}

// 8.5.2: as close to each other as possible, in non-increasing order.
func TestDimsAgainstBruteForce(t *testing.T) {
	for n := 1; n <= 360; n++ {
		for k := 1; k <= 5; k++ {
			got := make([]int, k)
			if err := Dims(n, got); err != nil {
				t.Fatal(err)
			}
			if want := dumbDims(n, k); !slices.Equal(got, want) {
				t.Fatalf("Dims(%d) of %d dimensions: %v, want %v", n, k, got, want)
			}
		}
	}
}

// 8.5.2: given sizes are kept, and only the zeros are set; the examples of the standard's table,
// and the edge cases.
func TestDimsGiven(t *testing.T) {
	for _, c := range []struct {
		n          int
		dims, want []int
	}{
		{6, []int{0, 0}, []int{3, 2}},
		{7, []int{0, 0}, []int{7, 1}},
		{6, []int{0, 3, 0}, []int{2, 3, 1}},
		{1, []int{}, []int{}},
		{12, []int{2, 6}, []int{2, 6}},
		{1, []int{0, 0, 0}, []int{1, 1, 1}},
		{24, []int{0, 1, 0, 0}, []int{4, 1, 3, 2}},
		{math.MaxInt32, []int{0, 0}, []int{math.MaxInt32, 1}},
		{1 << 30, []int{0, 0, 0}, []int{1 << 10, 1 << 10, 1 << 10}},
	} {
		if err := Dims(c.n, c.dims); err != nil || !slices.Equal(c.dims, c.want) {
			t.Errorf("Dims(%d): %v, %v, want %v", c.n, c.dims, err, c.want)
		}
	}
}

func TestDimsRefuse(t *testing.T) {
	for _, c := range []struct {
		n    int
		dims []int
		kind error
		says string
	}{
		{7, []int{0, 3, 0}, ErrDims, "dims[1] = 3: bad dimensions: 7 nodes are no multiple"},
		{12, []int{2, 4, 0}, ErrDims, "dims[1] = 4"},
		{12, []int{0, -1}, ErrDims, "dims[1] = -1: bad dimensions: it is negative"},
		{12, []int{math.MaxInt, math.MaxInt, 0}, ErrDims, "dims[0]"},
		{12, []int{2, 3}, ErrDims, "12 nodes, but the sizes given make 6"},
		{2, nil, ErrDims, "the sizes given make 1"},
		{0, []int{0}, ErrArg, "0 nodes"},
		{-4, []int{0}, ErrArg, "-4 nodes"},
		{math.MaxInt32 + 1, []int{0}, ErrArg, "must be 1 to 2147483647"},
	} {
		before := slices.Clone(c.dims)
		refused(t, Dims(c.n, c.dims), c.kind, "topology: Dims: ", c.says)
		if !slices.Equal(before, c.dims) {
			t.Errorf("a refused Dims changes %v to %v", before, c.dims)
		}
	}
}

// Numbers with very many divisors, in any number of dimensions: without the search's bounds this
// would not end.
func TestDimsLarge(t *testing.T) {
	for _, n := range []int{1 << 30, 735134400, 1102701600, 1396755360, 2095133040, 387420489, 2147483646, 1073741789 * 2, 6469693230 / 29 * 8, 1162261467} {
		for _, k := range []int{1, 2, 3, 4, 5, 8, 12, 31, 40} {
			got := balanced(n, k)
			product := 1
			for _, d := range got {
				product *= d
			}
			if product != n || len(got) != k || !slices.IsSortedFunc(got, func(a, b int) int { return b - a }) {
				t.Fatalf("%d in %d factors: %v", n, k, got)
			}
		}
	}
}
