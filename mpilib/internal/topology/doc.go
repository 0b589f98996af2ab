// Package topology is the arithmetic of MPI's virtual topologies (MPI-4.1
// chapter 8): Cartesian grids, graphs and distributed graphs, who is whose
// neighbour in which order, and which process should take which place so that
// neighbours are on one site.
//
// Ranks are those of the communicator that has the topology, unless a comment
// says "old rank": then they are of the communicator it is made from. The
// package knows numbers. It refuses to know communicators, messages and how
// sites are found. Values never change after they are made and may be shared
// between goroutines; all processes that give equal arguments get equal
// results. It has no state.
package topology

import (
	"errors"
	"math"

	"github.com/isthmus-grid/isthmus/mpilib/internal/group"
)

// ProcNull stands for the neighbour beyond an edge of a grid (MPI_PROC_NULL).
const ProcNull = group.ProcNull

// What callers tell apart with errors.Is. ErrRank and ErrArg are those of
// package group.
var (
	ErrRank     = group.ErrRank                  // MPI_ERR_RANK
	ErrArg      = group.ErrArg                   // MPI_ERR_ARG
	ErrDims     = errors.New("bad dimensions")   // MPI_ERR_DIMS
	ErrTopology = errors.New("not a good graph") // MPI_ERR_TOPOLOGY
)

// maxProcesses is what a rank of 32 bits can number.
const maxProcesses = math.MaxInt32
