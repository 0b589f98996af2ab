package collectives

import (
	"fmt"
	"slices"
)

// Layout says where the ranks of a communicator are, level by level and the widest level first:
// Layout{sites, nodes} has sites[r] as the site of rank r and nodes[r] as the node. The numbers are
// identifiers only. Ranks are together on a level if they are on all wider ones and have the same
// number on it. A Layout without levels has all ranks at one place. A Layout must not be changed
// once it is in use; all ranks of a communicator must have the same one.
type Layout [][]int

// Check returns an error that says which level does not have size ranks.
func (l Layout) Check(size int) error {
	for i, level := range l {
		if len(level) != size {
			return fmt.Errorf("level %d of the layout places %d ranks of %d: %w", i, len(level), size, ErrArgument)
		}
	}
	return nil
}

// parts returns the ranks of each place of the widest level that has several, those with the lowest
// ranks first, and the layout below it; or nil if all ranks are together.
func (l Layout) parts() (parts [][]int, below Layout) {
	for i, level := range l {
		if slices.Max(level) == slices.Min(level) {
			continue
		}
		number := map[int]int{}
		for r, place := range level {
			k, known := number[place]
			if !known {
				k = len(parts)
				number[place] = k
				parts = append(parts, nil)
			}
			parts[k] = append(parts[k], r)
		}
		return parts, l[i+1:]
	}
	return nil, nil
}

// subLayout returns the layout of some of the ranks.
func (l Layout) subLayout(ranks []int) Layout {
	some := make(Layout, len(l))
	for i, level := range l {
		some[i] = make([]int, len(ranks))
		for k, r := range ranks {
			some[i][k] = level[r]
		}
	}
	return some
}

// Ordered reports whether the ranks of each place are consecutive, on every level: only then may
// reductions be done place by place with an operator that is not commutative.
func (l Layout) Ordered() bool {
	parts, below := l.parts()
	for _, ranks := range parts {
		if ranks[len(ranks)-1]-ranks[0] != len(ranks)-1 || !below.subLayout(ranks).Ordered() {
			return false
		}
	}
	return true
}
