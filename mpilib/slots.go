package mpilib

import (
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine/slot"
	"github.com/isthmus-grid/isthmus/mpilib/internal/slots"
)

// ErrSlot fails calls that break the rules of slots.
var ErrSlot = engine.ErrSlot

// A PutSlot is the sending end of a slot, and a GetSlot the receiving one. A slot holds the newest value that one rank
// has put for another, which asynchronous iterations exchange. It is no part of MPI, and matches no messages.
type (
	PutSlot[T Elem] = slots.Put[T]
	GetSlot[T Elem] = slots.Get[T]
)

// PutSlotCounts says what became of the values of a PutSlot: each was overwritten before it was sent,
// or sent, or still waits, or was dropped with the peer or at Finalize. GetSlotCounts says what became of those that came.
type (
	PutSlotCounts = slot.PutCounts
	GetSlotCounts = slot.GetCounts
)

const noReplicas = "replicas iterate at different speeds, so that they would get different values; use Send and Recv, or mode sync"

// PutTo makes the sending end of slot number tag to rank dst of comm, for values of up to count elements. dst makes the
// other end, before or after that, with the same number and T. An end that was made before for the same slot is not to be
// used any more.
func PutTo[T Elem](comm *Comm, dst, tag, count int) (s *PutSlot[T], err error) {
	if err = comm.world.unreplicated(noReplicas); err == nil {
		s, err = slots.PutTo[T](comm.world.engine, &comm.core.Core, dst, tag, count)
	}
	return s, comm.called("PutTo", err)
}

// GetFrom makes the receiving end of slot number tag from rank src of comm, for values of up to count
// elements. Close ends it.
func GetFrom[T Elem](comm *Comm, src, tag, count int) (s *GetSlot[T], err error) {
	if err = comm.world.unreplicated(noReplicas); err == nil {
		s, err = slots.GetFrom[T](comm.world.engine, &comm.core.Core, src, tag, count)
	}
	return s, comm.called("GetFrom", err)
}
