package registry

import (
	"fmt"
	"hash/fnv"

	"github.com/isthmus-grid/isthmus/overlay"
)

// Choice is a method of choosing a proxy for a link.
type Choice string

// The choices.
const (
	RoundRobin  Choice = "round-robin"  // each in turn, as QCG-OMPI does
	LeastLoaded Choice = "least-loaded" // the smallest used part of its capacity, as measured; ties in turn
)

// candidate is the input of a choice: one proxy.
type candidate struct {
	name     string
	load     int    // its links when it last reported, and those assigned since
	capacity int    // maximum number of links, as it says
	measured int    // of these, what is believed
	draining bool   // accepts no new links
	last     uint64 // the turn in which it was last chosen; 0: never
}

// choose returns the index of the proxy for the next link. Both choices skip proxies that drain or
// are full. Turns make both fair: with equal proxies any two counts differ by at most one.
func choose(how Choice, proxies []candidate) (int, error) {
	best := -1
	for i, c := range proxies {
		if c.draining || c.load >= c.capacity {
			continue
		}
		if best < 0 || isPreferred(how, c, proxies[best]) {
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

// owners returns the index of the proxy that carries all links of an owner with policy allowances:
// only a proxy that sees all of them can count them. Brokers that know the same proxies make the
// same choice, and when a proxy leaves, the choice changes only for the owners it had (highest
// random weight). A full proxy is chosen all the same: another one would count from zero.
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
		return choose(RoundRobin, proxies) // for its error
	case proxies[best].load >= proxies[best].capacity:
		return -1, fmt.Errorf("%w: proxy %s, which counts the links of %s for policies, is full", overlay.ErrOverloaded, proxies[best].name, owner)
	}
	return best, nil
}

// mix spreads a hash over all its bits: FNV hashes of names that differ only in the last letter
// differ in few bits.
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	return h
}

// isPreferred reports whether a is preferred to b.
func isPreferred(how Choice, a, b candidate) bool {
	if how == LeastLoaded {
		// compares a.load/a.measured with b.load/b.measured, without rounding
		left, right := uint64(a.load)*uint64(b.measured), uint64(b.load)*uint64(a.measured)
		if left != right {
			return left < right
		}
	}
	if a.last != b.last {
		return a.last < b.last
	}
	return a.name < b.name
}
