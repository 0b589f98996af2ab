package collectives

// Mixed reduce: the first two thirds of the flits go by two hops, the others directly. See
// bcastMixed.
//
// Cost with S sites: the greater of 2L + (2/3)nβ and L + (2/3 + (S-1)/3)nβ.
func reduceMixed(p *plan) { p.reduceOverLanes((2*p.flits+1)/3, (*plan).twoHopReduce) }
