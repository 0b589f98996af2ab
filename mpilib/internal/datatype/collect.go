package datatype

// flattenMax is the number of parts up to which a list of parts is flattened when it becomes part
// of another, because its parts may then join their neighbours.
const flattenMax = 64

// A part is a node at a displacement, or a run of bytes if node is nil.
type part struct {
	at   int64
	size int64 // of a run
	kind kind  // of a run
	node *node
}

// A collector turns a sequence of parts in type map order into a node.
type collector struct{ parts []part }

// add appends n displaced by d.
func (c *collector) add(n *node, d int64) {
	if n == nil {
		return
	}
	d += n.disp
	switch {
	case n.op == opRun:
		c.addRun(n.kind, d, n.size)
	case n.op == opPieces && len(n.at) <= flattenMax:
		for i, at := range n.at {
			c.addRun(n.kind, d+at, n.ends[i]-n.start(i))
		}
	case n.op == opIndexed && n.body.op == opRun && len(n.at) <= flattenMax:
		for _, at := range n.at {
			c.addRun(n.body.kind, d+at+n.body.disp, n.body.size)
		}
	case n.op == opSeq && len(n.at) <= flattenMax:
		for i, kid := range n.kids {
			c.add(kid, d+n.at[i])
		}
	default:
		c.parts = append(c.parts, part{at: d - n.disp, node: n})
	}
}

// addRun appends a run, merging it with the last one if that ends where this begins.
func (c *collector) addRun(k kind, at, size int64) {
	if i := len(c.parts) - 1; i >= 0 {
		if p := &c.parts[i]; p.node == nil && p.kind == k && p.at+p.size == at {
			p.size += size
			return
		}
	}
	c.parts = append(c.parts, part{at: at, size: size, kind: k})
}

// node returns the simplest node for the parts; nil if there are none.
func (c *collector) node() *node {
	if len(c.parts) == 0 {
		return nil
	}
	first := c.parts[0]
	oneKind, alike := first.node == nil, true
	for _, p := range c.parts {
		oneKind = oneKind && p.node == nil && p.kind == first.kind
		alike = alike && p.node == first.node && p.size == first.size && p.kind == first.kind
	}
	switch {
	case alike:
		return c.indexed()
	case oneKind:
		return c.pieces()
	}
	return c.seq()
}

// indexed returns a node for parts that differ only in their displacements.
func (c *collector) indexed() *node {
	first := c.parts[0]
	body := first.node
	if body == nil {
		body = runNode(first.kind, 0, first.size)
	}
	n := int64(len(c.parts))
	if n == 1 {
		return body.displaced(first.at)
	}
	step, even := c.parts[1].at-first.at, true
	for i := range c.parts[1:] {
		even = even && c.parts[i+1].at-c.parts[i].at == step
	}
	if even {
		return repeat(body, n, step).displaced(first.at)
	}
	return &node{op: opIndexed, size: body.size * n, body: body, at: c.places(), sig: body.sig.times(n)}
}

// pieces returns a node for runs of different lengths and the same kind.
func (c *collector) pieces() *node {
	ends := make([]int64, len(c.parts))
	size := int64(0)
	for i, p := range c.parts {
		size += p.size
		ends[i] = size
	}
	n := runNode(c.parts[0].kind, 0, size) // for its signature
	n.op, n.at, n.ends = opPieces, c.places(), ends
	return n
}

// seq returns a node for any parts.
func (c *collector) seq() *node {
	type run struct {
		kind kind
		size int64
	}
	runs := map[run]*node{} // equal ones are shared
	n := &node{op: opSeq, at: c.places(), ends: make([]int64, len(c.parts)), kids: make([]*node, len(c.parts))}
	for i, p := range c.parts {
		kid := p.node
		if kid == nil {
			r := run{p.kind, p.size}
			if kid = runs[r]; kid == nil {
				kid = runNode(p.kind, 0, p.size)
				runs[r] = kid
			}
		}
		n.kids[i] = kid
		n.size += kid.size
		n.ends[i] = n.size
		n.sig = n.sig.then(kid.sig)
	}
	return n
}

// places returns the parts' displacements.
func (c *collector) places() []int64 {
	at := make([]int64, len(c.parts))
	for i, p := range c.parts {
		at[i] = p.at
	}
	return at
}
