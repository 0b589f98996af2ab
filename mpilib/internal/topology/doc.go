// Package topology is the arithmetic of MPI's virtual topologies (MPI-4.1 chapter 8): Cartesian
// grids, graphs and distributed graphs, the neighbours of each process in order, and the assignment
// of processes to places that keeps neighbours on one site.
//
// Ranks are those of the communicator that has the topology, unless a comment says "old rank": then
// they are those of the communicator it is made from. The package knows only numbers. It does not
// know communicators, messages or how sites are found. Values are immutable and may be shared
// between goroutines; equal arguments give equal results on all processes. The package has no
// state.
package topology

import (
	"errors"
	"math"

	"github.com/isthmus-grid/isthmus/mpilib/internal/group"
)

// ProcNull stands for the neighbour beyond an edge of a grid (MPI_PROC_NULL).
const ProcNull = group.ProcNull

// Errors that callers distinguish with errors.Is. ErrRank and ErrArg are those of package group.
var (
	ErrRank     = group.ErrRank                  // MPI_ERR_RANK
	ErrArg      = group.ErrArg                   // MPI_ERR_ARG
	ErrDims     = errors.New("bad dimensions")   // MPI_ERR_DIMS
	ErrTopology = errors.New("not a good graph") // MPI_ERR_TOPOLOGY
)

// maxProcesses is the number of processes that 32-bit ranks can number.
const maxProcesses = math.MaxInt32
