package datatype

// Elements returns how many basic elements a message of size bytes has that was received into
// elements of t (MPI_Get_elements_x; MPI-4.1, 5.1.11). ok is false if size ends within a basic
// element: MPI_UNDEFINED.
func (t *Type) Elements(size int64) (n int64, ok bool) {
	if size < 0 || t.size == 0 {
		return 0, size == 0
	}
	n = size / t.size
	if t.sig == anything { // packed bytes are counted as bytes
		return size, true
	}
	more, ok := t.nodeOf(true).elements(size % t.size)
	return n*t.sig.Elements + more, ok
}

// elements returns how many basic elements n's first size bytes contain.
func (n *node) elements(size int64) (count int64, ok bool) {
	if size == 0 {
		return 0, true
	}
	switch n.op {
	case opLoop, opIndexed:
		more, ok := n.body.elements(size % n.body.size)
		return size/n.body.size*n.body.sig.Elements + more, ok
	case opSeq:
		i := n.find(size)
		for _, kid := range n.kids[:i] {
			count += kid.sig.Elements
		}
		if i == len(n.kids) {
			return count, true
		}
		more, ok := n.kids[i].elements(size - n.start(i))
		return count + more, ok
	}
	per := kinds[n.kind].size
	return size / per, size%per == 0
}

// prefix returns the signature of n's first elements; n has at least that many.
func (n *node) prefix(elements int64) Signature {
	if elements == 0 {
		return Signature{}
	}
	switch n.op {
	case opLoop, opIndexed:
		per := n.body.sig.Elements
		return n.body.sig.times(elements / per).then(n.body.prefix(elements % per))
	case opSeq:
		var s Signature
		for _, kid := range n.kids {
			if kid.sig.Elements > elements {
				return s.then(kid.prefix(elements))
			}
			s = s.then(kid.sig)
			elements -= kid.sig.Elements
		}
		return s
	}
	return kinds[n.kind].signature().times(elements)
}
