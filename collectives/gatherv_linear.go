package collectives

import "github.com/isthmus-grid/isthmus/collectives/schedule"

// Linear gatherv: the linear gather with blocks of any length. Only the root
// knows the lengths, so no tree can be built without asking first. Empty
// blocks are sent too: a rank that disagrees about its count is then an error
// and not a wait.
//
// Cost at the root: (p-1)α + (sum of counts)β, and no copies.
func gathervLinear(p *plan) {
	p.collect(func(r int) schedule.Region { return placed(p.out, p.args.RecvCounts, p.args.RecvDispls, r) })
}
