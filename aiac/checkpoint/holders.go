package checkpoint

import (
	"encoding/binary"
	"math"

	"github.com/zeebo/xxh3"
)

// A Place is where a task runs.
type Place struct {
	Site, Node string  // a node's name counts within its site
	Power      float64 // of the node, compared with others; 0 if unknown: as the least that is known
	IsLost     bool    // the task has no live process
}

// A Distance returns how far a site is from another one, in any unit, for instance the round trip time; 0 if
// unknown: as far as the farthest.
type Distance func(from, to string) float64

// maxLots is how many lots the most powerful, nearest candidate has.
const maxLots = 16

// Holders returns the tasks that hold the states of a task, at most two and never itself. The first is on another
// node of its site, for speed; the second at another site, which survives the loss of the site. Where there is no such
// task they are as far from each other and from the task as is possible, down to other processes of one node; with two live tasks there
// is one holder, and with one none.
//
// Among equals each candidate draws lots, which depend on nothing but both tasks' numbers; the highest wins (rendezvous
// hashing; Thaler and Ravishankar, 1998). A candidate has the more lots the more powerful and the nearer it is, so the states
// spread over all nodes in proportion. The result is a function of the arguments: whoever knows the same places
// gets the same holders, and the loss of a task changes only what it held. distance may be nil.
func Holders(task int, places []Place, distance Distance) []int {
	c := newChoice(task, places, distance)
	first := c.best(c.firstClass, -1)
	if first < 0 {
		return nil
	}
	second := c.best(func(p Place) int { return c.secondClass(p, places[first]) }, first)
	if second < 0 {
		return []int{first}
	}
	return []int{first, second}
}

// choice is one call of Holders.
type choice struct {
	task     int
	places   []Place
	distance Distance
	site     string  // the task's
	least    float64 // of the known powers
	most     float64 // 0: none is known
	closest  float64 // of the known distances to other sites
	farthest float64 // 0: none is known
}

// newChoice looks at all places, also of the lost: so the loss of a task does not change the lots of others.
func newChoice(task int, places []Place, distance Distance) choice {
	c := choice{task: task, places: places, distance: distance, least: math.Inf(1), closest: math.Inf(1), site: places[task].Site}
	for _, p := range places {
		if p.Power > 0 {
			c.least, c.most = min(c.least, p.Power), max(c.most, p.Power)
		}
		if d := c.to(p); d > 0 {
			c.closest, c.farthest = min(c.closest, d), max(c.farthest, d)
		}
	}
	return c
}

// to returns the distance to a place at another site; 0 if it is unknown.
func (c choice) to(p Place) float64 {
	if c.distance == nil || p.Site == c.site {
		return 0
	}
	return c.distance(c.site, p.Site)
}

// lots returns how many lots a candidate has, at least one.
func (c choice) lots(p Place) int {
	part := 1.0
	if c.most > 0 {
		power := p.Power
		if !(power > 0) {
			power = c.least
		}
		part = power / c.most
	}
	if p.Site != c.site && c.farthest > 0 {
		d := c.to(p)
		if !(d > 0) {
			d = c.farthest
		}
		part = part * c.closest / d
	}
	return max(1, int(math.Round(part*maxLots)))
}

// best returns the candidate with the highest lot in the lowest class, or -1. besides is no candidate.
func (c choice) best(class func(Place) int, besides int) int {
	best, bestClass, bestLot := -1, 0, uint64(0)
	for i, p := range c.places {
		if i == c.task || i == besides || p.IsLost {
			continue
		}
		k := class(p)
		if best >= 0 && k > bestClass {
			continue
		}
		if lot := c.highestLot(i); best < 0 || k < bestClass || lot > bestLot {
			best, bestClass, bestLot = i, k, lot
		}
	}
	return best
}

func (c choice) highestLot(candidate int) (highest uint64) {
	var b [24]byte
	binary.LittleEndian.PutUint64(b[0:], uint64(c.task))
	binary.LittleEndian.PutUint64(b[8:], uint64(candidate))
	for i := range c.lots(c.places[candidate]) {
		binary.LittleEndian.PutUint64(b[16:], uint64(i))
		highest = max(highest, xxh3.Hash(b[:]))
	}
	return highest
}

func isSameNode(a, b Place) bool { return a.Site == b.Site && a.Node == b.Node }

// firstClass: another node of the site, another site, the same node.
func (c choice) firstClass(p Place) int {
	own := c.places[c.task]
	switch {
	case isSameNode(p, own):
		return 2
	case p.Site != own.Site:
		return 1
	}
	return 0
}

// secondClass: another site, that is not the first one's either, or not its node; another node of the site, that is not
// the first one's; the same node.
func (c choice) secondClass(p, first Place) int {
	own := c.places[c.task]
	switch {
	case p.Site != own.Site && p.Site != first.Site:
		return 0
	case p.Site != own.Site && !isSameNode(p, first):
		return 1
	case p.Site != own.Site:
		return 2
	case isSameNode(p, own):
		return 5
	case isSameNode(p, first):
		return 4
	}
	return 3
}
