package collectives_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/collectives/operation"
)

// exercise is one collective call: every rank's arguments, and what every
// rank's receive buffer must hold afterwards. The expectation is computed from
// all arguments at once by the plainest loop there is, with no communication.
type exercise struct {
	args []*collectives.Args
	want [][]byte
}

const canary = 0xEE // fills every receive buffer beforehand

// oracles makes an exercise for each collective: p ranks, n elements, a root.
var oracles = map[operation.Operation]func(rng *rand.Rand, p, n, root int, op collectives.Op) exercise{
	operation.Barrier:   func(_ *rand.Rand, p, _, _ int, _ collectives.Op) exercise { return blank(p, 0, 0) },
	operation.Bcast:     oracleBcast,
	operation.Reduce:    oracleReduce,
	operation.Allreduce: oracleReduce,
	operation.Gather:    oracleGather,
	operation.Allgather: oracleGather,
	operation.Gatherv:   oracleGatherv,
	operation.Scatter:   oracleScatter,
	operation.Alltoall:  oracleAlltoall,
	operation.Alltoallv: oracleAlltoallv,

	operation.Allgatherv:         oracleAllgatherv,
	operation.Scatterv:           oracleScatterv,
	operation.ReduceScatter:      oracleReduceScatter,
	operation.ReduceScatterBlock: oracleReduceScatterBlock,
	operation.Scan:               oracleScan,
	operation.Exscan:             oracleExscan,
}

func blank(p, send, recv int) exercise {
	e := exercise{args: make([]*collectives.Args, p), want: make([][]byte, p)}
	for r := range p {
		e.args[r] = &collectives.Args{Send: make([]byte, send), Recv: canaries(recv)}
		e.want[r] = canaries(recv)
	}
	return e
}

func canaries(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = canary
	}
	return b
}

func fill(rng *rand.Rand, b []byte) {
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
}

func (e *exercise) root(root int) {
	for _, a := range e.args {
		a.Root = root
	}
}

func oracleBcast(rng *rand.Rand, p, n, root int, _ collectives.Op) exercise {
	e := blank(p, 0, n)
	e.root(root)
	fill(rng, e.args[root].Recv)
	for r := range p {
		copy(e.want[r], e.args[root].Recv)
	}
	return e
}

// oracleReduce folds from rank 0 upwards. It serves allreduce too; for reduce
// the buffers of ranks other than the root are left alone.
func oracleReduce(rng *rand.Rand, p, n, root int, op collectives.Op) exercise {
	size := n * op.Elem
	e := blank(p, size, size)
	e.root(root)
	sums := e.operands(rng, op)
	for r := range p {
		copy(e.want[r], sums[p-1])
	}
	return e
}

// operands gives every rank one operand, and returns the reductions of those up to each.
func (e *exercise) operands(rng *rand.Rand, op collectives.Op) (sums [][]byte) {
	for r, a := range e.args {
		a.Op = op
		fill(rng, a.Send)
		sums = append(sums, append([]byte{}, a.Send...))
		if r == 0 || len(a.Send) == 0 {
			continue
		}
		if err := op.Apply(sums[r], sums[r-1]); err != nil {
			panic(err)
		}
	}
	return sums
}

func oracleScan(rng *rand.Rand, p, n, _ int, op collectives.Op) exercise {
	e := blank(p, n*op.Elem, n*op.Elem)
	copy(e.want, e.operands(rng, op))
	return e
}

func oracleExscan(rng *rand.Rand, p, n, _ int, op collectives.Op) exercise {
	e := blank(p, n*op.Elem, n*op.Elem)
	copy(e.want[1:], e.operands(rng, op))
	return e
}

func oracleReduceScatterBlock(rng *rand.Rand, p, n, _ int, op collectives.Op) exercise {
	n *= op.Elem
	e := blank(p, p*n, n)
	sums := e.operands(rng, op)
	for r := range p {
		copy(e.want[r], sums[p-1][r*n:])
	}
	return e
}

// oracleReduceScatter uses blocks of 0..n elements.
func oracleReduceScatter(rng *rand.Rand, p, n, _ int, op collectives.Op) exercise {
	counts := make([]int, p)
	total := 0
	for r := range p {
		counts[r] = rng.IntN(n+1) * op.Elem
		total += counts[r]
	}
	e := blank(p, total, 0)
	sum := e.operands(rng, op)[p-1]
	for r, a := range e.args {
		a.RecvCounts, a.Recv = counts, canaries(counts[r])
		e.want[r], sum = sum[:counts[r]], sum[counts[r]:]
	}
	return e
}

func oracleGather(rng *rand.Rand, p, n, root int, _ collectives.Op) exercise {
	e := blank(p, n, p*n)
	e.root(root)
	for r := range p {
		fill(rng, e.args[r].Send)
		for d := range p {
			copy(e.want[d][r*n:], e.args[r].Send)
		}
	}
	return e
}

func oracleScatter(rng *rand.Rand, p, n, root int, _ collectives.Op) exercise {
	e := blank(p, p*n, n)
	e.root(root)
	fill(rng, e.args[root].Send)
	for r := range p {
		copy(e.want[r], e.args[root].Send[r*n:])
	}
	return e
}

// oracleGatherv uses blocks of 0..n bytes, in reverse order with gaps.
func oracleGatherv(rng *rand.Rand, p, n, root int, _ collectives.Op) exercise {
	e := exercise{args: make([]*collectives.Args, p), want: make([][]byte, p)}
	counts, displs, total := layout(rng, p, func(int) int { return rng.IntN(n + 1) })
	e.want[root] = canaries(total)
	for r := range p {
		e.args[r] = &collectives.Args{Send: make([]byte, counts[r]), Root: root}
		fill(rng, e.args[r].Send)
		copy(e.want[root][displs[r]:], e.args[r].Send)
	}
	root0 := e.args[root]
	root0.Recv, root0.RecvCounts, root0.RecvDispls = canaries(total), counts, displs
	return e
}

// oracleAllgatherv is oracleGatherv with every rank as the root.
func oracleAllgatherv(rng *rand.Rand, p, n, root int, op collectives.Op) exercise {
	e := oracleGatherv(rng, p, n, root, op)
	at := e.args[root]
	for r, a := range e.args {
		a.Recv, a.RecvCounts, a.RecvDispls = canaries(len(at.Recv)), at.RecvCounts, at.RecvDispls
		e.want[r] = e.want[root]
	}
	return e
}

// oracleScatterv is oracleGatherv in reverse.
func oracleScatterv(rng *rand.Rand, p, n, root int, op collectives.Op) exercise {
	e := oracleGatherv(rng, p, n, root, op)
	at := e.args[root]
	all, counts, displs := e.want[root], at.RecvCounts, at.RecvDispls
	for r, a := range e.args {
		e.want[r] = a.Send
		*a = collectives.Args{Recv: canaries(counts[r]), Root: root}
	}
	at.Send, at.SendCounts, at.SendDispls = all, counts, displs
	return e
}

// layout places blocks from the last rank down with a gap of 0..2 bytes each.
func layout(rng *rand.Rand, p int, count func(rank int) int) (counts, displs []int, total int) {
	counts, displs = make([]int, p), make([]int, p)
	for r := p - 1; r >= 0; r-- {
		counts[r] = count(r)
		displs[r] = total
		total += counts[r] + rng.IntN(3)
	}
	return counts, displs, total
}

func oracleAlltoall(rng *rand.Rand, p, n, _ int, _ collectives.Op) exercise {
	e := blank(p, p*n, p*n)
	for s := range p {
		fill(rng, e.args[s].Send)
		for d := range p {
			copy(e.want[d][s*n:(s+1)*n], e.args[s].Send[d*n:])
		}
	}
	return e
}

func oracleAlltoallv(rng *rand.Rand, p, n, _ int, _ collectives.Op) exercise {
	e := exercise{args: make([]*collectives.Args, p), want: make([][]byte, p)}
	size := make([][]int, p) // size[s][d]
	for s := range p {
		size[s] = make([]int, p)
		for d := range p {
			if rng.IntN(3) > 0 {
				size[s][d] = rng.IntN(n + 1)
			}
		}
	}
	for r := range p {
		a := &collectives.Args{}
		var sendTotal, recvTotal int
		a.SendCounts, a.SendDispls, sendTotal = layout(rng, p, func(d int) int { return size[r][d] })
		a.RecvCounts, a.RecvDispls, recvTotal = layout(rng, p, func(s int) int { return size[s][r] })
		a.Send, a.Recv = make([]byte, sendTotal), canaries(recvTotal)
		fill(rng, a.Send)
		e.args[r], e.want[r] = a, canaries(recvTotal)
	}
	for s := range p {
		for d := range p {
			from, to := e.args[s], e.args[d]
			copy(e.want[d][to.RecvDispls[s]:][:size[s][d]], from.Send[from.SendDispls[d]:])
		}
	}
	return e
}

// sum32 adds little-endian uint32 elements.
var sum32 = collectives.Op{Name: "sum", Elem: 4, Commutative: true, Apply: func(inout, in []byte) error {
	if len(inout) != len(in) || len(in)%4 != 0 {
		return fmt.Errorf("cut inside an element: %d and %d bytes", len(inout), len(in))
	}
	for i := 0; i < len(in); i += 4 {
		binary.LittleEndian.PutUint32(inout[i:], binary.LittleEndian.Uint32(in[i:])+binary.LittleEndian.Uint32(inout[i:]))
	}
	return nil
}}

// compose composes maps x -> ax+b over the integers mod 256, an element being
// (a, b): associative, and almost never commutative.
var compose = collectives.Op{Name: "compose", Elem: 2, Apply: func(inout, in []byte) error {
	if len(inout) != len(in) || len(in)%2 != 0 {
		return fmt.Errorf("cut inside an element: %d and %d bytes", len(inout), len(in))
	}
	for i := 0; i < len(in); i += 2 {
		a, b := in[i], in[i+1]
		inout[i], inout[i+1] = a*inout[i], a*inout[i+1]+b
	}
	return nil
}}
