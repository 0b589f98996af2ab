package mpilib

import (
	"fmt"

	"github.com/isthmus-grid/isthmus/mpilib/internal/buffer"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
)

// Special values of a rank, tag, colour or count. Package cabi/core translates those of C, of which some differ.
const (
	AnySource = mpi.AnySource // of a receive or a probe: any source
	AnyTag    = mpi.AnyTag    // of a receive or a probe: any tag
	ProcNull  = mpi.ProcNull  // no process: the transfer completes at once and transfers nothing (MPI-4.1, section 3.10)
	Undefined = mpi.Undefined // no such rank; as a colour, not a member
)

// MaxTag is the maximum tag of a message; the minimum is 0.
const MaxTag = mpi.MaxTag

// Status describes a message that was received or probed.
type Status struct {
	Source int // rank in the communicator
	Tag    int
	Count  int // elements of the receive's type; bytes for a probe
	Bytes  int

	Cancelled bool // it was cancelled; nothing else is set (MPI_Test_cancelled)
}

// Errors for use with errors.Is.
var (
	ErrTruncate   = mpi.ErrTruncate
	ErrRank       = mpi.ErrRank
	ErrArg        = mpi.ErrArg
	ErrDims       = mpi.ErrDims
	ErrTopology   = mpi.ErrTopology
	ErrMismatch   = mpi.ErrMismatch  // on the call or its arguments
	ErrFreed      = mpi.ErrFreed     // MPI_ERR_COMM
	ErrIntercomm  = mpi.ErrIntercomm // MPI_ERR_COMM
	ErrIntracomm  = mpi.ErrIntracomm // MPI_ERR_COMM
	ErrAsserted   = mpi.ErrAsserted  // what SetInfo asserts not to do
	ErrContexts   = mpi.ErrContexts
	ErrTag        = mpi.ErrTag
	ErrType       = mpi.ErrType
	ErrCount      = mpi.ErrCount
	ErrProcFailed = mpi.ErrProcFailed // MPI_ERR_PROC_FAILED; errors.As finds a *ProcFailedError
	ErrFinalized  = mpi.ErrFinalized  // this process's world, or the peer's
	ErrEnv        = mpi.ErrEnv
	ErrPort       = mpi.ErrPort    // MPI_ERR_PORT
	ErrName       = mpi.ErrName    // MPI_ERR_NAME
	ErrService    = mpi.ErrService // MPI_ERR_SERVICE
)

// GetCount returns how many elements of type T the message of st has (MPI_Get_count), or ErrCount
// if it is not a whole number of them.
func GetCount[T Elem](st Status) (int, error) {
	size, err := buffer.Size[T]()
	if err != nil {
		return 0, err
	}
	if st.Bytes%size != 0 {
		return 0, fmt.Errorf("mpilib: %w: %d bytes are not whole elements of %d", ErrCount, st.Bytes, size)
	}
	return st.Bytes / size, nil
}
