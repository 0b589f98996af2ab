// Package mpi has the definitions that package mpilib and the packages below it share: the errors
// that callers distinguish with errors.Is, and the special values of ranks and tags. It knows
// nothing of messages and has no state.
package mpi

import (
	"errors"

	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
	"github.com/isthmus-grid/isthmus/mpilib/internal/group"
	"github.com/isthmus-grid/isthmus/mpilib/internal/replica"
	"github.com/isthmus-grid/isthmus/mpilib/internal/topology"
)

// Special values of a rank, tag, colour or count. Package cabi/core translates those of C.
const (
	AnySource = -1
	AnyTag    = -1
	Root      = -3
	ProcNull  = group.ProcNull
	Undefined = group.Undefined
)

// MaxTag is the maximum tag of a message; the minimum is 0.
const MaxTag = 1<<31 - 1

// The errors, described in package mpilib.
var (
	ErrTruncate   = engine.ErrTruncate
	ErrRank       = group.ErrRank
	ErrArg        = group.ErrArg
	ErrDims       = topology.ErrDims
	ErrTopology   = topology.ErrTopology
	ErrMismatch   = errors.New("the ranks disagree")
	ErrFreed      = errors.New("communicator has been freed")
	ErrIntercomm  = errors.New("not for an intercommunicator")
	ErrIntracomm  = errors.New("only for an intercommunicator")
	ErrAsserted   = errors.New("contradicts a hint")
	ErrContexts   = errors.New("no communicator context is left")
	ErrTag        = errors.New("no such tag")
	ErrType       = errors.New("type cannot be sent")
	ErrOp         = errors.New("no such operator")
	ErrCount      = errors.New("wrong count")
	ErrProcFailed = engine.ErrProcFailed
	ErrFinalized  = engine.ErrFinalized
	ErrEnv        = errors.New("contradictory environment")
	ErrPort       = errors.New("no such port")
	ErrName       = errors.New("name is not published")
	ErrService    = errors.New("not this process's name")
	ErrActive     = errors.New("request is active")
	ErrInactive   = errors.New("request is not active")
	ErrReplicated = replica.ErrReplicated
	ErrSignature  = errors.New("the types of send and receive differ")
)

// FirstOf returns the first non-nil error.
func FirstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Caused is an error that also wraps another, whose text it already contains.
type Caused struct {
	error
	Cause error
}

// CausedBy returns err as an error that also wraps cause.
func CausedBy(err, cause error) Caused { return Caused{err, cause} }

// Unwrap returns both.
func (c Caused) Unwrap() []error { return []error{c.error, c.Cause} }
