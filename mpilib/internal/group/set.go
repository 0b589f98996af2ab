package group

// Union returns all members of a, followed by those of b that are not in a
// (MPI_Group_union, 7.3.2). It is associative and not commutative.
func Union(a, b *Group) *Group {
	if b.size == 0 {
		return a
	}
	worlds := append(table(nil), a.worlds...) // add changes the last segment
	rank := int32(a.size)
	for world := range b.WorldRanks() {
		if !a.Contains(world) {
			worlds = worlds.add(rank, int32(world))
			rank++
		}
	}
	return seal(worlds)
}

// Intersection returns the members of a that are also in b, ordered as in a
// (MPI_Group_intersection, 7.3.2).
func Intersection(a, b *Group) *Group {
	return a.filter(func(_, world int) bool { return b.Contains(world) })
}

// Difference returns the members of a that are not in b, ordered as in a
// (MPI_Group_difference, 7.3.2).
func Difference(a, b *Group) *Group {
	return a.filter(func(_, world int) bool { return !b.Contains(world) })
}

// filter returns the members for which keep returns true, in their order.
func (g *Group) filter(keep func(rank, world int) bool) *Group {
	var worlds table
	kept := int32(0)
	for rank, world := range g.All() {
		if keep(rank, world) {
			worlds = worlds.add(kept, int32(world))
			kept++
		}
	}
	if int(kept) == g.size {
		return g
	}
	return seal(worlds)
}
