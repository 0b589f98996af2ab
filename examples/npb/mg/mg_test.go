package mg

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/isthmus-grid/isthmus/examples/npb"
	"github.com/isthmus-grid/isthmus/examples/npb/npbtest"
	"github.com/isthmus-grid/isthmus/examples/npb/random"
	"github.com/isthmus-grid/isthmus/mpilib"
)

func TestOfficialValues(t *testing.T) {
	npbtest.Verify(t, Run, 1,
		npbtest.Class{Name: "S", Ranks: []int{1, 2, 4, 8, 16}},
		npbtest.Class{Name: "W", Ranks: []int{4}, Long: true})
}

// Wherever the levels cease to be dealt out, the norm is the same. With four
// ranks, those of two and of four points are whole in any case.
func TestWholeLevels(t *testing.T) {
	p := problems["S"]
	for _, whole := range []int{0, 3} {
		mpilib.TestWorld(t, 4, func(ctx context.Context, comm *mpilib.Comm) error {
			s := newSolver(comm, p.levels, whole)
			if err := s.placeCharges(ctx); err != nil {
				return err
			}
			norm, err := s.solve(ctx, p.cycles)
			if c := npb.NewCheck("norm", norm, p.norm, tolerance); err != nil || !c.OK {
				return fmt.Errorf("levels up to %d whole: %+v, %v", whole, c, err)
			}
			return nil
		})
	}
}

func TestRefusals(t *testing.T) {
	npbtest.Refused(t, Run, "X", 1, `mg: no class "X", have [S W A]`)
	npbtest.Refused(t, Run, "S", 6, "mg: 6 ranks: this class runs on a power of two of ranks, at most 16; start 4 of them")
}

func TestWrongNormIsSeen(t *testing.T) {
	s := problems["S"]
	times := []float64{1, 0}
	if r := result("S", s, 1, s.norm, times); !r.Verified {
		t.Fatalf("the official value is refused: %+v", r.Checks)
	}
	for _, wrong := range []float64{s.norm * (1 + 2e-8), 0, math.NaN()} {
		if r := result("S", s, 1, wrong, times); r.Verified {
			t.Errorf("verified %+v", r.Checks)
		}
	}
}

func TestExtremes(t *testing.T) {
	const count = 5000
	g := random.New(seed)
	g.Skip(77)
	all := make([]candidate, count)
	for i := range all {
		all[i] = candidate{g.Next(), int64(77 + i)}
	}
	slices.SortFunc(all, byNumber)
	want := append(slices.Clone(all[:charges]), all[count-charges:]...)
	if got := extremes(77, count); !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// filled returns a whole grid of random numbers, its border periodic.
func filled(n int, seed uint64) grid {
	g, r := newGrid(n, n), random.New(seed)
	for k := range n {
		for j := range n {
			for i := range n {
				g.row(k, j)[i+1] = r.Float64()
			}
		}
	}
	g.wrap()
	g.wrapPlanes()
	return g
}

// at reads point i, j, k of a periodic grid without a look at its border.
func at(g grid, i, j, k int) float64 {
	n := g.n
	return g.row((k+n)%n, (j+n)%n)[(i+n)%n+1]
}

// stencil is w around a point, neighbour by neighbour.
func stencil(g grid, w weights, i, j, k int) (sum float64) {
	for c := -1; c <= 1; c++ {
		for b := -1; b <= 1; b++ {
			for a := -1; a <= 1; a++ {
				sum += w[a*a+b*b+c*c] * at(g, i+a, j+b, k+c)
			}
		}
	}
	return sum
}

func points(n int, visit func(i, j, k int)) {
	for k := range n {
		for j := range n {
			for i := range n {
				visit(i, j, k)
			}
		}
	}
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-13 }

func TestApply(t *testing.T) {
	const n = 8
	src, base, dst := filled(n, 1), filled(n, 3), newGrid(n, n)
	w := weights{.5, -3, 7, .25}
	newSums(n).apply(dst, base, src, w)
	points(n, func(i, j, k int) {
		if got, want := at(dst, i, j, k), at(base, i, j, k)+stencil(src, w, i, j, k); !near(got, want) {
			t.Errorf("point %d,%d,%d: %v, want %v", i, j, k, got, want)
		}
	})
}

func TestRestrict(t *testing.T) {
	const n = 8
	fine, coarse := filled(2*n, 1), newGrid(n, n)
	newSums(2*n).restrict(coarse, fine)
	points(n, func(i, j, k int) {
		if got, want := at(coarse, i, j, k), stencil(fine, restriction, 2*i+1, 2*j+1, 2*k+1); !near(got, want) {
			t.Errorf("point %d,%d,%d: %v, want %v", i, j, k, got, want)
		}
	})
}

// Every fine point, and the border, is the mean of the coarse ones around it;
// so also for a part of the planes.
func TestProlong(t *testing.T) {
	const n = 8
	coarse := filled(n, 1)
	want := filled(2*n, 3)
	for k := -1; k <= 2*n; k++ {
		for j := -1; j <= 2*n; j++ {
			for i := -1; i <= 2*n; i++ {
				var mean float64
				for corner := range 8 {
					pick := func(fine, bit int) int {
						low, high := between(fine)
						if corner>>bit&1 != 0 {
							return high
						}
						return low
					}
					mean += at(coarse, pick(i, 0), pick(j, 1), pick(k, 2)) / 8
				}
				want.row(k, j)[i+1] += mean
			}
		}
	}
	same := func(what string, got, want grid) {
		for i := range got.a {
			if !near(got.a[i], want.a[i]) {
				t.Errorf("%s: element %d is %v, want %v", what, i, got.a[i], want.a[i])
				return
			}
		}
	}
	fine := filled(2*n, 3)
	newSums(2*n).prolong(fine, coarse)
	same("whole", fine, want)
	fine = filled(2*n, 3)
	newSums(2*n).prolong(fine.part(4, 4), coarse.part(2, 2))
	same("part", fine.part(4, 4), want.part(4, 4))
}

func BenchmarkApply(b *testing.B) {
	const n = 32
	u, r, s := filled(n, 1), filled(n, 3), newSums(n)
	b.SetBytes(8 * n * n * n)
	for b.Loop() {
		s.apply(r, r, u, laplacian)
	}
}
