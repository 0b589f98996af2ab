package collectives

import "github.com/isthmus-grid/isthmus/collectives/schedule"

// Binomial broadcast: a rank that has the vector sends it to the rank half the remaining distance
// away, then a quarter, and so on. Counted from the root, a rank receives from the one whose number
// lacks its lowest set bit.
//
// Cost: ceil(log2 p)(α + nβ). Best for short vectors; long ones cross the root's link log2 p times.
func bcastBinomial(p *plan) { p.tree(p.out) }

// tree is the binomial broadcast of a region.
func (p *plan) tree(r schedule.Region) {
	v := (p.rank - p.root + p.size) % p.size // the root is 0
	bit := 1
	for ; bit < p.size && v&bit == 0; bit *= 2 {
	}
	if v != 0 {
		p.Receive((v-bit+p.root)%p.size, r)
	}
	// The subtree below v is v+1 .. v+bit-1; its far half is served first.
	for bit /= 2; bit > 0; bit /= 2 {
		if v+bit < p.size {
			p.Send((v+bit+p.root)%p.size, r)
		}
	}
}
