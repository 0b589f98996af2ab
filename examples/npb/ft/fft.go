package ft

import (
	"math"
	"math/cmplx"
)

// transform is the discrete Fourier transform of one length, a power of two,
// without a factor in either direction.
type transform struct {
	n                 int
	forward, backward []complex128 // the n-th roots of unity to powers 0 to n/2-1
}

func newTransform(n int) transform {
	t := transform{n: n}
	for k := range n / 2 {
		w := cmplx.Rect(1, -2*math.Pi*float64(k)/float64(n))
		t.forward, t.backward = append(t.forward, w), append(t.backward, cmplx.Conj(w))
	}
	return t
}

// run transforms in place, with the forward or backward roots, several lines
// that lie interleaved in a: point k of line l is a[k*lines+l]. Scratch is as
// long as a.
//
// It is Stockham's algorithm: each pass halves the transforms' length and
// doubles their number, and puts results where the next pass, and in the end
// the caller, wants them, so that nothing is put in order by bit reversal. All
// inner loops are over neighbours and have one root.
func (t transform) run(a, scratch, roots []complex128, lines int) {
	from, to := a, scratch
	for n, s := t.n, lines; n > 1; n, s = n/2, 2*s {
		half := n / 2
		for p := range half {
			w := roots[p*(t.n/n)]
			x, y := from[p*s:][:s], from[(p+half)*s:][:s]
			sum, difference := to[2*p*s:][:s], to[(2*p+1)*s:][:s]
			for q, b := range y {
				a := x[q]
				sum[q] = a + b
				difference[q] = (a - b) * w
			}
		}
		from, to = to, from
	}
	if &from[0] != &a[0] {
		copy(a, from)
	}
}

// transpose sets dst, of columns x rows, to the transpose of src, of rows x
// columns. It goes by strips that are as wide as a cache line.
func transpose(dst, src []complex128, rows, columns int) {
	const strip = 4
	for c := 0; c < columns; c += strip {
		end := min(c+strip, columns)
		for r := range rows {
			for i, x := range src[r*columns+c : r*columns+end] {
				dst[(c+i)*rows+r] = x
			}
		}
	}
}
