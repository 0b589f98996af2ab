package is

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/isthmus-grid/isthmus/examples/npb/npbtest"
	"github.com/isthmus-grid/isthmus/examples/npb/random"
	"github.com/isthmus-grid/isthmus/mpilib"
)

func TestOfficialValues(t *testing.T) {
	npbtest.Verify(t, Run, iterations*tests+3,
		npbtest.Class{Name: "S", Ranks: []int{1, 2, 3, 4, 5, 8}}, npbtest.Class{Name: "W", Ranks: []int{1, 2, 3, 4, 5, 8}, Long: true},
		npbtest.Class{Name: "A", Ranks: []int{2}, Long: true})
}

func TestUnknownClass(t *testing.T) {
	npbtest.Refused(t, Run, "X", 1, `no class "X", have [S W A B C]`)
}

// The ranks of test keys, once more by counting smaller keys one by one.
func TestRanksAgainstCounting(t *testing.T) {
	const n = 3
	p := problems["S"]
	keys := p.makeKeys(0, p.keys())
	mpilib.TestWorld(t, n, func(ctx context.Context, comm *mpilib.Comm) error {
		mine := slices.Clone(keys)
		s := newSorter(comm, p)
		for it := 1; it <= 3; it++ {
			if err := s.iterate(ctx, it); err != nil {
				return err
			}
			p.change(mine, 0, it)
			for low := range len(s.below) - 1 {
				if low%37 != 0 {
					continue
				}
				var smaller int64
				for _, k := range mine {
					if int(k) < s.low+low {
						smaller++
					}
				}
				if s.below[low] != smaller {
					return fmt.Errorf("iteration %d: %d keys below %d, want %d", it, s.below[low], s.low+low, smaller)
				}
			}
		}
		return nil
	})
}

// Keys by the floating-point formula of the report, exact in float64.
func TestMakeKeys(t *testing.T) {
	for c, p := range problems {
		g := random.New(seed)
		want := make([]int32, 1000)
		for i := range want {
			sum := g.Float64() + g.Float64() + g.Float64() + g.Float64()
			want[i] = int32(float64(p.maxKey()/4) * sum)
		}
		if got := p.makeKeys(0, 1000); !slices.Equal(got, want) {
			t.Errorf("class %s: keys differ from the formula", c)
		}
		if got := p.makeKeys(333, 1000); !slices.Equal(got, want[333:]) {
			t.Errorf("class %s: keys from 333 on differ", c)
		}
	}
}

func TestChange(t *testing.T) {
	p := problems["S"]
	all := make([]int32, 64)
	p.change(all, 0, 3)
	for first := range 64 {
		part := make([]int32, 7)
		p.change(part, first, 3)
		for i, k := range part {
			if want := int32(0); first+i < 64 && k != all[first+i] || first+i >= 64 && k != want {
				t.Errorf("place %d of a part from %d: %d", first+i, first, k)
			}
		}
	}
	if all[3] != 3 || all[13] != 2048-3 {
		t.Errorf("changed keys are %d and %d", all[3], all[13])
	}
}

func TestDeal(t *testing.T) {
	tests := []struct {
		totals []int64
		p      int
		want   []int
	}{
		{[]int64{1, 1, 1, 1}, 1, []int{0, 4}},
		{[]int64{1, 1, 1, 1}, 2, []int{0, 2, 4}},
		{[]int64{1, 1, 1, 1}, 3, []int{0, 1, 2, 4}},
		{[]int64{9, 0, 0, 0}, 3, []int{0, 1, 1, 4}},
		{[]int64{0, 0, 0, 9}, 3, []int{0, 4, 4, 4}},
		{[]int64{1, 5, 1, 1}, 2, []int{0, 2, 4}},
		{[]int64{2}, 4, []int{0, 0, 1, 1, 1}},
	}
	for _, tt := range tests {
		if got := deal(tt.totals, tt.p); !slices.Equal(got, tt.want) {
			t.Errorf("deal(%v, %d) = %v, want %v", tt.totals, tt.p, got, tt.want)
		}
	}
}

func TestJudge(t *testing.T) {
	tests := []struct {
		ends     []edge
		disorder int64
	}{
		{[]edge{{Keys: 2, Low: 1, High: 4}, {Keys: 1, Low: 4, High: 4}}, 0},
		{[]edge{{Keys: 2, Low: 1, High: 4}, {}, {Keys: 1, Low: 3, High: 3}}, 1},
		{[]edge{{Keys: 2, Low: 1, High: 4, Disorder: 5}}, 5},
		{[]edge{{}, {Keys: 1}}, 0},
	}
	for _, tt := range tests {
		if disorder, _, _ := judge(tt.ends); disorder != tt.disorder {
			t.Errorf("%+v: %d out of order, want %d", tt.ends, disorder, tt.disorder)
		}
	}
}

// A rank array that is off by one anywhere cannot pass the full test.
func TestFullTestSeesWrongRanks(t *testing.T) {
	mpilib.TestWorld(t, 1, func(ctx context.Context, comm *mpilib.Comm) error {
		s := newSorter(comm, problems["S"])
		if err := s.iterate(ctx, 1); err != nil {
			return err
		}
		if e := s.sorted(); e.Disorder != 0 || e.Sum != sumOf(s.keys) {
			return fmt.Errorf("right ranks are refused: %+v", e)
		}
		s.below[1000]--
		if e := s.sorted(); e.Disorder == 0 && e.Sum == sumOf(s.keys) {
			return fmt.Errorf("a wrong rank passes: %+v", e)
		}
		return nil
	})
}

func BenchmarkMakeKeys(b *testing.B) {
	b.SetBytes(4 << 16)
	for b.Loop() {
		problems["S"].makeKeys(0, 1<<16)
	}
}
