package engine

import (
	"errors"

	"github.com/isthmus-grid/isthmus/mpilib/internal/engine/protocol"
	"github.com/isthmus-grid/isthmus/mpilib/internal/replica"
)

// Milestones calls f, which does what is due at a milestone of a rank with replicas, waits for nothing and changes nothing else. It
// returns a channel that is closed when something else may be due.
func Milestones(e *Engine, f func(replica.Milestones, *protocol.Core)) (woken <-chan struct{}, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	woken = e.replicas.woken // before carryOut, which may give mu up
	f(e.replicas.process.Milestones(), &e.core)
	e.carryOut()
	e.wakeReaders()
	return woken, e.core.Closed()
}

var errUnseated = errors.New("this process is to take the place of a lost one, and does not have it before its first Milestone")

// seatError is the error of all calls of such a process.
func (s *replicas) seatError() error {
	if s == nil || s.process.Milestones().Seated() {
		return nil
	}
	return errUnseated
}

func (s *replicas) layout() replica.Layout { return s.process.Milestones().Layout() }

// seatOf returns which replica of which rank a peer is; its rank is replica.Unseated if it is none.
func (s *replicas) seatOf(p *peer) replica.Seat {
	if s == nil {
		return replica.Seat{Rank: p.rank}
	}
	l := s.layout()
	seat := replica.Seat{Rank: l.Rank(p.process)}
	if seat.Rank != replica.Unseated {
		seat.Replica = l.Replica(p.process)
	}
	return seat
}
