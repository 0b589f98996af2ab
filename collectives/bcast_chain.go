package collectives

import "github.com/isthmus-grid/isthmus/collectives/schedule"

// Chain broadcast, pipelined: every rank passes on each flit to the rank above while the
// next one comes in.
//
// Cost: (p-2+F)(α + (n/F)β). Best for long vectors cut into so many flits that their
// latencies are what costs.
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
