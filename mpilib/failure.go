package mpilib

import (
	"context"
	"errors"

	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
	"github.com/isthmus-grid/isthmus/mpilib/internal/group"
)

// This file, revoke.go and agreement.go let programs continue after the failure of a process: User
// Level Failure Mitigation (ULFM), as proposed to the MPI forum. The package's documentation
// describes how they work together.

var (
	// ErrProcFailedPending (MPI_ERR_PROC_FAILED_PENDING) is returned by a wait for an Irecv from
	// AnySource while the failure of a process that might have sent is not acknowledged. The
	// receive stays pending and keeps its buffer: call AckFailed and wait again, or Cancel. It is
	// an ErrProcFailed, too.
	ErrProcFailedPending = engine.ErrProcFailedPending
	// ErrRevoked (MPI_ERR_REVOKED) is returned by calls on a communicator for which some process
	// has called Revoke.
	ErrRevoked = engine.ErrRevoked
)

// A ProcFailedError lists the failed processes of a communicator. Every error that is an
// ErrProcFailed wraps one, for errors.As.
type ProcFailedError struct {
	Comm  string // its name
	Ranks []int  // ranks in it, of an intercommunicator's remote group, ascending: all known to have failed by then
	Err   error  // the failed operation and the cause
}

func (e *ProcFailedError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *ProcFailedError) Unwrap() error { return e.Err }

// withFailed adds the failed processes to an ErrProcFailed.
func (c *Comm) withFailed(err error) error {
	var already *ProcFailedError
	if !errors.Is(err, ErrProcFailed) || errors.As(err, &already) {
		return err
	}
	return &ProcFailedError{Comm: c.Name(), Ranks: c.core.FailedPeers(), Err: err}
}

// GetFailed returns the processes of c, of both groups of an intercommunicator, that this process
// knows to have failed, in the order in which it learned of it: a later group begins with the
// earlier one (MPI_Comm_get_failed of ULFM). Other processes may know of different failures. It is
// local, and works on a revoked communicator.
func (c *Comm) GetFailed() (*Group, error) {
	g, err := group.Of(c.core.Failed())
	if err != nil {
		return nil, c.called("GetFailed", err)
	}
	return c.groupOf(g), nil
}

// AckFailed acknowledges the first n failures of GetFailed, but at least those that were
// acknowledged before, and returns the number of acknowledged ones (MPI_Comm_ack_failed of ULFM).
// Receives from AnySource can be waited for again when all known failures are acknowledged, and
// Agree returns no error for a failure that every process has acknowledged. It is local, and works
// on a revoked communicator.
func (c *Comm) AckFailed(n int) (int, error) { return c.core.Acknowledge(n), nil }

// waitOver is Wait for callers that cannot wait again: it cancels a receive from any source that a
// failure blocks.
func (r *Request) waitOver(ctx context.Context) (Status, error) {
	r.await(ctx)
	if r.blockedBy() != nil {
		r.core.FailBlocked()
	}
	return r.Wait(ctx)
}
