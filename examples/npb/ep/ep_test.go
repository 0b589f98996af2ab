package ep

import (
	"context"
	"math"
	"testing"

	"github.com/isthmus-grid/isthmus/examples/npb/npbtest"
	"github.com/isthmus-grid/isthmus/examples/npb/random"
)

func TestOfficialValues(t *testing.T) {
	npbtest.Verify(t, Run, 3,
		npbtest.Class{Name: "S", Ranks: []int{3}}, npbtest.Class{Name: "S", Ranks: []int{1, 2, 4, 5, 8}, Long: true},
		npbtest.Class{Name: "W", Ranks: []int{4}, Long: true})
}

func TestUnknownClass(t *testing.T) {
	npbtest.Refused(t, Run, "X", 1, `no class "X", have [S W A B C]`)
}

// A single wrong pair, sum or digit must show.
func TestWrongTalliesAreSeen(t *testing.T) {
	s := classes["S"]
	right := sums{sumX: s.sumX, sumY: s.sumY}
	right.annulus[0] = int64(s.pairs)
	times := []float64{1, 0}
	if r := result("S", s, 1, right, times); !r.Verified {
		t.Fatalf("the official values are refused: %+v", r.Checks)
	}
	for name, spoil := range map[string]func(*sums){
		"sum X": func(w *sums) { w.sumX *= 1 + 1e-7 },
		"sum Y": func(w *sums) { w.sumY = -w.sumY },
		"pairs": func(w *sums) { w.annulus[9]++ },
		"NaN":   func(w *sums) { w.sumX = math.NaN() },
	} {
		wrong := right
		spoil(&wrong)
		if r := result("S", s, 1, wrong, times); r.Verified {
			t.Errorf("%s: verified %+v", name, r.Checks)
		}
	}
}

// However the batches are dealt, together they are the same pairs.
func TestSharesAreTheWhole(t *testing.T) {
	const m = batchBits + 3 // eight batches
	whole, err := share(t.Context(), 0, 1, m)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{2, 3, 7, 8, 11} {
		var sum sums
		for rank := range size {
			part, err := share(t.Context(), rank, size, m)
			if err != nil {
				t.Fatal(err)
			}
			for i, q := range part.annulus {
				sum.annulus[i] += q
			}
			sum.sumX += part.sumX
		}
		if sum.annulus != whole.annulus || math.Abs(sum.sumX-whole.sumX) > 1e-9*math.Abs(whole.sumX) {
			t.Errorf("%d shares give %+v, want %+v", size, sum, whole)
		}
	}
}

func TestCancelledBetweenBatches(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := share(ctx, 0, 1, 32); err != context.Canceled {
		t.Errorf("error is %v", err)
	}
}

func BenchmarkPairs(b *testing.B) {
	g := random.New(seed)
	var t sums
	for b.Loop() {
		t.add(&g, 1)
	}
}
