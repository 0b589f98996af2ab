package mg

// weights of a point itself, and of its neighbours by how many coordinates
// differ: 6 across faces, 12 across edges, 8 across corners.
type weights [4]float64

var (
	// laplacian is A with its sign turned: a residual is v + laplacian u.
	laplacian = weights{8.0 / 3, 0, -1.0 / 6, -1.0 / 12}
	// smoother is S of classes S, W and A.
	smoother = weights{-3.0 / 8, 1.0 / 32, -1.0 / 64, 0}
	// restriction is P.
	restriction = weights{1.0 / 2, 1.0 / 4, 1.0 / 8, 1.0 / 16}
)

// sums are sums over the neighbours of a row of points, each beside that
// point: of the four rows next to it, and of the four rows diagonal to it.
// Three points of them and of the row itself make up any operator, so that 27
// neighbours take 8 additions a point and a few more.
type sums struct{ next, diagonal []float64 }

func newSums(n int) sums { return sums{make([]float64, n+2), make([]float64, n+2)} }

func (s sums) around(g grid, k, j int) (row, next, diagonal []float64) {
	w := g.n + 2
	row = g.row(k, j)[:w]
	next, diagonal = s.next[:w], s.diagonal[:w]
	low, high, below, above := g.row(k, j-1)[:w], g.row(k, j+1)[:w], g.row(k-1, j)[:w], g.row(k+1, j)[:w]
	for i := range next {
		next[i] = low[i] + high[i] + below[i] + above[i]
	}
	low, high, below, above = g.row(k-1, j-1)[:w], g.row(k-1, j+1)[:w], g.row(k+1, j-1)[:w], g.row(k+1, j+1)[:w]
	for i := range diagonal {
		diagonal[i] = low[i] + high[i] + below[i] + above[i]
	}
	return row, next, diagonal
}

// apply sets dst to base + w src, all inner points. It reads src's border. dst
// may be base.
func (s sums) apply(dst, base, src grid, w weights) {
	n := src.n
	for k := range src.planes {
		for j := range n {
			row, next, diagonal := s.around(src, k, j)
			out, b := dst.row(k, j)[:len(row)], base.row(k, j)[:len(row)]
			next, diagonal = next[:len(row)], diagonal[:len(row)]
			for i := 1; i < len(row)-1; i++ {
				out[i] = b[i] + w[0]*row[i] +
					w[1]*(row[i-1]+row[i+1]+next[i]) +
					w[2]*(next[i-1]+next[i+1]+diagonal[i]) +
					w[3]*(diagonal[i-1]+diagonal[i+1])
			}
		}
	}
}

// restrict sets coarse to the restriction of fine, which has twice the points
// in each direction. Counted from zero, coarse point i lies on fine point
// 2i+1. It reads fine's border.
func (s sums) restrict(coarse, fine grid) {
	w := restriction
	for k := range coarse.planes {
		for j := range coarse.n {
			row, next, diagonal := s.around(fine, 2*k+1, 2*j+1)
			out := coarse.row(k, j)
			for c := 1; c <= coarse.n; c++ {
				i := 2 * c
				out[c] = w[0]*row[i] +
					w[1]*(row[i-1]+row[i+1]+next[i]) +
					w[2]*(next[i-1]+next[i+1]+diagonal[i]) +
					w[3]*(diagonal[i-1]+diagonal[i+1])
			}
		}
	}
}

// prolong adds coarse to fine, linearly interpolated between its points. It
// reads coarse's border and adds to fine's as well, so that no exchange is
// needed after it.
func (s sums) prolong(fine, coarse grid) {
	mean := s.next[:coarse.n+2]
	for k := -1; k <= fine.planes; k++ {
		k0, k1 := between(k)
		for j := -1; j <= fine.n; j++ {
			j0, j1 := between(j)
			a, b, c, d := coarse.row(k0, j0), coarse.row(k0, j1), coarse.row(k1, j0), coarse.row(k1, j1)
			for i := range mean {
				mean[i] = (a[i] + b[i] + c[i] + d[i]) / 4
			}
			out := fine.row(k, j)
			for i := 0; i <= coarse.n; i++ {
				out[2*i] += mean[i]
				out[2*i+1] += (mean[i] + mean[i+1]) / 2
			}
		}
	}
}

// between returns the coarse points on both sides of a fine one; they are the
// same where it lies on one.
func between(fine int) (low, high int) {
	if fine&1 != 0 {
		return (fine - 1) / 2, (fine - 1) / 2
	}
	return fine/2 - 1, fine / 2
}
