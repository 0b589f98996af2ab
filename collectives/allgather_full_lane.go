package collectives

// Full-lane allgather: every rank sends its block to one rank of each other place, in turn, and the
// receiver of a block spreads it within its place. It serves allgatherv too.
//
// Cost with S sites: L + (N-n)mβ, no copies, and the work shared by all lanes.
func allgatherFullLane(p *plan) {
	g := p.places()
	if g == nil {
		allgatherRing(p)
		return
	}
	p.Copy(p.to(p.rank), p.in)
	for k, ranks := range g.ranks {
		for i, r := range ranks {
			for step := 1; step < len(g.ranks); step++ {
				other := g.ranks[(k+step)%len(g.ranks)]
				p.pass(r, p.to(r), other[i%len(other)], p.to(r))
			}
		}
	}
	local := g.ranks[g.mine]
	for step := range g.ranks { // the rank's own block first
		for i, r := range g.ranks[(g.mine+step)%len(g.ranks)] {
			p.withinPlace(g, local[i%len(local)]).spread(p.to(r))
		}
	}
}
