package collectives

// Bruck alltoall: a block that must travel d ranks upwards makes one hop for each bit set in d. In
// the round of a bit every rank packs all blocks whose remaining way has that bit, as one message
// to the rank that far above. The slot of a block is its distance, which is the same at every stop,
// so received blocks take the slots of sent blocks.
//
// Cost: ceil(log2 p)(α + (p/2)nβ) and two copies per round. Best for tiny blocks, where the number
// of messages dominates the cost.
func alltoallBruck(p *plan) {
	n := p.in.Len / p.size
	slots := p.Scratch(p.size * n) // slot d holds a block that has distance d to travel or has travelled it
	above := p.size - p.rank
	p.Copy(blocks(slots, 0, above, n), blocks(p.in, p.rank, above, n))
	p.Copy(blocks(slots, above, p.rank, n), blocks(p.in, 0, p.rank, n))

	for bit := 1; bit < p.size; bit *= 2 {
		var moving []int
		for d := bit; d < p.size; d++ {
			if d&bit != 0 {
				moving = append(moving, d)
			}
		}
		out, in := p.Scratch(len(moving)*n), p.Scratch(len(moving)*n)
		for i, d := range moving {
			p.Copy(block(out, i, n), block(slots, d, n))
		}
		p.exchange((p.rank+bit)%p.size, out, (p.rank-bit+p.size)%p.size, in)
		for i, d := range moving {
			p.Copy(block(slots, d, n), block(in, i, n))
		}
	}
	// Slot d now holds the block that came from d ranks below.
	for d := range p.size {
		p.Copy(block(p.out, (p.rank-d+p.size)%p.size, n), block(slots, d, n))
	}
}
