package mg

// grid is some consecutive planes of a grid of n x n points, with a border of
// one point on every side: a plane below, one above, and around each plane. A
// plane is contiguous, border included, so that it can be sent as it lies.
type grid struct {
	n, planes int
	a         []float64 // (planes+2) planes of (n+2)² points
}

func newGrid(n, planes int) grid {
	return grid{n, planes, make([]float64, (planes+2)*(n+2)*(n+2))}
}

// part returns planes first to first+planes-1, in the same memory. Their
// neighbours are its border.
func (g grid) part(first, planes int) grid {
	size := (g.n + 2) * (g.n + 2)
	return grid{g.n, planes, g.a[first*size : (first+planes+2)*size]}
}

// layers returns planes low to high-1, which lie one behind the other. The
// planes below and above have the numbers -1 and g.planes.
func (g grid) layers(low, high int) []float64 {
	size := (g.n + 2) * (g.n + 2)
	return g.a[(low+1)*size : (high+1)*size]
}

// row returns row j, from -1 to n, of plane k. Point i is element i+1 of it.
func (g grid) row(k, j int) []float64 {
	w := g.n + 2
	first := ((k+1)*w + j + 1) * w
	return g.a[first : first+w : first+w]
}

// wrap fills the border around each of the planes from their far sides: the
// grid is periodic.
func (g grid) wrap() {
	n := g.n
	for k := range g.planes {
		for j := range n {
			r := g.row(k, j)
			r[0], r[n+1] = r[n], r[1]
		}
		copy(g.row(k, -1), g.row(k, n-1))
		copy(g.row(k, n), g.row(k, 0))
	}
}

// wrapPlanes fills the planes below and above likewise, if the grid has all
// planes.
func (g grid) wrapPlanes() {
	copy(g.layers(-1, 0), g.layers(g.planes-1, g.planes))
	copy(g.layers(g.planes, g.planes+1), g.layers(0, 1))
}
