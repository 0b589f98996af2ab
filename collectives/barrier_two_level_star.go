package collectives

// Two-level star barrier: the ranks of each place tell their head, the heads tell one of them, and it tells
// them all, each of which tells its place.
//
// Cost with S sites: 2L + 2 ceil(log2 n)l; 2(S-1) messages between sites, the least there can be. Best where
// the messages of many places take longer than their latency.
func barrierTwoLevelStar(p *plan) {
	g := p.places()
	if g == nil {
		barrierDissemination(p)
		return
	}
	p.local(g, 0).gatherSignals()
	if heads := p.across(g, 0); heads != nil {
		heads.signalByRoot()
	}
	p.local(g, 0).spreadSignal()
}

// signalByRoot sends a signal from every rank to the root, and then from the root to every other.
func (p *plan) signalByRoot() {
	if p.rank != p.root {
		p.Signal(p.root)
		p.Await(p.root)
		return
	}
	for i := 1; i < p.size; i++ {
		p.Await((p.root + i) % p.size)
	}
	for i := 1; i < p.size; i++ {
		p.Signal((p.root + i) % p.size)
	}
}
