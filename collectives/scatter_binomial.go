package collectives

// Binomial scatter: the binomial gather run backwards. A rank receives the blocks of its whole
// subtree as one message, keeps the first and sends each child its run, the largest subtree first.
//
// Cost: ceil(log2 p)α + (p-1)nβ, and one copy of everything at a root other than 0. Best for small
// blocks.
func scatterBinomial(p *plan) {
	n := p.out.Len
	v := (p.rank - p.root + p.size) % p.size
	count := subtree(v, p.size)
	run := p.out // blocks of v, v+1, ...
	switch {
	case v == 0 && p.root == 0:
		run = p.in
	case v == 0:
		run = p.Scratch(p.size * n)
		above := p.size - p.root
		p.Copy(blocks(run, 0, above, n), blocks(p.in, p.root, above, n))
		p.Copy(blocks(run, above, p.root, n), blocks(p.in, 0, p.root, n))
	case count > 1:
		run = p.Scratch(count * n)
	}
	bit := 1
	for ; bit < p.size && v&bit == 0; bit *= 2 {
	}
	if v != 0 {
		p.Receive((v-bit+p.root)%p.size, run)
	}
	for bit /= 2; bit > 0; bit /= 2 {
		if v+bit < p.size {
			p.Send((v+bit+p.root)%p.size, blocks(run, bit, subtree(v+bit, p.size), n))
		}
	}
	p.Copy(p.out, block(run, 0, n))
}
