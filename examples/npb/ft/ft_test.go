package ft

import (
	"context"
	"fmt"
	"math"
	"math/cmplx"
	"slices"
	"testing"

	"github.com/isthmus-grid/isthmus/examples/npb/npbtest"
	"github.com/isthmus-grid/isthmus/examples/npb/random"
	"github.com/isthmus-grid/isthmus/mpilib"
)

func TestOfficialValues(t *testing.T) {
	npbtest.Verify(t, Run, 12,
		npbtest.Class{Name: "S", Ranks: []int{1, 2, 4, 8}},
		npbtest.Class{Name: "W", Ranks: []int{4}, Long: true})
}

// As many ranks as planes: nothing is left over for anybody.
func TestPlaneEach(t *testing.T) {
	const nx, ny, nz = 16, 4, 8
	p := problem{nx, ny, nz, make([]complex128, 3)}
	var want []complex128
	for _, n := range []int{1, 8} {
		mpilib.TestWorld(t, n, func(ctx context.Context, comm *mpilib.Comm) error {
			sums, err := newSolver(comm, p).solve(ctx)
			if err != nil {
				return err
			}
			if n == 1 {
				want = slices.Clone(sums)
			}
			for i := range want {
				if !near(sums[i], want[i]) {
					return fmt.Errorf("%d ranks: checksums %v, want %v", n, sums, want)
				}
			}
			return nil
		})
	}
}

// The checksum after a step, once more by the definition of the transform.
func TestStepAgainstSums(t *testing.T) {
	p := problem{8, 4, 2, make([]complex128, 2)}
	values := make([]complex128, p.points())
	g := random.New(seed)
	for i := range values {
		re := g.Float64()
		values[i] = complex(re, g.Float64())
	}
	// All waves of all points: what weights turn into a time step's values.
	dft := func(in []complex128, sign float64) []complex128 {
		out := make([]complex128, len(in))
		each(p, func(o, x, y, z int) {
			each(p, func(i, a, b, c int) {
				phase := float64(x*a)/float64(p.nx) + float64(y*b)/float64(p.ny) + float64(z*c)/float64(p.nz)
				out[o] += in[i] * cmplx.Rect(1, sign*2*math.Pi*phase)
			})
		})
		return out
	}
	waves := dft(values, -1)
	mpilib.TestWorld(t, 2, func(ctx context.Context, comm *mpilib.Comm) error {
		sums, err := newSolver(comm, p).solve(ctx)
		if err != nil {
			return err
		}
		for step := range sums {
			then := slices.Clone(waves)
			each(p, func(i, x, y, z int) {
				number := func(k, n int) float64 { return float64((k+n/2)%n - n/2) }
				a, b, c := number(x, p.nx), number(y, p.ny), number(z, p.nz)
				then[i] *= complex(math.Exp(-4e-6*math.Pi*math.Pi*(a*a+b*b+c*c)*float64(step+1)), 0)
			})
			solution := dft(then, 1)
			var want complex128
			for j := 1; j <= 1024; j++ {
				want += solution[(5*j%p.nz*p.ny+3*j%p.ny)*p.nx+j%p.nx] / complex(float64(p.points()), 0)
			}
			if !near(sums[step], want) {
				return fmt.Errorf("step %d: checksum %v, want %v", step+1, sums[step], want)
			}
		}
		return nil
	})
}

func each(p problem, visit func(i, x, y, z int)) {
	for i := range p.points() {
		visit(i, i%p.nx, i/p.nx%p.ny, i/(p.nx*p.ny))
	}
}

func near(a, b complex128) bool { return cmplx.Abs(a-b) <= 1e-12*cmplx.Abs(b) }

func TestRefusals(t *testing.T) {
	npbtest.Refused(t, Run, "X", 1, `ft: no class "X", have [S W A]`)
	npbtest.Refused(t, Run, "W", 5, "ft: 5 ranks: this class runs on a power of two of ranks, at most 32; start 4 of them")
}

// A twelfth digit of any step must show.
func TestWrongChecksumsAreSeen(t *testing.T) {
	s := problems["S"]
	times := []float64{1, 0}
	if r := result("S", s, 1, s.checksums, times); !r.Verified {
		t.Fatalf("the official values are refused: %+v", r.Checks)
	}
	for i := range s.checksums {
		for _, wrong := range []complex128{s.checksums[i] + 1e-8, s.checksums[i] + 1e-8i, cmplx.Conj(s.checksums[i]), cmplx.NaN()} {
			sums := slices.Clone(s.checksums)
			sums[i] = wrong
			if r := result("S", s, 1, sums, times); r.Verified {
				t.Errorf("verified %+v", r.Checks)
			}
		}
	}
}

func TestTransform(t *testing.T) {
	for _, n := range []int{2, 4, 8, 32} {
		for _, lines := range []int{1, 3} {
			tr := newTransform(n)
			g := random.New(seed)
			in := make([]complex128, n*lines)
			for i := range in {
				in[i] = complex(g.Float64(), g.Float64())
			}
			got, scratch := slices.Clone(in), make([]complex128, n*lines)
			tr.run(got, scratch, tr.forward, lines)
			for l := range lines {
				for k := range n {
					var want complex128
					for j := range n {
						want += in[j*lines+l] * cmplx.Rect(1, -2*math.Pi*float64(j*k)/float64(n))
					}
					if cmplx.Abs(got[k*lines+l]-want) > 1e-13*float64(n) {
						t.Errorf("%d points, line %d of %d: wave %d is %v, want %v", n, l, lines, k, got[k*lines+l], want)
					}
				}
			}
			tr.run(got, scratch, tr.backward, lines)
			for i := range got {
				if !near(got[i]/complex(float64(n), 0), in[i]) {
					t.Errorf("%d points, %d lines: %d is %v, was %v", n, lines, i, got[i], in[i])
				}
			}
		}
	}
}

func TestTranspose(t *testing.T) {
	for _, size := range [][2]int{{1, 8}, {8, 1}, {3, 7}, {4, 16}} {
		rows, columns := size[0], size[1]
		src, dst := make([]complex128, rows*columns), make([]complex128, rows*columns)
		for i := range src {
			src[i] = complex(float64(i), 0)
		}
		transpose(dst, src, rows, columns)
		for i := range src {
			if got := dst[i%columns*rows+i/columns]; got != src[i] {
				t.Errorf("%d x %d: %v at the place of %v", rows, columns, got, src[i])
			}
		}
	}
}

func BenchmarkTransform(b *testing.B) {
	for _, lines := range []int{1, 128} {
		b.Run(fmt.Sprintf("lines=%d", lines), func(b *testing.B) {
			const n = 128
			tr := newTransform(n)
			a, scratch := make([]complex128, n*lines), make([]complex128, n*lines)
			b.SetBytes(int64(16 * n * lines))
			for b.Loop() {
				tr.run(a, scratch, tr.forward, lines)
			}
		})
	}
}
