package collectives

import "github.com/isthmus-grid/isthmus/collectives/schedule"

// Two-level alltoall: between any two places there is one message in each direction. One rank of
// the sending place collects what its ranks have for the other place, where one rank distributes
// it. The ranks that do so differ from pair to pair.
//
// Cost with S sites: L + 2l + n(N-n)mβ, and every block that crosses is copied two to four times;
// S(S-1) messages between sites. Best for small blocks.
func alltoallTwoLevel(p *plan) {
	g := p.places()
	if g == nil {
		alltoallPairwise(p)
		return
	}
	local := g.ranks[g.mine]
	home := p.subPlan(local, local[0])
	home.from = func(r int) schedule.Region { return p.from(local[r]) }
	home.to = func(r int) schedule.Region { return p.to(local[r]) }
	alltoallPairwise(home)

	agent := func(at, for_ int) int { return g.ranks[at][for_%len(g.ranks[at])] }
	n := p.from(0).Len
	for step := 1; step < len(g.ranks); step++ {
		k := (g.mine + step) % len(g.ranks)
		there := g.ranks[k]
		out := p.row(there, p.from)
		p.pack(out)
		packet := p.gatherPacket(local, agent(g.mine, k), out.whole)
		if p.rank == agent(g.mine, k) {
			p.Send(agent(k, g.mine), packet)
		}
	}
	for step := 1; step < len(g.ranks); step++ {
		k := (g.mine + len(g.ranks) - step) % len(g.ranks)
		there := g.ranks[k]
		in := p.row(there, p.to)
		var packet schedule.Region
		if p.rank == agent(g.mine, k) {
			packet = p.Scratch(len(local) * len(there) * n)
			p.Receive(agent(k, g.mine), packet)
		}
		p.dealPacket(local, len(there), agent(g.mine, k), packet, in.whole)
		p.unpack(in)
	}
}

// gatherPacket collects the rows of some ranks at one of them.
func (p *plan) gatherPacket(ranks []int, at int, own schedule.Region) (packet schedule.Region) {
	if p.rank == at {
		packet = p.Scratch(len(ranks) * own.Len)
	}
	for i, r := range ranks {
		switch {
		case p.rank != at:
			if r == p.rank {
				p.Send(at, own)
			}
		case r == at:
			p.Copy(block(packet, i, own.Len), own)
		default:
			p.Receive(r, block(packet, i, own.Len))
		}
	}
	return packet
}

// dealPacket distributes the columns of a packet of rows, which rank at has.
func (p *plan) dealPacket(ranks []int, rows, at int, packet, own schedule.Region) {
	n := own.Len / rows
	if p.rank != at {
		p.Receive(at, own)
		return
	}
	for c, r := range ranks {
		to := own
		if r != at {
			to = p.Scratch(own.Len)
		}
		for row := range rows {
			p.Copy(block(to, row, n), block(packet, row*len(ranks)+c, n))
		}
		if r != at {
			p.Send(r, to)
		}
	}
}
