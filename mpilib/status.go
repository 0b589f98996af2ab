package mpilib

import (
	"errors"
	"fmt"
)

// AnySource and AnyTag are the wildcards of a receive or a probe.
const (
	AnySource = -1
	AnyTag    = -1
)

// MaxTag is the greatest tag of a message; the smallest is 0.
const MaxTag = 1<<31 - 1

// Status describes a message that was received or probed.
type Status struct {
	Source int // rank in the communicator
	Tag    int
	Count  int // elements of the receive's type; bytes for a probe
	Bytes  int
}

// What callers tell apart with errors.Is.
var (
	ErrTruncate   = errors.New("message is longer than the receive buffer")
	ErrRank       = errors.New("no such rank")
	ErrTag        = errors.New("no such tag")
	ErrType       = errors.New("type cannot be sent")
	ErrCount      = errors.New("wrong count")
	ErrProcFailed = errors.New("process failed")     // the link to it is lost
	ErrFinalized  = errors.New("world is finalized") // this process's, or the peer's
	ErrEnv        = errors.New("contradictory environment")
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
