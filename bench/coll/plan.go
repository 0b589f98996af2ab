package coll

import (
	"fmt"
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/collectives/operation"
)

// A figure is a call that the implementations make one after the other.
type figure struct {
	collective operation.Operation
	size       int
}

// figures returns the requested figures of a scenario, and those that would take too long.
func (o Options) figures(s *scenario) (all, tooLong []figure, err error) {
	for _, collective := range orElse(o.Collectives, Standard()...) {
		sizes := orElse(o.Sizes, StandardSizes()...)
		if collective == operation.Barrier {
			sizes = []int{0}
		}
		for _, size := range sizes {
			f := figure{collective, size}
			least, err := s.bound(collective, size)
			if err != nil {
				return nil, nil, err
			}
			if least > o.Longest {
				tooLong = append(tooLong, f)
			} else {
				all = append(all, f)
			}
		}
	}
	return all, tooLong, nil
}

// key returns the text that Options.Only matches.
func (f figure) key(s *scenario, implementation string) string {
	return fmt.Sprintf("%s/%s/%d/%s", s.name, f.collective, f.size, implementation)
}

// The number of repetitions of a call within one round.
const (
	measureTime = 150 * time.Millisecond // approximate duration of one implementation's repetitions
	maxFar      = 5                      // repetitions in that time
	maxLocal    = 2000
	warmFar     = 1
	warmLocal   = 20
	startWait   = 5 * time.Millisecond // added to a round trip, to announce the time to begin
)

// order returns the order to rank 0 for count repetitions.
func (f figure) order(s *scenario, root, count int) string {
	warm, ahead := warmLocal, time.Duration(0)
	if s.far() {
		warm, ahead = warmFar, s.rtt+startWait
	}
	return fmt.Sprintf("%s %s %d %d %d %d %d", orderTime, f.collective, f.size, root, warm, count, ahead.Nanoseconds())
}

// count returns how many repetitions fill measureTime if one takes d.
func (s *scenario) count(d time.Duration) int {
	most := maxLocal
	if s.far() {
		most = maxFar
	}
	return int(min(max(int64(measureTime/max(d, 1)), 1), int64(most)))
}

// variants returns our variants in a scenario. The first one chooses its algorithms; each of the
// others forces at most one algorithm per collective.
func (o Options) variants() []variant {
	all := []variant{{}}
	if o.Algorithms {
		all = append(all, o.forced(0)...)
	}
	var cut [][]variant
	for _, flits := range o.Flits {
		cut = append(cut, o.forced(flits))
	}
	for k := range slices.MaxFunc(append(cut, nil), func(a, b []variant) int { return len(a) - len(b) }) {
		for i := range cut { // all numbers of flits of an algorithm run alternately
			all = append(all, cut[i][k])
		}
	}
	return all
}

// forced puts the k-th algorithm of every collective into the k-th variant; with a number of
// flits, the k-th algorithm that cuts messages.
func (o Options) forced(flits int) (all []variant) {
	for _, collective := range orElse(o.Collectives, Standard()...) {
		k := 0
		for _, a := range collectives.Algorithms(collective) {
			if flits > 0 && a.Flits == 0 {
				continue
			}
			if k == len(all) {
				all = append(all, variant{flits: flits, forced: map[operation.Operation]string{}})
			}
			all[k].forced[collective] = a.Name
			k++
		}
	}
	return all
}

// concerns reports whether a variant forces an algorithm for a collective.
func (v variant) concerns(collective operation.Operation) bool {
	return len(v.forced) == 0 || v.forced[collective] != ""
}

// right reports whether the forced algorithm is correct in a scenario; otherwise the library
// would choose another one. The reductions here are commutative.
func (s *scenario) right(v variant, collective operation.Operation) bool {
	a, err := collectives.Find(collective, v.forced[collective])
	switch {
	case err != nil:
		return true
	case a.Needs.Has(collectives.SharedMemory):
		return s.oneNode()
	}
	return !a.Needs.Has(collectives.Ordered) || s.layout().Ordered()
}

// allowed returns the variant without algorithms over shared memory if the ranks are on several
// nodes, and otherwise unchanged.
func (s *scenario) allowed(v variant) variant {
	if s.oneNode() {
		return v
	}
	some := variant{flits: v.flits, forced: map[operation.Operation]string{}}
	for collective, name := range v.forced {
		if a, err := collectives.Find(collective, name); err != nil || !a.Needs.Has(collectives.SharedMemory) {
			some.forced[collective] = name
		}
	}
	return some
}

// implementation returns our implementation's name in keys and reports.
func (v variant) implementation(collective operation.Operation) string {
	if len(v.forced) == 0 {
		return nameOurs
	}
	return nameOurs + ":" + v.algorithm(v.forced[collective])
}
