package match

import (
	"cmp"
	"slices"
)

// A verdict is how a search ended.
type verdict int

const (
	none   verdict = iota // there is no solution here
	found                 // the counts have it
	gaveUp                // the steps ran out
)

// A search is the state of the first layer: which zones each group may use.
type search struct {
	*problem
	open   [][]bool // group, zone: whether the zone keeps all limits with the zones chosen so far
	chosen [][]int  // group: its zones; nil while it has none
	counts [][]int  // result: group, host
}

// solve searches counts of processes for each group and host of the offer.
func (pr *problem) solve() (counts [][]int, v verdict) {
	s := &search{problem: pr, open: make([][]bool, len(pr.p.Groups)), chosen: make([][]int, len(pr.p.Groups))}
	for g := range s.open {
		s.open[g] = make([]bool, len(pr.zones))
		for z := range s.open[g] {
			s.open[g][z] = pr.soloIn[g][z] > 0
		}
		if pr.p.Groups[g].Processes == 0 {
			s.chosen[g] = []int{}
		}
	}
	if !s.canImprove() {
		return nil, none
	}
	v = s.next()
	return s.counts, v
}

// next chooses zones for one more group.
func (s *search) next() verdict {
	g := s.hardest()
	if g < 0 {
		return s.totals()
	}
	zones := s.candidates(g)
	for size := 1; size <= min(len(zones), s.p.Groups[g].Processes); size++ {
		if v := s.subsets(g, zones, nil, size); v != none {
			return v
		}
	}
	return none
}

// hardest returns the group with the fewest zones to choose from; among equal ones, the one that
// asks for the most cores. It is -1 when all have their zones.
func (s *search) hardest() int {
	best, fewest, most := -1, 0, 0
	for g := range s.chosen {
		if s.chosen[g] != nil {
			continue
		}
		zones, cores := 0, s.p.Groups[g].Processes*s.p.Groups[g].Cores
		for _, open := range s.open[g] {
			if open {
				zones++
			}
		}
		if best < 0 || zones < fewest || zones == fewest && cores > most {
			best, fewest, most = g, zones, cores
		}
	}
	return best
}

// candidates returns the zones that g may use: first those that it fits into, the tightest first,
// then the others, the largest first.
func (s *search) candidates(g int) []int {
	var zones []int
	for z, open := range s.open[g] {
		if open {
			zones = append(zones, z)
		}
	}
	need := s.p.Groups[g].Processes
	slices.SortStableFunc(zones, func(a, b int) int {
		x, y := s.soloIn[g][a], s.soloIn[g][b]
		if x >= need && y >= need {
			return cmp.Compare(x, y)
		}
		return cmp.Compare(y, x)
	})
	return zones
}

// subsets tries all sets of size further zones in addition to set.
func (s *search) subsets(g int, zones, set []int, size int) verdict {
	if s.outOfEffort() {
		return gaveUp
	}
	if size == 0 {
		return s.choose(g, set)
	}
	for i, z := range zones {
		// The remaining sets hold no more than this, so none suffices.
		if len(zones)-i < size || s.roomIn(g, set)+s.largest(g, zones[i:], size) < s.p.Groups[g].Processes {
			return none
		}
		if !s.joins(g, set, z) || s.twinBefore(g, set, z) {
			continue
		}
		if v := s.subsets(g, zones[i+1:], append(set[:len(set):len(set)], z), size-1); v != none {
			return v
		}
	}
	return none
}

// joins reports whether g may use z in addition to the zones of set.
func (s *search) joins(g int, set []int, z int) bool {
	sites := 1
	for i, y := range set {
		if !s.between[y][z].keeps(s.inside[g]) {
			return false
		}
		if s.sites[y] != s.sites[z] && !slices.ContainsFunc(set[:i], func(x int) bool { return s.sites[x] == s.sites[y] }) {
			sites++
		}
	}
	most := s.p.Groups[g].Sites
	return most == 0 || sites <= most
}

// twinBefore reports whether an earlier zone is interchangeable with z: then it is enough to try
// that one.
func (s *search) twinBefore(g int, set []int, z int) bool {
	for y := range z {
		if s.twins[y] == s.twins[z] && !slices.Contains(set, y) && s.open[g][y] && s.usedAlike(y, z) {
			return true
		}
	}
	return false
}

// usedAlike reports whether each group that has its zones uses both or neither.
func (s *search) usedAlike(y, z int) bool {
	for _, set := range s.chosen {
		if slices.Contains(set, y) != slices.Contains(set, z) {
			return false
		}
	}
	return true
}

func (s *search) roomIn(g int, zones []int) (n int) {
	for _, z := range zones {
		n += s.soloIn[g][z]
	}
	return n
}

// largest returns how many processes of g the n roomiest of zones hold.
func (s *search) largest(g int, zones []int, n int) (sum int) {
	rooms := make([]int, len(zones))
	for i, z := range zones {
		rooms[i] = s.soloIn[g][z]
	}
	slices.Sort(rooms)
	for _, r := range rooms[max(0, len(rooms)-n):] {
		sum += r
	}
	return sum
}

// choose gives g its zones, closes those of other groups that no longer keep their limits, and
// continues with the next group.
func (s *search) choose(g int, set []int) verdict {
	s.chosen[g] = set
	closed := make(map[int][]bool, len(s.links[g]))
	for _, l := range s.links[g] {
		if s.chosen[l.group] != nil || closed[l.group] != nil {
			continue // was checked when it chose; or there are two limits
		}
		closed[l.group] = s.open[l.group]
		s.open[l.group] = slices.Clone(s.open[l.group])
	}
	for _, l := range s.links[g] {
		if s.chosen[l.group] == nil {
			s.close(l, set)
		}
	}
	v := none
	if s.canImprove() {
		v = s.next()
	}
	for other, open := range closed {
		s.open[other] = open
	}
	s.chosen[g] = nil
	return v
}

// close closes the zones of l.group from which the limit to a zone of set is not kept.
func (s *search) close(l limit, set []int) {
	open := s.open[l.group]
	for z := range open {
		open[z] = open[z] && !slices.ContainsFunc(set, func(y int) bool {
			return y != z && !s.between[y][z].keeps(l.least)
		})
	}
}

// canImprove reports whether a flow finds room for all groups in the zones that they chose or may
// still choose.
func (s *search) canImprove() bool {
	var wants []want
	for g := range s.chosen {
		w := want{group: g, need: s.p.Groups[g].Processes}
		for z, open := range s.open[g] {
			if s.chosen[g] == nil && open || slices.Contains(s.chosen[g], z) {
				w.classes = append(w.classes, s.zones[z].classes...)
			}
		}
		wants = append(wants, w)
	}
	return s.flows(wants, s.emptyRoom())
}
