package matrix

import "slices"

// Pair is an ordered pair of presets: the asker's and the target's.
type Pair struct{ From, To string }

// part is the pairs connected in one lab.
type part struct {
	from, to []string // presets with an asking or a target site
	pairs    []Pair
}

// perLab is the maximum number of sites of one lab: a gateway and a node each, so twice as many
// daemons, which a small machine can still run.
const perLab = 36

// square returns the parts for every ordered pair of the presets: all of them in
// one lab if they fit, else blocks of rows and columns of nearly equal size.
func square(presets []string) []part {
	const side = perLab / 2
	n := (len(presets) + side - 1) / side
	block := func(i int) []string { return presets[i*len(presets)/n : (i+1)*len(presets)/n] }
	var parts []part
	for i := range n {
		for j := range n {
			p := part{from: block(i), to: block(j)}
			for _, from := range p.from {
				for _, to := range p.to {
					p.pairs = append(p.pairs, Pair{from, to})
				}
			}
			parts = append(parts, p)
		}
	}
	return parts
}

// deal returns the parts for some pairs, in their order: each takes pairs until
// the next would need too many sites.
func deal(pairs []Pair) []part {
	var parts []part
	var p part
	for _, pair := range pairs {
		more := p.with(pair)
		if len(more.from)+len(more.to) > perLab {
			parts = append(parts, p)
			more = part{}.with(pair)
		}
		p = more
	}
	return append(parts, p)
}

// with returns the part with one more pair.
func (p part) with(pair Pair) part {
	if !slices.Contains(p.from, pair.From) {
		p.from = append(slices.Clip(p.from), pair.From)
	}
	if !slices.Contains(p.to, pair.To) {
		p.to = append(slices.Clip(p.to), pair.To)
	}
	p.pairs = append(slices.Clip(p.pairs), pair)
	return p
}

// occurring lists the presets of pairs in the order of their first occurrence.
func occurring(pairs []Pair) []string {
	var presets []string
	for _, p := range pairs {
		for _, name := range []string{p.From, p.To} {
			if !slices.Contains(presets, name) {
				presets = append(presets, name)
			}
		}
	}
	return presets
}
