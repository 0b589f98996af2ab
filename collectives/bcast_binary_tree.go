package collectives

import "github.com/isthmus-grid/isthmus/collectives/schedule"

// Binary-tree broadcast, pipelined: every rank forwards each flit to two others while it receives
// the next one.
//
// Cost: (2 ceil(log2 (p+1)) + 2(F-2))(α + (n/F)β) at most. Compared with the chain it sends twice
// the bytes, and few ranks lie between the root and the last: best for long vectors and many ranks.
func bcastBinaryTree(p *plan) {
	for _, flit := range p.pieces(p.out, p.flits) {
		p.binaryTree(flit)
	}
}

// binaryTree takes a region from the root to all. Counted from the root, rank v receives from
// (v-1)/2.
func (p *plan) binaryTree(r schedule.Region) {
	v := (p.rank - p.root + p.size) % p.size
	if v > 0 {
		p.Receive(((v-1)/2+p.root)%p.size, r)
	}
	for child := 2*v + 1; child <= 2*v+2 && child < p.size; child++ {
		p.Send((child+p.root)%p.size, r)
	}
}
