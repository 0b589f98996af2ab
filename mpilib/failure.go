package mpilib

import (
	"context"
	"errors"

	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
	"github.com/isthmus-grid/isthmus/mpilib/internal/group"
)

// This file and revoke.go and agreement.go are what programs go on with after
// the death of a process: User Level Failure Mitigation (ULFM), as proposed to
// the MPI forum. The package's documentation says how they fit together.

var (
	// ErrProcFailedPending (MPI_ERR_PROC_FAILED_PENDING) is that of waiting for an
	// Irecv from AnySource while a failure of a process that might have sent is
	// not acknowledged. The receive goes on, and its buffer stays its own: call
	// AckFailed and wait again, or Cancel. It is an ErrProcFailed, too.
	ErrProcFailedPending = engine.ErrProcFailedPending
	// ErrRevoked (MPI_ERR_REVOKED) is that of calls on a communicator for which
	// some process has called Revoke.
	ErrRevoked = engine.ErrRevoked
)

// A ProcFailedError says which processes of a communicator have failed. Every
// error that is an ErrProcFailed has one in it, for errors.As.
type ProcFailedError struct {
	Comm  string // its name
	Ranks []int  // in it, of an intercommunicator's remote group, rising: all that are known to have failed by then
	Err   error  // what failed, and why
}

func (e *ProcFailedError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *ProcFailedError) Unwrap() error { return e.Err }

// withFailed adds to an ErrProcFailed which processes have failed.
func (c *Comm) withFailed(err error) error {
	var already *ProcFailedError
	if !errors.Is(err, ErrProcFailed) || errors.As(err, &already) {
		return err
	}
	return &ProcFailedError{Comm: c.Name(), Ranks: c.core.FailedPeers(), Err: err}
}

// GetFailed returns the processes of c, of both groups of an
// intercommunicator, that this process knows to have failed, in the order in
// which it learned of it: a later group begins with the earlier one
// (MPI_Comm_get_failed of ULFM). Others may know of others. It is local, and
// works on a revoked communicator.
func (c *Comm) GetFailed() (*Group, error) {
	g, err := group.Of(c.core.Failed())
	if err != nil {
		return nil, c.called("GetFailed", err)
	}
	return c.groupOf(g), nil
}

// AckFailed acknowledges the first n failures of GetFailed, at least those that
// were acknowledged before, and returns how many are acknowledged then
// (MPI_Comm_ack_failed of ULFM). Receives from AnySource can be waited for again
// when all known failures are, and Agree returns no error for a failure that
// every process has acknowledged. It is local, and works on a revoked
// communicator.
func (c *Comm) AckFailed(n int) (int, error) { return c.core.Acknowledge(n), nil }

// parties are the processes that a transfer concerns.
func (t transfer) parties() engine.Group {
	if t.needs != nil {
		return t.needs.core.Everybody()
	}
	return t.comm.core.Senders()
}

// waitOver is Wait for those whose caller cannot wait again: a receive from any
// source that a failure holds up is given up.
func (r *Request) waitOver(ctx context.Context) (Status, error) {
	r.await(ctx)
	if r.heldUp() != nil {
		r.core.GiveUpHeld()
	}
	return r.Wait(ctx)
}
