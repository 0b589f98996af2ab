package collectives

import "github.com/isthmus-grid/isthmus/collectives/schedule"

// Binomial gather: the broadcast tree run backwards, each rank forwarding its own block and those
// of its subtree as one message. Counted from the root, a subtree is a contiguous run of ranks, so
// blocks stay in order; the root rotates the run so that rank 0 comes first.
//
// Cost: ceil(log2 p)α + (p-1)nβ, and every block is copied at most once more at the root. Best for
// small blocks.
func gatherBinomial(p *plan) {
	n := p.in.Len
	v := (p.rank - p.root + p.size) % p.size
	run := p.in // blocks of v, v+1, ... as far as they have arrived
	if count := subtree(v, p.size); count > 1 {
		run = p.Scratch(count * n)
		p.Copy(block(run, 0, n), p.in)
	}
	for bit := 1; bit < p.size; bit *= 2 {
		if v&bit != 0 {
			p.Send((v-bit+p.root)%p.size, run)
			return
		}
		if v+bit < p.size {
			p.Receive((v+bit+p.root)%p.size, blocks(run, bit, subtree(v+bit, p.size), n))
		}
	}
	// Only the root gets here; run starts with its own block.
	p.rotate(run, p.root, n)
}

// rotate copies blocks of n bytes each, the first of them that of rank first, to their places in
// the receive buffer.
func (p *plan) rotate(run schedule.Region, first, n int) {
	above := p.size - first
	p.Copy(blocks(p.out, first, above, n), blocks(run, 0, above, n))
	p.Copy(blocks(p.out, 0, first, n), blocks(run, above, first, n))
}

// subtree is the number of ranks in the binomial subtree of v, itself
// included, among p ranks counted from the root.
func subtree(v, p int) int {
	if v == 0 {
		return p
	}
	return min(v&-v, p-v)
}
