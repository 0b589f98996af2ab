package mpilib

import (
	"errors"
	"fmt"

	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
	"github.com/isthmus-grid/isthmus/mpilib/internal/group"
	"github.com/isthmus-grid/isthmus/mpilib/internal/topology"
)

// What is given in place of a rank, tag, colour or count. The values are those
// of the standard's C ABI.
const (
	AnySource = -1              // of a receive or a probe: whoever sends
	AnyTag    = -1              // of a receive or a probe: any tag
	ProcNull  = group.ProcNull  // no process: the transfer is complete at once and moves nothing (MPI-4.1, section 3.10)
	Undefined = group.Undefined // no such rank; as a colour, no part
)

// MaxTag is the greatest tag of a message; the smallest is 0.
const MaxTag = 1<<31 - 1

// Status describes a message that was received or probed.
type Status struct {
	Source int // rank in the communicator
	Tag    int
	Count  int // elements of the receive's type; bytes for a probe
	Bytes  int

	Cancelled bool // Cancel came in time; nothing else is set (MPI_Test_cancelled)
}

// What callers tell apart with errors.Is.
var (
	ErrTruncate   = engine.ErrTruncate
	ErrRank       = group.ErrRank
	ErrArg        = group.ErrArg
	ErrDims       = topology.ErrDims
	ErrTopology   = topology.ErrTopology
	ErrMismatch   = errors.New("the ranks disagree")            // on the call or its arguments
	ErrFreed      = errors.New("communicator has been freed")   // MPI_ERR_COMM
	ErrIntercomm  = errors.New("not for an intercommunicator")  // MPI_ERR_COMM
	ErrIntracomm  = errors.New("only for an intercommunicator") // MPI_ERR_COMM
	ErrAsserted   = errors.New("contradicts a hint")            // what SetInfo promised not to do
	ErrContexts   = errors.New("no communicator context is left")
	ErrTag        = errors.New("no such tag")
	ErrType       = errors.New("type cannot be sent")
	ErrCount      = errors.New("wrong count")
	ErrProcFailed = engine.ErrProcFailed // MPI_ERR_PROC_FAILED; errors.As finds a *ProcFailedError
	ErrFinalized  = engine.ErrFinalized  // this process's world, or the peer's
	ErrEnv        = errors.New("contradictory environment")
	ErrPort       = errors.New("no such port")            // MPI_ERR_PORT
	ErrName       = errors.New("name is not published")   // MPI_ERR_NAME
	ErrService    = errors.New("not this process's name") // MPI_ERR_SERVICE
)

// GetCount returns how many elements of type T the message of st has
// (MPI_Get_count), or ErrCount when it is not a whole number of them.
func GetCount[T Elem](st Status) (int, error) {
	size, err := elemSize[T]()
	if err != nil {
		return 0, err
	}
	if st.Bytes%size != 0 {
		return 0, fmt.Errorf("mpilib: %w: %d bytes are not whole elements of %d", ErrCount, st.Bytes, size)
	}
	return st.Bytes / size, nil
}
