package collectives

// Mixed allreduce: the first half of the flits goes in two steps, the second half by an all-pairs
// exchange, which begins later and ends as early.
//
// Cost with S sites: the greater of 2L + ((S-1)/S)nβ and L + ((S-1)/S + (S-1)/2)nβ. Best where nβ
// is about L.
func allreduceMixed(p *plan) { p.allreduceOverLanes((p.flits+1)/2, (*plan).twoStep) }
