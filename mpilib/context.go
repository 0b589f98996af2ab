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
	self      *Comm
	allPlaces placeMap
	node      overlay.NodeID // location of this rank; zero if unknown
	numbers   *Comm          // of all process numbers; nil: the job has no spare ones

	agreements agreement.Agreements
}

// firstComms creates the predefined communicators.
func (w *World) firstComms() error {
	all, err := group.Range(0, w.config.place.Size)
	if err != nil {
		return err
	}
	alone, err := group.Range(w.engine.Rank(), 1)
	if err != nil {
		return err
	}
	if w.engine.Rank() >= all.Size() {
		all = alone // see Replacements
	}
	w.comm = newComm(w, "world", all, comm.World)
	w.comms.self = newComm(w, "self", alone, comm.Self)
	if err := w.numberComm(); err != nil {
		return err
	}
	w.comms.allPlaces.comm = newComm(w, "all processes", all, comm.Session)
	return w.findPlace()
}

// findPlace sets the location of this rank, as far as it is known before the process has joined. Where ranks have replicas it
// is not that of this process: all replicas must take the same for it, also one that joins later.
func (w *World) findPlace() error {
	switch p := w.config.place; {
	case w.config.where != nil:
		w.comms.node = w.config.where(w.engine.Rank())
		if _, err := overlay.ParseNodeID(w.comms.node.Key()); err != nil {
			return fmt.Errorf("WithPlace: %w", err)
		}
	case w.replicated() && p.Places != nil:
		w.comms.node, w.comms.allPlaces.places = p.Places[p.Rank], p.Places
	case w.replicated():
		w.comms.allPlaces.places = make([]overlay.NodeID, p.Size)
	}
	return nil
}

// Self returns the communicator of this process only (MPI_COMM_SELF).
func (w *World) Self() *Comm { return w.comms.self }
