package cg

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/examples/npb/npbtest"
	"github.com/isthmus-grid/isthmus/mpilib"
)

func TestOfficialValues(t *testing.T) {
	npbtest.Verify(t, Run, 1,
		npbtest.Class{Name: "S", Ranks: []int{1, 8}}, npbtest.Class{Name: "S", Ranks: []int{2, 4}, Long: true},
		npbtest.Class{Name: "W", Ranks: []int{4}, Long: true})
}

func TestRefusals(t *testing.T) {
	npbtest.Refused(t, Run, "X", 1, `cg: no class "X", have [S W A]`)
	npbtest.Refused(t, Run, "S", 3, "cg: 3 ranks: this class runs on a power of two of ranks, at most 1024; start 2 of them")
}

// The tenth digit must show.
func TestWrongZetaIsSeen(t *testing.T) {
	s := problems["S"]
	times := []float64{1, 0}
	if r := result("S", s, 1, s.zeta, times); !r.Verified {
		t.Fatalf("the official value is refused: %+v", r.Checks)
	}
	for _, wrong := range []float64{s.zeta * (1 + 2e-10), -s.zeta, math.NaN()} {
		if r := result("S", s, 1, wrong, times); r.Verified {
			t.Errorf("verified %+v", r.Checks)
		}
	}
}

// A shift into the midst of the eigenvalues leaves a matrix that 25 steps
// cannot solve for. Then there is no result.
func TestResidualIsSeen(t *testing.T) {
	mpilib.TestWorld(t, 2, func(ctx context.Context, comm *mpilib.Comm) error {
		p := problems["S"]
		p.shift = 0.5
		s, err := newSolver(ctx, comm, p)
		if err != nil {
			return err
		}
		if _, err := s.iterate(ctx, 1); err == nil || !strings.Contains(err.Error(), "iteration 1: the solution's residual is ") {
			return fmt.Errorf("error is %v", err)
		}
		return nil
	})
}

func TestPlaces(t *testing.T) {
	for ranks := 1; ranks <= 64; ranks *= 2 {
		const n = 1401 // even blocks would hide mistakes
		covered := make(map[[2]int]int)
		for rank := range ranks {
			p := placeOf(rank, ranks, n)
			q := placeOf(p.partner, ranks, n)
			if q.partner != rank {
				t.Errorf("%d ranks: %d's partner is %d, whose partner is %d", ranks, rank, p.partner, q.partner)
			}
			if p.sendLow != q.colLow || p.sendHigh != q.colHigh || q.colLow < p.rowLow || q.colHigh > p.rowHigh {
				t.Errorf("%d ranks: %d sends [%d,%d) of [%d,%d), %d needs [%d,%d)", ranks, rank,
					p.sendLow, p.sendHigh, p.rowLow, p.rowHigh, p.partner, q.colLow, q.colHigh)
			}
			covered[[2]int{p.rowLow, p.colLow}] += (p.rowHigh - p.rowLow) * (p.colHigh - p.colLow)
		}
		elements := 0
		for _, n := range covered {
			elements += n
		}
		if len(covered) != ranks || elements != n*n {
			t.Errorf("%d ranks hold %d blocks, %d elements of %d", ranks, len(covered), elements, n*n)
		}
	}
}

// The blocks against a dense matrix by the formula.
func TestMakeBlock(t *testing.T) {
	p := problem{n: 45, nonzeros: 4, shift: 3}
	want := dense(p)
	for _, ranks := range []int{1, 2, 8} {
		for rank := range ranks {
			at := placeOf(rank, ranks, p.n)
			m := p.makeBlock(at)
			got := make([]float64, at.colHigh-at.colLow)
			for i := range at.rowHigh - at.rowLow {
				clear(got)
				for k := m.start[i]; k < m.start[i+1]; k++ {
					if k > m.start[i] && m.col[k] <= m.col[k-1] {
						t.Fatalf("row %d: columns do not ascend: %v", i, m.col[m.start[i]:m.start[i+1]])
					}
					got[m.col[k]] = m.val[k]
				}
				for j, x := range got {
					if y := want[at.rowLow+i][at.colLow+j]; math.Abs(x-y) > 1e-15*math.Abs(y) {
						t.Errorf("rank %d of %d: element %d,%d is %v, want %v", rank, ranks, at.rowLow+i, at.colLow+j, x, y)
					}
				}
			}
		}
	}
}

func dense(p problem) [][]float64 {
	a := make([][]float64, p.n)
	for i := range a {
		a[i] = make([]float64, p.n)
	}
	v := p.makeVectors()
	weight := 1.0
	for i := range p.n {
		at, value := v.vector(i)
		for k, row := range at {
			for l, col := range at {
				a[row][col] += weight * value[k] * value[l]
			}
		}
		weight *= math.Pow(rcond, 1/float64(p.n))
	}
	for i := range a {
		a[i][i] += rcond - p.shift
	}
	return a
}

func BenchmarkTimes(b *testing.B) {
	p := problems["S"]
	m := p.makeBlock(placeOf(0, 1, p.n))
	v, out := make([]float64, p.n), make([]float64, p.n)
	b.SetBytes(int64(12 * len(m.val)))
	for b.Loop() {
		m.times(v, out)
	}
}
