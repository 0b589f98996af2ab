package mpilib

import (
	"context"
	"errors"
	"fmt"

	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
)

// ErrActive is the error for starting an active persistent request.
var ErrActive = mpi.ErrActive

// Persistent is a transfer, or a collective call, that is started repeatedly with the same
// arguments (MPI-4.1, sections 3.9 and 6.13). It is inactive until Start, and after its completion.
// One goroutine uses it at a time.
type Persistent struct {
	what    transfer
	again   func() *Request
	keeps   bool     // see KeepActive
	current *Request // nil: never started, or its completion was reported
}

// KeepActive has p stay active until its own Wait or Test has returned its completion, whichever call
// returned it before. It is for libraries whose requests are handles of their own.
func (p *Persistent) KeepActive() *Persistent {
	p.keeps = true
	return p
}

// SendInit prepares a Send (MPI_Send_init). An error in the arguments is returned when a started
// transfer is waited for.
func SendInit[T Elem](comm *Comm, buf []T, dst, tag int) *Persistent {
	return sendInit(comm, buf, dst, tag, engine.Standard)
}

// SsendInit prepares an Ssend (MPI_Ssend_init).
func SsendInit[T Elem](comm *Comm, buf []T, dst, tag int) *Persistent {
	return sendInit(comm, buf, dst, tag, engine.Synchronous)
}

// BsendInit prepares a Bsend (MPI_Bsend_init).
func BsendInit[T Elem](comm *Comm, buf []T, dst, tag int) *Persistent {
	return sendInit(comm, buf, dst, tag, engine.Buffered)
}

// RsendInit prepares an Rsend (MPI_Rsend_init).
func RsendInit[T Elem](comm *Comm, buf []T, dst, tag int) *Persistent {
	return sendInit(comm, buf, dst, tag, engine.Standard)
}

func sendInit[T Elem](comm *Comm, buf []T, dst, tag int, mode engine.Mode) *Persistent {
	return &Persistent{
		what:  transfer{comm: comm, send: true, peer: dst, tag: tag},
		again: func() *Request { return start(comm, buf, dst, tag, mode, false) },
	}
}

// RecvInit prepares a Recv (MPI_Recv_init).
func RecvInit[T Elem](comm *Comm, buf []T, src, tag int) *Persistent {
	return &Persistent{
		what:  transfer{comm: comm, peer: src, tag: tag},
		again: func() *Request { return Irecv(comm, buf, src, tag) },
	}
}

// Start starts the transfer (MPI_Start): the request owns the buffer until it is complete. It
// returns ErrActive if the previous transfer is not complete.
func (p *Persistent) Start() error {
	if r := p.current; r != nil && !r.unstarted && !r.core.Done() {
		return p.what.comm.raise(fmt.Errorf("mpilib: Start of %v: %w; wait for it first", p.what, ErrActive))
	}
	p.current = p.again()
	if !p.keeps {
		p.current = p.current.repeated()
	}
	return nil
}

// Startall starts all of them, in their order, up to the first that is active
// (MPI_Startall).
func Startall(requests ...*Persistent) error {
	for _, p := range requests {
		if err := p.Start(); err != nil {
			return err
		}
	}
	return nil
}

// repeated returns the request as one that is inactive once its completion was returned: itself, or
// one in the place of a shared one.
func (r *Request) repeated() *Request {
	if got, ok := r.core.Settled(); ok && r.extra == &ordinary {
		own := newRequest(r.transfer())
		r.comm.world.engine.Settle(&own.core, got)
		r = own
	}
	r.ownExtra().repeats = true
	return r
}

// isInactive reports whether there is no request, or one of a Persistent whose completion was returned:
// the calls for several requests ignore it.
func (r *Request) isInactive() bool { return r == nil || r.repeats && r.reported.Load() }

// Request returns the active transfer, for Waitall and similar calls, or nil, which they ignore, if
// there is none. Once such a call, or Wait or Test, has returned its completion p is inactive, and
// they ignore this Request too (MPI-5.0, sections 3.7.5 and 3.9).
func (p *Persistent) Request() *Request {
	if p.current.isInactive() {
		p.current = nil
	}
	return p.current
}

// Wait is Request.Wait for the active transfer, after which the request is inactive. For an
// inactive one it returns at once, with the empty status (MPI-4.1, section 3.7.3).
func (p *Persistent) Wait(ctx context.Context) (Status, error) {
	r := p.Request()
	if r == nil {
		return emptyStatus, nil
	}
	st, err := r.Wait(ctx)
	if !errors.Is(err, ErrProcFailedPending) {
		p.current = nil
	}
	return st, err
}

// Test is Request.Test for the active transfer; done is true for an inactive request.
func (p *Persistent) Test() (st Status, done bool, err error) {
	if p.Request() == nil {
		return emptyStatus, true, nil
	}
	if st, done, err = p.current.Test(); done {
		p.current = nil
	}
	return st, done, err
}

// Cancel is Request.Cancel for the active transfer, if there is one.
func (p *Persistent) Cancel() error {
	if p.Request() == nil {
		return nil
	}
	return p.current.Cancel()
}
