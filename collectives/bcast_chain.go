package collectives

import "github.com/isthmus-grid/isthmus/collectives/schedule"

// Chain broadcast, pipelined: every rank forwards each flit to the rank above while it receives the
// next one.
//
// Cost: (p-2+F)(α + (n/F)β). Best for long vectors cut into so many flits that their latencies
// dominate the cost.
func bcastChain(p *plan) {
	for _, flit := range p.pieces(p.out, p.flits) {
		p.chain(flit)
	}
}

// chain takes a region from the root to all, from rank to rank.
func (p *plan) chain(r schedule.Region) {
	for i := range p.size - 1 {
		p.pass((p.root+i)%p.size, r, (p.root+i+1)%p.size, r)
	}
}
