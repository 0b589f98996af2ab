// Package operation names the collective operations of MPI. It knows nothing of how they are
// carried out, and keeps no state.
//
// The names in lower case, as MPI has them without its prefix, are those of settings, flags,
// reports and errors; they and the order of the constants may be relied on, the numbers not.
package operation

import (
	"fmt"
	"strings"
)

// Operation is a collective operation. The zero Operation is none.
type Operation uint8

// The collective operations. Those on v have blocks whose lengths differ, and Alltoallw blocks
// of different datatypes besides.
const (
	Barrier Operation = iota + 1
	Bcast
	Reduce
	Allreduce
	Gather
	Gatherv
	Allgather
	Allgatherv
	Scatter
	Scatterv
	Alltoall
	Alltoallv
	ReduceScatter
	ReduceScatterBlock
	Scan
	Exscan
	Alltoallw // carried out between the pairs of ranks, without a choice of algorithms

	// Count is one more than the last Operation, the length of an array by Operation.
	Count
)

var names = [Count]string{
	Barrier:            "barrier",
	Bcast:              "bcast",
	Reduce:             "reduce",
	Allreduce:          "allreduce",
	Gather:             "gather",
	Gatherv:            "gatherv",
	Allgather:          "allgather",
	Allgatherv:         "allgatherv",
	Scatter:            "scatter",
	Scatterv:           "scatterv",
	Alltoall:           "alltoall",
	Alltoallv:          "alltoallv",
	ReduceScatter:      "reduce_scatter",
	ReduceScatterBlock: "reduce_scatter_block",
	Scan:               "scan",
	Exscan:             "exscan",
	Alltoallw:          "alltoallw",
}

// All returns the operations, in the order of the constants.
func All() []Operation {
	all := make([]Operation, 0, Count-1)
	for o := Barrier; o < Count; o++ {
		all = append(all, o)
	}
	return all
}

// String returns the operation's name, "reduce_scatter".
func (o Operation) String() string {
	if o == 0 || o >= Count {
		return fmt.Sprintf("operation(%d)", uint8(o))
	}
	return names[o]
}

// Parse returns the operation with a name that String returns. The error lists the names.
func Parse(name string) (Operation, error) {
	for o := Barrier; o < Count; o++ {
		if names[o] == name {
			return o, nil
		}
	}
	return 0, fmt.Errorf("no collective %q, have %s", name, strings.Join(names[Barrier:], ", "))
}

// HasRoot reports whether one rank has another part in the operation than the others.
func (o Operation) HasRoot() bool {
	switch o {
	case Bcast, Reduce, Gather, Gatherv, Scatter, Scatterv:
		return true
	}
	return false
}

// Reduces reports whether the operation has an operator.
func (o Operation) Reduces() bool {
	switch o {
	case Reduce, Allreduce, ReduceScatter, ReduceScatterBlock, Scan, Exscan:
		return true
	}
	return false
}
