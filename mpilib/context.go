package mpilib

import (
	"fmt"

	"github.com/isthmus-grid/isthmus/mpilib/internal/agreement"
	"github.com/isthmus-grid/isthmus/mpilib/internal/comm"
	"github.com/isthmus-grid/isthmus/mpilib/internal/group"
	"github.com/isthmus-grid/isthmus/overlay"
)

// comms is a world's state for its communicators.
type comms struct {
	self        *Comm
	whereabouts placeMap
	here        overlay.NodeID // location of this process; zero if unknown

	agreements agreement.Agreements
}

// firstComms creates the predefined communicators.
func (w *World) firstComms() error {
	all, err := group.Range(0, w.engine.Size())
	if err != nil {
		return err
	}
	alone, err := group.Range(w.engine.Rank(), 1)
	if err != nil {
		return err
	}
	w.comm = newComm(w, "world", all, comm.World)
	w.comms.self = newComm(w, "self", alone, comm.Self)
	w.comms.whereabouts.comm = newComm(w, "all processes", all, comm.Session)
	if w.config.where != nil {
		w.comms.here = w.config.where(w.engine.Rank())
		if _, err := overlay.ParseNodeID(w.comms.here.String()); err != nil {
			return fmt.Errorf("WithPlace: %w", err)
		}
	}
	return nil
}

// Self returns the communicator of this process only (MPI_COMM_SELF).
func (w *World) Self() *Comm { return w.comms.self }
