package collectives

// Mixed broadcast: the first two thirds of the flits go by two hops, the others directly; the
// direct ones leave later and arrive as early.
//
// Cost with S sites: the greater of 2L + (2/3)nβ and L + (2/3 + (S-1)/3)nβ. Best where nβ is about
// L and neither latency nor bytes may be paid twice.
func bcastMixed(p *plan) { p.overLanes((2*p.flits+1)/3, (*plan).twoHop) }
