package collectives

// Chain scan, pipelined: every rank reduces each flit of the ranks below with its own and forwards
// the result while it receives the next one. It serves exscan too, and any operator.
//
// Cost: (p-2+F)(α + (n/F)(β + γ)). Best for long vectors, which recursive doubling would send log2
// p times.
func scanChain(p *plan) {
	in, out := p.pieces(p.in, p.flits), p.pieces(p.out, p.flits)
	for i := range in {
		p.Copy(out[i], in[i])
		if p.rank > 0 {
			below := p.Scratch(in[i].Len)
			p.Receive(p.rank-1, below)
			p.Reduce(out[i], below)
		}
		if p.rank < p.size-1 {
			p.Send(p.rank+1, out[i])
		}
	}
}

// Chain exscan. See scanChain.
func exscanChain(p *plan) {
	in, out := p.pieces(p.in, p.flits), p.pieces(p.out, p.flits)
	for i := range in {
		sum := p.scratchCopy(in[i])
		if p.rank > 0 {
			below := p.Scratch(in[i].Len)
			p.Receive(p.rank-1, below)
			p.Copy(out[i], below)
			if p.rank < p.size-1 {
				sum = p.join(sum, below, false)
			}
		}
		if p.rank < p.size-1 {
			p.Send(p.rank+1, sum)
		}
	}
}
