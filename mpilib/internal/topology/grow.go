package topology

import "container/heap"

// grow lets one share after the other take places, each starting at the lowest free one, and always
// the place with the most edges into the share minus those to free places. Where no free place is
// adjacent it starts again. a has every edge in both directions.
func grow(a adjacency, shares []share) []int32 {
	n := a.size()
	g := growth{adjacency: a, layout: make([]int32, n), gain: make([]int, n)}
	for p := range g.layout {
		g.layout[p] = free
		g.gain[p] = -len(a.neighbours(int32(p)))
	}
	lowest := int32(0)
	for s, who := range shares {
		for range who {
			p, found := g.next()
			if !found {
				for g.layout[lowest] != free {
					lowest++
				}
				p = lowest
			}
			g.take(p, int32(s))
		}
		g.finish()
	}
	return g.layout
}

const free = -1

type growth struct {
	adjacency
	layout []int32
	gain   []int // of a free place: edges to the growing share minus edges to free ones
	border border
	given  []int32 // places whose gain counts edges to the growing share
}

// next removes the best place of the border. It skips entries that a later one of the same place
// replaced, or whose place was taken.
func (g *growth) next() (int32, bool) {
	for len(g.border) > 0 {
		e := heap.Pop(&g.border).(entry)
		if g.layout[e.place] == free && g.gain[e.place] == e.gain {
			return e.place, true
		}
	}
	return 0, false
}

// take gives p to the growing share.
func (g *growth) take(p, s int32) {
	g.layout[p] = s
	for _, q := range g.neighbours(p) {
		if g.layout[q] == free {
			g.gain[q] += 2 // one free neighbour less, one of the share more
			g.given = append(g.given, q)
			heap.Push(&g.border, entry{g.gain[q], q})
		}
	}
}

// finish ends a share: edges to its places no longer count for the next one.
func (g *growth) finish() {
	for _, q := range g.given {
		g.gain[q]--
	}
	g.given, g.border = g.given[:0], g.border[:0]
}

type entry struct {
	gain  int
	place int32
}

// A border is a heap of places, best first.
type border []entry

func (b border) Len() int { return len(b) }
func (b border) Less(i, j int) bool {
	return b[i].gain > b[j].gain || b[i].gain == b[j].gain && b[i].place < b[j].place
}
func (b border) Swap(i, j int) { b[i], b[j] = b[j], b[i] }
func (b *border) Push(x any)   { *b = append(*b, x.(entry)) }
func (b *border) Pop() any {
	last := (*b)[len(*b)-1]
	*b = (*b)[:len(*b)-1]
	return last
}
