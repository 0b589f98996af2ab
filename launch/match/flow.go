package match

import "math"

// A want is how many processes of a group still need a place, and where.
type want struct {
	group, need int
	classes     []int
}

// emptyRoom returns the room of all classes while they are empty. A host counts no more processes than
// would fit if all were of the least demanding group.
func (pr *problem) emptyRoom() []room {
	light := pr.p.Groups[0]
	for _, g := range pr.p.Groups {
		light.Cores, light.Memory = min(light.Cores, g.Cores), min(light.Memory, g.Memory)
	}
	rooms := make([]room, len(pr.classes))
	for c := range pr.classes {
		for _, h := range pr.classes[c].hosts {
			host := &pr.o.hosts[h]
			rooms[c].processes += roomOf(host).fits(&light)
			rooms[c].cores += host.Cores
			rooms[c].memory += host.Memory
		}
	}
	return rooms
}

// flows reports whether wants could be met if a class were one host: each of the resources must be
// enough for the flow from groups to classes. False means impossible; true means possible only if
// all processes need the same of a host.
func (pr *problem) flows(wants []want, rooms []room) bool {
	const mib = 1 << 20
	resources := [...]struct{ each, of func(group, class int) int }{
		{func(int, int) int { return 1 }, func(_, c int) int { return rooms[c].processes }},
		{func(g, _ int) int { return pr.p.Groups[g].Cores }, func(_, c int) int { return rooms[c].cores }},
		// Whole mebibytes, so that sums stay in range. A sum of demands rounded down is no more
		// than the room rounded down.
		{func(g, _ int) int { return int(pr.p.Groups[g].Memory / mib) }, func(_, c int) int { return int(rooms[c].memory / mib) }},
	}
	for _, r := range resources {
		f := newFlow(2 + len(wants) + len(pr.classes))
		total := 0
		for i, w := range wants {
			each := r.each(w.group, 0)
			if each == 0 {
				continue
			}
			total += w.need * each
			f.edge(0, 2+i, w.need*each)
			for _, c := range w.classes {
				f.edge(2+i, 2+len(wants)+c, min(w.need, pr.solo[w.group][c], rooms[c].fits(&pr.p.Groups[w.group]))*each)
			}
		}
		for c := range pr.classes {
			f.edge(2+len(wants)+c, 1, r.of(0, c))
		}
		if f.max() < total {
			return false
		}
	}
	return true
}

// flow computes a maximum flow from node 0 to node 1 (Dinic's algorithm).
type flow struct {
	out   [][]int // node: its edges; an edge and its reverse differ in the lowest bit
	to    []int
	left  []int // edge: residual capacity
	depth []int
	at    []int // node: which edge to try next
}

func newFlow(nodes int) *flow { return &flow{out: make([][]int, nodes), depth: make([]int, nodes)} }

func (f *flow) edge(from, to, capacity int) {
	if capacity <= 0 {
		return
	}
	f.out[from] = append(f.out[from], len(f.to))
	f.out[to] = append(f.out[to], len(f.to)+1)
	f.to = append(f.to, to, from)
	f.left = append(f.left, capacity, 0)
}

func (f *flow) max() (sum int) {
	for f.layers() {
		f.at = make([]int, len(f.out))
		for {
			pushed := f.push(0, math.MaxInt)
			if pushed == 0 {
				break
			}
			sum += pushed
		}
	}
	return sum
}

// layers computes the distance of each node from node 0, and reports whether node 1 is reachable.
func (f *flow) layers() bool {
	for n := range f.depth {
		f.depth[n] = -1
	}
	f.depth[0] = 0
	queue := []int{0}
	for len(queue) > 0 {
		n := queue[0]
		queue = queue[1:]
		for _, e := range f.out[n] {
			if f.left[e] > 0 && f.depth[f.to[e]] < 0 {
				f.depth[f.to[e]] = f.depth[n] + 1
				queue = append(queue, f.to[e])
			}
		}
	}
	return f.depth[1] >= 0
}

// push sends at most limit from n towards node 1, along one path.
func (f *flow) push(n, limit int) int {
	if n == 1 {
		return limit
	}
	for ; f.at[n] < len(f.out[n]); f.at[n]++ {
		e := f.out[n][f.at[n]]
		if f.left[e] == 0 || f.depth[f.to[e]] != f.depth[n]+1 {
			continue
		}
		if pushed := f.push(f.to[e], min(limit, f.left[e])); pushed > 0 {
			f.left[e] -= pushed
			f.left[e^1] += pushed
			return pushed
		}
	}
	return 0
}
