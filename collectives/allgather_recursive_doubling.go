package collectives

// Recursive-doubling allgather: in round k partners at distance 2^k exchange all they have, each
// block straight into place. When p is not a power of two it is Bruck's.
//
// Cost: log2 p α + (p-1)nβ and no copies. Best for blocks of medium size.
func allgatherRecursiveDoubling(p *plan) {
	if p.size&(p.size-1) != 0 {
		allgatherBruck(p)
		return
	}
	n := p.in.Len
	p.Copy(block(p.out, p.rank, n), p.in)
	for have := 1; have < p.size; have *= 2 {
		partner := p.rank ^ have
		p.exchange(partner, blocks(p.out, p.rank&^(have-1), have, n), partner, blocks(p.out, partner&^(have-1), have, n))
	}
}
