package registry

import (
	"fmt"
	"hash/fnv"

	"github.com/isthmus-grid/isthmus/overlay"
)

// Choice is how a proxy is chosen for a link.
type Choice string

// The choices.
const (
	RoundRobin  Choice = "round-robin"  // each in turn, as QCG-OMPI does
	LeastLoaded Choice = "least-loaded" // the smallest part of its capacity in use; equals in turn
)

// candidate is a proxy as a choice sees it.
type candidate struct {
	name     string
	load     int    // links it has, and those assigned since it said so
	capacity int    // links it takes
	draining bool   // wants no new links
	last     uint64 // the turn in which it was last chosen; 0 for never
}

// choose returns the index of the proxy for the next link. Both choices skip
// proxies that drain or are full. Turns make both fair: with equal proxies any
// two counts differ by at most one.
func choose(how Choice, proxies []candidate) (int, error) {
	best := -1
	for i, c := range proxies {
		if c.draining || c.load >= c.capacity {
			continue
		}
		if best < 0 || before(how, c, proxies[best]) {
			best = i
		}
	}
	switch {
	case len(proxies) == 0:
		return -1, fmt.Errorf("%w: no proxy has a session with the broker; start one, or look at its log", overlay.ErrNoRelay)
	case best < 0:
		return -1, fmt.Errorf("%w: all %d proxies are full or draining; start another or raise their capacity", overlay.ErrOverloaded, len(proxies))
	}
	return best, nil
}

// owners returns the index of the proxy that carries all links of an owner who
// is held to policies' allowances: only one that sees all of them can count
// them. Every broker that knows the same proxies makes the same choice, and one
// that leaves changes it for those alone whom it had (highest random weight). A proxy that is full is chosen all the
// same: another one would begin to count from zero.
func owners(owner string, proxies []candidate) (int, error) {
	best, most := -1, uint64(0)
	for i, c := range proxies {
		if c.draining {
			continue
		}
		h := fnv.New64a()
		fmt.Fprintf(h, "%s\n%s", owner, c.name)
		if w := mix(h.Sum64()); best < 0 || w > most || w == most && c.name < proxies[best].name {
			best, most = i, w
		}
	}
	switch {
	case best < 0:
		return choose(RoundRobin, proxies) // which says why
	case proxies[best].load >= proxies[best].capacity:
		return -1, fmt.Errorf("%w: proxy %s, which counts the links of %s for policies, is full", overlay.ErrOverloaded, proxies[best].name, owner)
	}
	return best, nil
}

// mix spreads a hash over all its bits: names that differ in their last letter
// differ in few of FNV's.
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	return h
}

// before reports whether a is to be chosen rather than b.
func before(how Choice, a, b candidate) bool {
	if how == LeastLoaded {
		// a.load/a.capacity against b.load/b.capacity, without rounding
		left, right := uint64(a.load)*uint64(b.capacity), uint64(b.load)*uint64(a.capacity)
		if left != right {
			return left < right
		}
	}
	if a.last != b.last {
		return a.last < b.last
	}
	return a.name < b.name
}
