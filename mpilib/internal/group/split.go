package group

import (
	"cmp"
	"fmt"
	"slices"
)

// A Choice is one process's argument to a split (MPI_Comm_split, 7.4.2).
type Choice struct {
	Colour int // not negative, or Undefined for no membership
	Key    int // orders the members of one colour; any value
}

// A Part is one group of several, with the label that its members share.
type Part[L any] struct {
	Label L
	Group *Group
}

// SplitOff returns the group of a colour: its members are ordered by key, and those with equal keys
// as in g. choices[r] is the choice of rank r. It is empty for a colour that no process chose, such
// as Undefined.
func SplitOff(g *Group, choices []Choice, colour int) (*Group, error) {
	members, err := orderedMembers(g, choices, func(c int) bool { return c == colour })
	if err != nil {
		return nil, fmt.Errorf("group: SplitOff: %w", err)
	}
	return g.pick(members), nil
}

// orderedMembers checks the choices and returns the ranks that take part and whose colour is wanted, by
// colour, key and rank.
func orderedMembers(g *Group, choices []Choice, wanted func(colour int) bool) ([]int32, error) {
	if len(choices) != g.size {
		return nil, fmt.Errorf("%w: %d choices for %d processes", ErrArg, len(choices), g.size)
	}
	var members []int32
	for r, c := range choices {
		if c.Colour == Undefined {
			continue
		}
		if c.Colour < 0 {
			return nil, fmt.Errorf("choices[%d]: %w: colour %d is negative and not Undefined (%d)", r, ErrArg, c.Colour, Undefined)
		}
		if wanted(c.Colour) {
			members = append(members, int32(r))
		}
	}
	slices.SortStableFunc(members, func(a, b int32) int {
		return cmp.Or(cmp.Compare(choices[a].Colour, choices[b].Colour), cmp.Compare(choices[a].Key, choices[b].Key))
	})
	return members, nil
}

// pick is Incl of ranks that are known to be valid.
func (g *Group) pick(ranks []int32) *Group {
	var worlds table
	for i, rank := range ranks {
		worlds = worlds.add(int32(i), int32(g.WorldRank(int(rank))))
	}
	return seal(worlds)
}

// By returns a group for each label of a process, such as its node or its site. Groups come in the
// order of their first members in g, and members are ordered as in g. label is called once for each
// member, with its world rank.
func By[L comparable](g *Group, label func(world int) L) []Part[L] {
	places := make(map[L]int)
	var labels []L
	var worlds []table
	for world := range g.WorldRanks() {
		l := label(world)
		i, known := places[l]
		if !known {
			i = len(labels)
			places[l] = i
			labels, worlds = append(labels, l), append(worlds, nil)
		}
		next := int32(0)
		if n := len(worlds[i]); n > 0 {
			next = worlds[i][n-1].lastKey() + 1
		}
		worlds[i] = worlds[i].add(next, int32(world))
	}
	parts := make([]Part[L], len(labels))
	for i := range parts {
		parts[i] = Part[L]{labels[i], seal(worlds[i])}
	}
	return parts
}
