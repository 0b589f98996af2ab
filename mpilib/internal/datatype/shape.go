package datatype

// A shape is the arrangement of a type's elements. All constructors reduce to five shapes.
type shape interface {
	// build returns the plan of one element; nil if it has no data. With
	// typed set the plan keeps basic elements of different kinds apart.
	build(typed bool) *node
}

// basic is one basic element.
type basic kind

// same has another type's elements under a new name or with new bounds.
type same struct{ old *Type }

// A grid is count blocks, stride bytes apart, of length elements of old next
// to each other.
type grid struct {
	old                   *Type
	count, length, stride int64
}

// A list is blocks of old with a displacement each, in units of scale bytes.
// lengths has each block's elements, or is nil when all have length.
type list struct {
	old           *Type
	lengths       []int64
	length        int64
	displacements []int64
	scale         int64
}

// fields are blocks of different types at displacements in bytes.
type fields struct {
	types         []*Type
	lengths       []int64
	displacements []int64
}

func (l list) lengthOf(i int) int64 {
	if l.lengths == nil {
		return l.length
	}
	return l.lengths[i]
}

// measure accumulates the properties of a type that are known before its plan is needed.
type measure struct {
	sum
	size, external int64
	bounds         bounds
	sig            Signature
}

// block adds the size of n elements of t, in type map order.
func (m *measure) block(n int64, t *Type) {
	m.size = m.add(m.size, m.mul(n, t.size))
	m.external = m.add(m.external, m.mul(n, t.external))
	m.sig = m.sig.then(t.sig.times(n))
}

// reach returns the displacements of the first and the last of n elements of
// t from the first's, the lower one first. n is at least 1.
func (m *measure) reach(n int64, t *Type) (lo, hi int64) {
	last := m.mul(n-1, t.extent)
	return min(0, last), max(0, last)
}

func (g grid) measure() *measure {
	m := &measure{bounds: bounds{align: 1}}
	if g.count == 0 || g.length == 0 {
		return m
	}
	m.block(m.mul(g.count, g.length), g.old)
	lo, hi := m.reach(g.length, g.old)
	last := m.mul(g.count-1, g.stride)
	m.bounds = g.old.bounds.spread(m.add(lo, min(0, last)), m.add(hi, max(0, last)), &m.sum)
	return m
}

func (l list) measure() *measure {
	m := &measure{bounds: bounds{align: 1}}
	var lo, hi, total int64
	some := false
	for i, d := range l.displacements {
		n := l.lengthOf(i)
		if n == 0 {
			continue
		}
		total = m.add(total, n)
		first, last := m.reach(n, l.old)
		at := m.mul(d, l.scale)
		first, last = m.add(at, first), m.add(at, last)
		if !some {
			lo, hi, some = first, last, true
		}
		lo, hi = min(lo, first), max(hi, last)
	}
	if some {
		m.block(total, l.old)
		m.bounds = l.old.bounds.spread(lo, hi, &m.sum)
	}
	return m
}

func (f fields) measure() *measure {
	m := &measure{bounds: bounds{align: 1}}
	for i, n := range f.lengths {
		if n == 0 {
			continue
		}
		t := f.types[i]
		m.block(n, t)
		lo, hi := m.reach(n, t)
		d := f.displacements[i]
		m.bounds = m.bounds.join(t.bounds.spread(m.add(d, lo), m.add(d, hi), &m.sum))
	}
	return m
}
