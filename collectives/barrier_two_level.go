package collectives

// Two-level barrier: the ranks of each place tell their head, the heads tell one another, and each
// tells its place.
//
// Cost with S sites: L + 2 ceil(log2 n)l; S(S-1) messages between sites. No algorithm takes less
// than L; a dissemination takes ceil(log2 S) times as long.
func barrierTwoLevel(p *plan) {
	g := p.places()
	if g == nil {
		barrierDissemination(p)
		return
	}
	p.local(g, 0).gatherSignals()
	if heads := p.across(g, 0); heads != nil {
		heads.signalAll()
	}
	p.local(g, 0).spreadSignal()
}

// signalAll sends a signal from every rank to every other.
func (p *plan) signalAll() {
	for i := 1; i < p.size; i++ {
		p.Signal((p.rank + i) % p.size)
	}
	for i := 1; i < p.size; i++ {
		p.Await((p.rank + i) % p.size)
	}
}

// gatherSignals tells the root that all ranks have entered, up the binomial tree of each place.
func (p *plan) gatherSignals() {
	g := p.places()
	if g == nil {
		p.signalTree(true)
		return
	}
	p.local(g, 0).gatherSignals()
	if heads := p.across(g, 0); heads != nil {
		heads.signalTree(true)
	}
}

// spreadSignal is gatherSignals in reverse.
func (p *plan) spreadSignal() {
	g := p.places()
	if g == nil {
		p.signalTree(false)
		return
	}
	if heads := p.across(g, 0); heads != nil {
		heads.signalTree(false)
	}
	p.local(g, 0).spreadSignal()
}

// signalTree passes signals up the binomial tree to the root, or down from it.
func (p *plan) signalTree(up bool) {
	v := (p.rank - p.root + p.size) % p.size
	bit := 1
	for ; bit < p.size && v&bit == 0; bit *= 2 {
		if child := v + bit; up && child < p.size {
			p.Await((child + p.root) % p.size)
		}
	}
	if v != 0 {
		parent := (v - bit + p.root) % p.size
		if up {
			p.Signal(parent)
			return
		}
		p.Await(parent)
	}
	if up {
		return
	}
	for bit /= 2; bit > 0; bit /= 2 {
		if child := v + bit; child < p.size {
			p.Signal((child + p.root) % p.size)
		}
	}
}
