package datatype

import (
	"fmt"
	"testing"
)

func TestNamedTypes(t *testing.T) {
	for _, s := range basicSamples() {
		for count := range int64(4) {
			check(t, s, count)
		}
	}
}

// TestSmallNestings nests every small constructor in every other.
func TestSmallNestings(t *testing.T) {
	bases := basicSamples()
	for _, base := range []sample{bases[0], bases[1], bases[len(bases)-1]} {
		for _, inner := range around(base) {
			check(t, inner, 2)
			for i, outer := range around(inner) {
				check(t, outer, int64(i%4))
			}
		}
	}
}

// around returns old in each constructor with small arguments.
func around(old sample) (all []sample) {
	m, t, ex := old.m, old.t, old.m.extent()
	add := func(m typemap, what string, args ...any) func(*Type, error) {
		return func(t *Type, err error) { all = append(all, old.with(m, what, args...)(t, err)) }
	}
	for n := range int64(3) {
		add(m.run(n, 0), "contiguous", n)(Contiguous(n, t))
	}
	for _, v := range [][3]int64{{0, 1, 1}, {2, 0, 1}, {1, 2, 5}, {2, 1, 1}, {2, 1, 2}, {3, 2, 2}, {3, 2, 3}, {2, 1, -1}, {3, 1, -2}} {
		add(m.hvector(v[0], v[1], v[2]*ex), "vector", v)(Vector(v[0], v[1], v[2], t))
	}
	for _, stride := range []int64{-33, 24, 41} {
		add(m.hvector(2, 1, stride), "hvector", stride)(Hvector(2, 1, stride, t))
	}
	for _, l := range [][2][]int64{{{}, {}}, {{1, 0, 2}, {3, -9, 0}}, {{1, 1}, {0, 1}}, {{2, 1, 1}, {0, 2, 4}}, {{1, 1, 1}, {4, 2, -1}}} {
		add(m.hindexed(l[0], scaled(l[1], ex)), "indexed", l)(Indexed(l[0], l[1], t))
	}
	at := []int64{-17, 0, 50}
	add(m.hindexed([]int64{1, 2, 1}, at), "hindexed", at)(Hindexed([]int64{1, 2, 1}, at, t))
	add(m.hindexed([]int64{1, 1, 1}, at), "hindexed_block", at)(HindexedBlock(1, at, t))
	add(m.hindexed([]int64{2, 2}, scaled([]int64{3, 0}, ex)), "indexed_block", at)(IndexedBlock(2, []int64{3, 0}, t))
	char := typemap{entries: []entry{{kind(Char.shape.(basic)), 0}}}
	add(char.run(3, 61).and(m.run(2, -8)).and(char), "struct")(Struct([]int64{3, 2, 1}, []int64{61, -8, 0}, []*Type{Char, t, Char}))
	for _, r := range [][2]int64{{0, 0}, {-3, 70}, {5, -20}} {
		add(m.resized(r[0], r[1]), "resized", r)(Resized(t, r[0], r[1]))
	}
	for _, o := range []Order{OrderC, OrderFortran} {
		sizes, sub, start := []int64{2, 3}, []int64{1, 2}, []int64{1, 0}
		add(m.subarray(sizes, sub, start, o), "subarray", o)(Subarray(sizes, sub, start, o, t))
	}
	g := Grid{[]int64{5}, []Distribution{DistributeCyclic}, []int64{2}, []int64{2}}
	for rank := range int64(2) {
		add(m.darray(rank, g, OrderC), "darray", rank)(Darray(2, rank, g, OrderC, t))
	}
	add(m, "dup")(t.Dup(), nil)
	return all
}

func scaled(all []int64, by int64) (out []int64) {
	for _, v := range all {
		out = append(out, v*by)
	}
	return out
}

func TestRandomTypes(t *testing.T) {
	for seed := range uint64(1000) {
		c := chooseRandom(seed)
		s := c.random(4)
		s.text = fmt.Sprintf("seed %d: %s", seed, s.text)
		check(t, s, c(4))
	}
}

func FuzzTypes(f *testing.F) {
	f.Add([]byte{1, 2, 3})
	f.Add([]byte("struct of vectors of subarrays"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := chooseBytes(data)
		count := c(4)
		check(t, c.random(5), count)
	})
}
