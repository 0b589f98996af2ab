package topology

import "math"

// slabs returns all places with the coordinate of one dimension varying slowest and the others in
// row-major order.
func (c *Cart) slabs(dim int) []int32 {
	places := make([]int32, c.size)
	for i := range places {
		places[i] = int32(i)
	}
	return c.sortAlong(places, dim)
}

// sortAlong returns some places, given in ascending order, by their coordinate in
// one dimension first.
func (c *Cart) sortAlong(places []int32, dim int) []int32 {
	stride := int32(1)
	for _, d := range c.dims[dim+1:] {
		stride *= int32(d)
	}
	d := int32(c.dims[dim])
	next := make([]int32, d+1) // where the next place with a coordinate goes
	for _, p := range places {
		next[p/stride%d+1]++
	}
	for x := range d {
		next[x+1] += next[x]
	}
	out := make([]int32, len(places))
	for _, p := range places {
		x := p / stride % d
		out[next[x]] = p
		next[x]++
	}
	return out
}

// bisect halves the shares and the places until each share has its own.
func bisect(c *Cart, a adjacency, shares []share) []int32 {
	b := bisection{cart: c, adjacency: a, layout: make([]int32, c.size), side: make([]int32, c.size)}
	places := make([]int32, c.size)
	for i := range places {
		places[i] = int32(i)
	}
	b.divide(places, shares, 0)
	return b.layout
}

type bisection struct {
	cart *Cart
	adjacency
	layout []int32
	side   []int32 // the last half that a place was put in; halves are numbered
	halves int32   // numbers assigned
}

// divide lays out shares, the first of which has index first, over as many places, which are in
// ascending order.
func (b *bisection) divide(places []int32, shares []share, first int32) {
	if len(shares) == 1 {
		for _, p := range places {
			b.layout[p] = first
		}
		return
	}
	some, n := splitShares(shares, len(places))
	var best []int32
	least := math.MaxInt
	for dim, d := range b.cart.dims {
		if d == 1 {
			continue
		}
		sorted := b.cart.sortAlong(places, dim)
		if cut := b.cut(sorted[:n], sorted[n:]); cut < least {
			least, best = cut, sorted
		}
	}
	b.cut(best[:n], best[n:]) // marks the sides again
	lower, upper := make([]int32, 0, n), make([]int32, 0, len(places)-n)
	mark := b.side[best[0]]
	for _, p := range places {
		if b.side[p] == mark {
			lower = append(lower, p)
		} else {
			upper = append(upper, p)
		}
	}
	b.divide(lower, shares[:some], first)
	b.divide(upper, shares[some:], first+int32(some))
}

// cut counts the messages from some places to others.
func (b *bisection) cut(from, to []int32) int {
	b.halves += 2
	for _, p := range from {
		b.side[p] = b.halves
	}
	for _, p := range to {
		b.side[p] = b.halves + 1
	}
	cut := 0
	for _, p := range from {
		for _, q := range b.neighbours(p) {
			if b.side[q] == b.halves+1 {
				cut++
			}
		}
	}
	return cut
}

// splitShares returns how many of the first shares come nearest to half of all places, at least one and
// not all, and how many places they have.
func splitShares(shares []share, all int) (some, places int) {
	for some < len(shares)-1 {
		with := places + len(shares[some])
		if some > 0 && with-all/2 > all/2-places {
			break
		}
		some, places = some+1, with
	}
	return some, places
}
