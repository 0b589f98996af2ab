package cg

import (
	"math"
	"math/bits"
	"slices"

	"github.com/isthmus-grid/isthmus/examples/npb/random"
)

// matrix is a block of a sparse matrix, row after row: the elements of row i
// are val[start[i]:start[i+1]], at the columns col[start[i]:start[i+1]], which
// ascend and count from the block's first.
type matrix struct {
	start []int32
	col   []int32
	val   []float64
}

// times sets out to the product with v.
func (m matrix) times(v, out []float64) {
	for i := range out {
		low, high := m.start[i], m.start[i+1]
		col, val := m.col[low:high], m.val[low:high]
		var sum float64
		for k, a := range val {
			sum += a * v[col[k]]
		}
		out[i] = sum
	}
}

// vectors are the sparse vectors x(i) that the matrix is made of; those of
// vector i are at[i*width:][:used[i]], with its values beside them.
type vectors struct {
	width int
	used  []int
	at    []int32
	value []float64
}

// makeVectors draws n vectors from the benchmark's one sequence of random
// numbers. The first is thrown away, as NPB does. Each vector has
// p.nonzeros random elements at random places, and 1/2 at its own place.
func (p problem) makeVectors() vectors {
	width := p.nonzeros + 1
	v := vectors{width, make([]int, p.n), make([]int32, p.n*width), make([]float64, p.n*width)}
	placeBits := bits.Len(uint(p.n - 1)) // of the least power of two that is n or more
	g := random.New(seed)
	g.Next()
	for i := range p.n {
		at, value := v.at[i*width:(i+1)*width], v.value[i*width:(i+1)*width]
		used := 0
		for used < p.nonzeros {
			x := g.Float64()
			place := int32(g.Next() >> (random.Bits - placeBits))
			if int(place) < p.n && !slices.Contains(at[:used], place) {
				at[used], value[used] = place, x
				used++
			}
		}
		own := slices.Index(at[:used], int32(i))
		if own < 0 {
			own = used
			used++
		}
		at[own], value[own] = int32(i), 0.5
		v.used[i] = used
	}
	return v
}

// vector returns the places and values of x(i).
func (v vectors) vector(i int) (at []int32, value []float64) {
	low := i * v.width
	return v.at[low : low+v.used[i]], v.value[low : low+v.used[i]]
}

// holders lists, for each row from low to high-1, the vectors that have an
// element there, in ascending order, each with that element.
func (v vectors) holders(low, high int) [][]holder {
	lists := make([][]holder, high-low)
	for i := range v.used {
		at, value := v.vector(i)
		for k, j := range at {
			if int(j) >= low && int(j) < high {
				lists[int(j)-low] = append(lists[int(j)-low], holder{i, value[k]})
			}
		}
	}
	return lists
}

type holder struct {
	vector  int
	element float64
}

// makeBlock returns a rank's block of the matrix
//
//	A = sum over i of w^i x(i) x(i)' + (rcond - shift) I,  w = rcond^(1/n)
//
// whose eigenvalues lie, before the shift, between rcond and about 1.
func (p problem) makeBlock(at place) matrix {
	v := p.makeVectors()
	weights := make([]float64, p.n)
	ratio, weight := math.Pow(rcond, 1/float64(p.n)), 1.0
	for i := range weights {
		weights[i] = weight
		weight *= ratio
	}
	m := matrix{start: []int32{0}}
	width := at.colHigh - at.colLow
	sums := make([]float64, width) // the row at work
	seen := make([]bool, width)
	for k, list := range v.holders(at.rowLow, at.rowHigh) {
		first := len(m.col)
		add := func(j int, x float64) {
			if j -= at.colLow; j < 0 || j >= width {
				return
			}
			if !seen[j] {
				seen[j] = true
				m.col = append(m.col, int32(j))
			}
			sums[j] += x
		}
		for _, h := range list {
			places, values := v.vector(h.vector)
			for i, j := range places {
				add(int(j), weights[h.vector]*h.element*values[i])
			}
		}
		add(at.rowLow+k, rcond-p.shift)
		slices.Sort(m.col[first:])
		for _, j := range m.col[first:] {
			m.val = append(m.val, sums[j])
			sums[j], seen[j] = 0, false
		}
		m.start = append(m.start, int32(len(m.col)))
	}
	return m
}
