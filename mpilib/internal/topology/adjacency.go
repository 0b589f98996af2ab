package topology

import "slices"

// An adjacency lists the places that each place sends to, in two flat slices: those of place p are
// to[start[p]:start[p+1]].
type adjacency struct {
	start []int
	to    []int32
}

func (a adjacency) size() int                      { return len(a.start) - 1 }
func (a adjacency) neighbours(place int32) []int32 { return a.to[a.start[place]:a.start[place+1]] }

// crossing returns the number of messages between different labels.
func (a adjacency) crossing(labels []int32) int {
	crossing := 0
	for place, label := range labels {
		for _, to := range a.neighbours(int32(place)) {
			if labels[to] != label {
				crossing++
			}
		}
	}
	return crossing
}

// undirected returns both directions of every edge.
func (a adjacency) undirected() adjacency {
	u := adjacency{make([]int, len(a.start)), make([]int32, 2*len(a.to))}
	for place := range int32(a.size()) {
		u.start[place+1] += len(a.neighbours(place))
		for _, to := range a.neighbours(place) {
			u.start[to+1]++
		}
	}
	for i := range a.size() {
		u.start[i+1] += u.start[i]
	}
	next := slices.Clone(u.start)
	for place := range int32(a.size()) {
		for _, to := range a.neighbours(place) {
			u.to[next[place]] = to
			next[place]++
			u.to[next[to]] = place
			next[to]++
		}
	}
	return u
}

// adjacency omits the neighbours beyond an edge of the grid.
func (c *Cart) adjacency() adjacency {
	a := adjacency{start: make([]int, 1, c.size+1), to: make([]int32, 0, 2*c.size*len(c.dims))}
	for rank := range c.size {
		for dim := range c.dims {
			for disp := -1; disp <= 1; disp += 2 {
				if to := c.neighbourAlong(rank, dim, disp); to != ProcNull {
					a.to = append(a.to, int32(to))
				}
			}
		}
		a.start = append(a.start, len(a.to))
	}
	return a
}

func (g *Graph) adjacency() adjacency {
	a := adjacency{start: append([]int{0}, g.index...), to: make([]int32, len(g.edges))}
	for i, to := range g.edges {
		a.to[i] = int32(to)
	}
	return a
}
