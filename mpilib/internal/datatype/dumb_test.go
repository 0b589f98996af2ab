package datatype

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// A typemap is the standard's definition of a datatype (MPI-4.1, 5.1): every basic element with its
// displacement, and the marks of resized parts. The optimised code is compared with it.
type typemap struct {
	entries  []entry
	lbs, ubs []int64
}

type entry struct {
	kind kind
	at   int64
}

func (m typemap) size() (n int64) {
	for _, e := range m.entries {
		n += kinds[e.kind].size
	}
	return n
}

func (m typemap) trueBounds() (low, high int64) {
	if len(m.entries) == 0 {
		return 0, 0
	}
	low, high = math.MaxInt64, math.MinInt64
	for _, e := range m.entries {
		low, high = min(low, e.at), max(high, e.at+kinds[e.kind].size)
	}
	return low, high
}

func (m typemap) limits() (lb, ub int64) {
	if len(m.lbs) > 0 {
		return slices.Min(m.lbs), slices.Max(m.ubs)
	}
	low, high := m.trueBounds()
	for _, e := range m.entries {
		for (high-low)%kinds[e.kind].align != 0 { // powers of two: the strictest wins
			high++
		}
	}
	return low, high
}

func (m typemap) extent() int64 {
	lb, ub := m.limits()
	return ub - lb
}

// at returns copies of m at each of the displacements, one after the other.
func (m typemap) at(displacements ...int64) (all typemap) {
	for _, d := range displacements {
		for _, e := range m.entries {
			all.entries = append(all.entries, entry{e.kind, e.at + d})
		}
		for i := range m.lbs {
			all.lbs = append(all.lbs, m.lbs[i]+d)
			all.ubs = append(all.ubs, m.ubs[i]+d)
		}
	}
	return all
}

func (m typemap) and(o typemap) typemap {
	return typemap{slices.Concat(m.entries, o.entries), slices.Concat(m.lbs, o.lbs), slices.Concat(m.ubs, o.ubs)}
}

// run returns n elements of m from displacement d on.
func (m typemap) run(n, d int64) typemap {
	var at []int64
	for i := range n {
		at = append(at, d+i*m.extent())
	}
	return m.at(at...)
}

func (m typemap) hvector(count, length, stride int64) (all typemap) {
	for i := range count {
		all = all.and(m.run(length, i*stride))
	}
	return all
}

func (m typemap) hindexed(lengths, at []int64) (all typemap) {
	for i, n := range lengths {
		all = all.and(m.run(n, at[i]))
	}
	return all
}

func (m typemap) resized(lb, extent int64) typemap {
	return typemap{m.entries, []int64{lb}, []int64{lb + extent}}
}

// subarray expands an array element by element.
func (m typemap) subarray(sizes, subsizes, starts []int64, order Order) (all typemap) {
	ex, total := m.extent(), m.extent()
	for _, s := range sizes {
		total *= s
	}
	everyIndex(subsizes, order, func(index []int64) {
		for d := range index {
			index[d] += starts[d]
		}
		all = all.and(m.at(offset(sizes, index, order) * ex))
	})
	return all.resized(0, total)
}

// darray walks over the whole array and takes what the process owns.
func (m typemap) darray(rank int64, g Grid, order Order) (all typemap) {
	ex, total := m.extent(), m.extent()
	for _, s := range g.Sizes {
		total *= s
	}
	place := make([]int64, len(g.Sizes)) // row-major
	for i := range rank {
		_ = i
		for d := len(place) - 1; ; d-- {
			if place[d]++; place[d] < g.Processes[d] {
				break
			}
			place[d] = 0
		}
	}
	everyIndex(g.Sizes, order, func(index []int64) {
		for d, i := range index {
			block := g.Arguments[d]
			if block == DistributeDefault {
				block = 1
				if g.Distributions[d] == DistributeBlock {
					block = (g.Sizes[d] + g.Processes[d] - 1) / g.Processes[d]
				}
			}
			if g.Distributions[d] != DistributeNone && i/block%g.Processes[d] != place[d] {
				return
			}
		}
		all = all.and(m.at(offset(g.Sizes, index, order) * ex))
	})
	return all.resized(0, total)
}

// everyIndex calls f with every index below sizes, in the order of memory.
func everyIndex(sizes []int64, order Order, f func(index []int64)) {
	index := make([]int64, len(sizes))
	for {
		f(slices.Clone(index))
		for _, d := range order.fromContiguous(len(sizes)) {
			if index[d]++; index[d] < sizes[d] {
				goto next
			}
			index[d] = 0
		}
		return
	next:
	}
}

func offset(sizes, index []int64, order Order) (at int64) {
	dims := order.fromContiguous(len(sizes))
	for _, d := range slices.Backward(dims) {
		at = at*sizes[d] + index[d]
	}
	return at
}

// bytes returns where each packed byte of count elements lies.
func (m typemap) bytes(count int64) (at []int64) {
	ex := m.extent()
	for i := range count {
		for _, e := range m.entries {
			for b := range kinds[e.kind].size {
				at = append(at, i*ex+e.at+b)
			}
		}
	}
	return at
}

func (m typemap) signature(count int64) (s Signature) {
	for range count {
		for _, e := range m.entries {
			s = s.then(kinds[e.kind].signature())
		}
	}
	return s
}

// A sample is a type in both forms, with a description of how it was made.
type sample struct {
	t    *Type
	m    typemap
	text string
}

// basicSamples returns the named types, pairs included, with a map for each.
func basicSamples() []sample {
	var all []sample
	for _, t := range []*Type{Char, Double, Int, Short, CFloatComplex, CBool, Uint64, LongLong, Float, Byte, Wchar} {
		all = append(all, sample{t, typemap{entries: []entry{{kind(t.shape.(basic)), 0}}}, t.String()})
	}
	find := func(t *Type) kind { return kind(t.shape.(basic)) }
	return append(all,
		sample{DoubleInt, typemap{entries: []entry{{find(Double), 0}, {find(Int), 8}}}, "MPI_DOUBLE_INT"},
		sample{ShortInt, typemap{entries: []entry{{find(Short), 0}, {find(Int), 4}}}, "MPI_SHORT_INT"})
}

// choose returns numbers from 0 to n-1 to build samples from.
type choose func(n int) int64

func chooseRandom(seed uint64) choose {
	r := rand.New(rand.NewPCG(seed, 5))
	return func(n int) int64 { return int64(r.IntN(n)) }
}

// chooseBytes takes its choices from data, then always 0.
func chooseBytes(data []byte) choose {
	return func(n int) int64 {
		if len(data) == 0 {
			return 0
		}
		b := data[0]
		data = data[1:]
		return int64(int(b) % n)
	}
}

// list returns n numbers, each one of some numbers from lo on.
func (c choose) list(n int64, lo, some int) []int64 {
	all := make([]int64, n)
	for i := range all {
		all[i] = int64(lo) + c(some)
	}
	return all
}

const sampleMax = 600 // basic elements in a sample

// random returns a type of up to depth constructors.
func (c choose) random(depth int) sample {
	s := c.randomUnbounded(depth)
	for len(s.m.entries) > sampleMax || len(s.m.lbs) > sampleMax {
		s = c.random(depth - 1)
	}
	return s
}

func (c choose) randomUnbounded(depth int) sample {
	if depth <= 0 || c(8) == 0 {
		all := basicSamples()
		return all[c(len(all))]
	}
	old := c.random(depth - 1)
	ex := old.m.extent()
	switch c(11) {
	case 0:
		n := c(6)
		return old.with(old.m.run(n, 0), "contiguous", n)(Contiguous(n, old.t))
	case 1:
		n, l, s := c(6), c(4), c(9)-4
		return old.with(old.m.hvector(n, l, s*ex), "vector", n, l, s)(Vector(n, l, s, old.t))
	case 2:
		n, l, s := c(6), c(4), c(80)-40
		return old.with(old.m.hvector(n, l, s), "hvector", n, l, s)(Hvector(n, l, s, old.t))
	case 3:
		n := c(5)
		l, at := c.list(n, 0, 4), c.list(n, -6, 20)
		bytes := slices.Clone(at)
		for i := range bytes {
			bytes[i] *= ex
		}
		return old.with(old.m.hindexed(l, bytes), "indexed", l, at)(Indexed(l, at, old.t))
	case 4:
		n := c(5)
		l, at := c.list(n, 0, 4), c.list(n, -60, 200)
		return old.with(old.m.hindexed(l, at), "hindexed", l, at)(Hindexed(l, at, old.t))
	case 5:
		n, l := c(8), c(4)
		at := c.list(n, -6, 20)
		var m typemap
		for _, d := range at {
			m = m.and(old.m.run(l, d*ex))
		}
		return old.with(m, "indexed_block", l, at)(IndexedBlock(l, at, old.t))
	case 6:
		n, l := c(8), c(4)
		at := c.list(n, -60, 200)
		var m typemap
		for _, d := range at {
			m = m.and(old.m.run(l, d))
		}
		return old.with(m, "hindexed_block", l, at)(HindexedBlock(l, at, old.t))
	case 7:
		return c.randomStruct(old, depth)
	case 8:
		lb, extent := c(60)-30, c(100)-30
		return old.with(old.m.resized(lb, extent), "resized", lb, extent)(Resized(old.t, lb, extent))
	case 9:
		return c.randomArray(old)
	}
	return c.randomGrid(old)
}

func (c choose) randomStruct(old sample, depth int) sample {
	var m typemap
	var types []*Type
	n := c(5)
	l, at := c.list(n, 0, 3), c.list(n, -60, 200)
	text := ""
	for i := range l {
		part := old
		if c(2) == 0 {
			part = c.random(depth - 1)
		}
		types = append(types, part.t)
		m = m.and(part.m.run(l[i], at[i]))
		text += " {" + part.text + "}"
	}
	return sample{text: text}.with(m, "struct", l, at)(Struct(l, at, types))
}

func (c choose) randomArray(old sample) sample {
	dims := 1 + c(3)
	sizes := c.list(dims, 1, 5)
	order := Order(c(2))
	var sub, start []int64
	for _, s := range sizes {
		sub = append(sub, 1+c(int(s)))
		start = append(start, c(int(s-sub[len(sub)-1])+1))
	}
	return old.with(old.m.subarray(sizes, sub, start, order), "subarray", sizes, sub, start, order)(Subarray(sizes, sub, start, order, old.t))
}

func (c choose) randomGrid(old sample) sample {
	dims := 1 + c(3)
	g := Grid{Sizes: c.list(dims, 1, 7)}
	size := int64(1)
	for _, s := range g.Sizes {
		how, p, arg := Distribution(c(3)), 1+c(4), DistributeDefault
		switch {
		case how == DistributeNone:
			p = 1
		case c(2) == 0:
			arg = 1 + c(4)
			if how == DistributeBlock {
				arg += (s + p - 1) / p
			}
		}
		g.Distributions, g.Arguments, g.Processes = append(g.Distributions, how), append(g.Arguments, arg), append(g.Processes, p)
		size *= p
	}
	rank, order := c(int(size)), Order(c(2))
	return old.with(old.m.darray(rank, g, order), "darray", rank, g, order)(Darray(size, rank, g, order, old.t))
}

// with returns a function that takes a constructor's results.
func (s sample) with(m typemap, what string, args ...any) func(*Type, error) sample {
	return func(t *Type, err error) sample {
		text := fmt.Sprintf("%s%v of %s", what, args, s.text)
		if err != nil {
			panic(fmt.Sprintf("%s: %v", text, err)) // arguments are always valid
		}
		return sample{t, m, text}
	}
}
