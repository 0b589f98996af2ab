package mpilib

import (
	"fmt"
	"math"
	"sync"

	"github.com/isthmus-grid/isthmus/mpilib/internal/agreement"
	"github.com/isthmus-grid/isthmus/mpilib/internal/group"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Every communicator owns contextsPerComm contexts in a row, so that its
// different kinds of messages cannot match each other.
const (
	pointToPointContext = iota
	collectiveContext
	memberContext    // of CreateGroup, which only some members call
	leaderContext    // of IntercommCreate's leaders
	offerContext     // of partitioned sends, before their first start
	partitionContext // of their partitions
	contextsPerComm
)

// The contexts that need no agreement.
const (
	worldContext   = 0 * contextsPerComm
	selfContext    = 1 * contextsPerComm         // each process has one; they share no process
	sessionContext = 2 * contextsPerComm         // of CommFromGroup, between any processes
	debugContext   = selfContext + leaderContext // of the watchers; Self has no other leader to talk to
	firstContext   = 3 * contextsPerComm
)

// comms is what a world keeps for its communicators.
type comms struct {
	self        *Comm
	whereabouts placeMap
	here        overlay.NodeID // of this process; zero where nobody says

	background sync.WaitGroup // calls that go on by themselves; Finalize waits for them

	agreements agreement.Agreements

	mu    sync.Mutex
	made  uint32 // contexts this process has handed out
	ended bool   // nothing starts in the background any more
}

// newContext returns the context of a communicator to be, which no other
// communicator of the job has or will have. One process asks and tells the
// members.
//
// Why it is unique: each process hands out its own numbers, those that leave
// its world rank as the remainder, each once, under a lock. So no two calls
// anywhere give the same, whichever goroutines and communicators they are for,
// and whoever is told of them. Nothing is agreed upon but who asks; compare
// the customary maximum of everyone's next free number, where two goroutines
// of one process can be told the same number on two communicators. Numbers are
// not used again: a late message finds no other communicator.
func (w *World) newContext() (uint32, error) {
	w.comms.mu.Lock()
	defer w.comms.mu.Unlock()
	id := contextOf(w.comms.made, w.engine.Rank(), w.engine.Size())
	if id > math.MaxUint32-contextsPerComm {
		return 0, fmt.Errorf("%w: rank %d of the world has led the making of %d; keep communicators instead of making new ones",
			ErrContexts, w.engine.Rank(), w.comms.made)
	}
	w.comms.made++
	return uint32(id), nil
}

// contextOf is the context that a rank of a world of size ranks hands out after made
// others.
func contextOf(made uint32, rank, size int) uint64 {
	return firstContext + (uint64(made)*uint64(size)+uint64(rank))*contextsPerComm
}

// unmade reports whether a context is one that only this process could have handed out,
// and has not: then nobody can send in it.
func (w *World) unmade(context uint32) bool {
	if context < firstContext {
		return false
	}
	n := uint64(context-firstContext) / contextsPerComm
	size := uint64(w.engine.Size())
	w.comms.mu.Lock()
	defer w.comms.mu.Unlock()
	return n%size == uint64(w.engine.Rank()) && n/size >= uint64(w.comms.made)
}

// firstComms makes the communicators that every process is born with.
func (w *World) firstComms() error {
	all, err := group.Range(0, w.engine.Size())
	if err != nil {
		return err
	}
	alone, err := group.Range(w.engine.Rank(), 1)
	if err != nil {
		return err
	}
	w.comm = newComm(w, "world", all, worldContext)
	w.comms.self = newComm(w, "self", alone, selfContext)
	w.comms.whereabouts.comm = newComm(w, "all processes", all, sessionContext)
	if w.config.where != nil {
		w.comms.here = w.config.where(w.engine.Rank())
		if _, err := overlay.ParseNodeID(w.comms.here.String()); err != nil {
			return fmt.Errorf("WithPlace: %w", err)
		}
	}
	return nil
}

// Self returns the communicator of this process alone (MPI_COMM_SELF).
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

// end does what comes before the world's goodbye: the attributes of Self are
// deleted first (MPI-4.1, section 11.2.4).
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
