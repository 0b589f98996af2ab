package mpilib

import (
	"fmt"
	"sync"

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

	background sync.WaitGroup // background calls; Finalize waits for them

	agreements agreement.Agreements

	contexts comm.Contexts

	mu    sync.Mutex
	ended bool // nothing is started in the background any more
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

// start runs f in the background, unless the world has ended.
func (s *comms) start(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.background.Go(f)
	return true
}

// end runs before the world closes: the attributes of Self are deleted first (MPI-4.1, section
// 11.2.4).
func (s *comms) end() error {
	var err error
	if s.self != nil {
		err = s.self.attributes.DeleteAll(s.self)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	return err
}
