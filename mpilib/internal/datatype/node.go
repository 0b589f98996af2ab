package datatype

import "slices"

// op is the layout of a node's bytes.
type op uint8

const (
	opRun     op = iota // size consecutive bytes
	opLoop              // count times body, stride apart
	opIndexed           // body at each of at
	opPieces            // consecutive bytes at each of at
	opSeq               // kids[i] at at[i]
)

// A node is a part of a plan: some of a type's bytes in type map order, with their positions in
// memory relative to the node's position, and in the packed form relative to the node's first byte.
// It never changes and may have several parents.
type node struct {
	op    op
	kind  kind  // opRun and opPieces: of the bytes; untyped in copying plans
	disp  int64 // added to all displacements below
	size  int64 // packed bytes, at least 1
	count int64 // opLoop
	step  int64 // opLoop: the stride in memory
	body  *node // opLoop and opIndexed
	at    []int64
	ends  []int64 // opPieces and opSeq: the packed end of each, ascending
	kids  []*node

	sig Signature // in typed plans
}

// start returns where piece i begins in the packed form (opPieces, opSeq).
func (n *node) start(i int) int64 {
	if i == 0 {
		return 0
	}
	return n.ends[i-1]
}

// find returns the piece that packed byte pos is in (opPieces, opSeq).
func (n *node) find(pos int64) int {
	i, _ := slices.BinarySearch(n.ends, pos+1)
	return i
}

// runNode returns a node of size consecutive bytes.
func runNode(k kind, disp, size int64) *node {
	n := &node{op: opRun, kind: k, disp: disp, size: size}
	if k != untyped {
		n.sig = kinds[k].signature().times(size / kinds[k].size)
	}
	return n
}

// displaced returns n displaced by d.
func (n *node) displaced(d int64) *node {
	if d == 0 || n == nil {
		return n
	}
	m := *n
	m.disp += d
	return &m
}

// repeat returns count times n, step bytes apart, in the simplest form.
func repeat(n *node, count, step int64) *node {
	switch {
	case n == nil || count == 0:
		return nil
	case count == 1:
		return n
	case n.op == opRun && step == n.size:
		m := *n
		m.size *= count
		m.sig = n.sig.times(count)
		return &m
	case n.op == opLoop && step == n.count*n.step: // continues the loop
		m := *n
		m.count *= count
		m.size *= count
		m.sig = n.sig.times(count)
		return &m
	}
	return &node{op: opLoop, size: n.size * count, count: count, step: step, body: n, sig: n.sig.times(count)}
}

// nodeOf returns the plan of one element of t; nil if it has no data.
func (t *Type) nodeOf(typed bool) *node {
	cache := &t.copying
	if typed {
		cache = &t.typed
	}
	if n := cache.Load(); n != nil {
		return n
	}
	if t.size == 0 {
		return nil
	}
	n := t.shape.build(typed)
	cache.Store(n)
	return n
}

func (b basic) build(typed bool) *node {
	k := kind(b)
	if typed {
		return runNode(k, 0, kinds[k].size)
	}
	return runNode(untyped, 0, kinds[k].size)
}

func (s same) build(typed bool) *node { return s.old.nodeOf(typed) }

func (g grid) build(typed bool) *node {
	return repeat(repeat(g.old.nodeOf(typed), g.length, g.old.extent), g.count, g.stride)
}

func (l list) build(typed bool) *node {
	c := collector{parts: make([]part, 0, len(l.displacements))}
	old := l.old.nodeOf(typed)
	blocks := map[int64]*node{} // by length: equal ones are shared
	for i, d := range l.displacements {
		n := l.lengthOf(i)
		if n == 0 {
			continue
		}
		b, ok := blocks[n]
		if !ok {
			b = repeat(old, n, l.old.extent)
			blocks[n] = b
		}
		c.add(b, d*l.scale)
	}
	return c.node()
}

func (f fields) build(typed bool) *node {
	var c collector
	for i, t := range f.types {
		c.add(repeat(t.nodeOf(typed), f.lengths[i], t.extent), f.displacements[i])
	}
	return c.node()
}

// A plan is the result of Commit: a message repeats body, step bytes apart, until it has the size of
// its elements.
type plan struct {
	body     *node // nil: no data
	step     int64
	size     int64 // of an element
	maxCount int64 // more would exceed 64 bits
	dense    bool  // a message is one run
}

func (t *Type) newPlan() *plan {
	p := &plan{body: t.nodeOf(false), step: t.extent, size: t.size, maxCount: t.maxCount()}
	if n := p.body; n != nil && n.op == opLoop && t.extent == n.count*n.step {
		// The next element continues where the last one's loop ends.
		p.body, p.step = n.body.displaced(n.disp), n.step
	}
	if p.body != nil {
		p.dense = p.body.op == opRun && p.step == p.body.size
	}
	return p
}
