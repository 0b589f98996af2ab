package partitioned

import (
	"context"
	"errors"
	"fmt"

	"github.com/isthmus-grid/isthmus/mpilib/internal/buffer"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
)

// Send is the sending end of a partitioned transfer. It is inactive until Start, and after its
// completion. Safe for concurrent use: different goroutines may release partitions.
type Send struct {
	partitions
	tag    int    // of the first partition's messages
	staged []byte // the packed message, if the Part is not contiguous

	round
	handles []engine.Handle // of the round, by partition
	left    int             // number of partitions not ready
	ready   []bool          // which are ready
	all     chan struct{}   // closed when all are ready
}

// NewSend prepares to send p in n equal parts, and sends the offer to the receiver.
func NewSend(t Transfer, p buffer.Part, n int) (*Send, error) {
	parts, err := newPartitions(t, p, n)
	if err != nil {
		return nil, err
	}
	s := &Send{partitions: parts}
	if !s.Null {
		if err := s.offer(); err != nil {
			return nil, err
		}
	}
	if p.Pieces {
		s.staged = make([]byte, p.Size)
	}
	return s, nil
}

// offer announces the transfer to the receiver.
func (s *Send) offer() (err error) {
	if s.tag, err = s.Tags(s.n); err != nil {
		return err
	}
	types, err := s.part.Signature()
	if err != nil {
		return err
	}
	b, err := buffer.View([]offer{{Tag: int64(s.tag), Partitions: int64(s.n), Bytes: int64(s.part.Size), Types: types}})
	if err != nil {
		return err
	}
	s.Engine.StartSend(new(engine.Handle), s.Group, s.Offers, s.Peer, s.Transfer.Tag, b, engine.Buffered, false)
	return nil // an error will also occur for the partitions
}

// Start begins a round (MPI_Start): from now on partitions may be released. Start itself sends
// none. It returns ErrActive if the previous round is not over.
func (s *Send) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.start(); err != nil {
		return err
	}
	s.left, s.ready, s.all, s.moving = s.n, make([]bool, s.n), make(chan struct{}), make([]*engine.Handle, s.n)
	s.handles = make([]engine.Handle, s.n)
	return nil
}

// Pready releases partition i (MPI_Pready; MPI-4.1, section 4.2.2): its elements must not change
// until the round is over. It does not block. Each partition is released once per round.
func (s *Send) Pready(i int) error {
	s.mu.Lock()
	err := s.check(i, s.active)
	if err == nil && s.ready[i] {
		err = fmt.Errorf("%w: partition %d was given away already", mpi.ErrActive, i)
	}
	if err == nil {
		s.ready[i] = true
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	var h *engine.Handle
	if !s.Null {
		h = &s.handles[i]
		s.Engine.StartSend(h, s.Group, s.Parts, s.Peer, s.tag+i, s.bytes(i), engine.Standard, false)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moving[i] = h
	if s.left--; s.left == 0 {
		close(s.all)
	}
	return nil
}

// bytes returns the bytes of partition i.
func (s *Send) bytes(i int) []byte {
	if !s.part.Pieces {
		return s.part.Message[i*s.each:][:s.each]
	}
	b := s.staged[i*s.each:][:s.each]
	s.part.Gather(b, i*s.each)
	return b
}

// Wait returns when all partitions were released and the program owns the buffer again, after which
// the request is inactive; at once for an inactive one, with the empty status. If ctx is done
// before, it returns ctx's error and the round continues.
func (s *Send) Wait(ctx context.Context) (Status, error) {
	s.mu.Lock()
	active, all, moving := s.active, s.all, s.moving
	s.mu.Unlock()
	if !active {
		return emptyStatus, nil
	}
	select {
	case <-all:
	case <-ctx.Done():
		s.mu.Lock()
		err := fmt.Errorf("%d of %d partitions were never given away: %w", s.left, s.n, context.Cause(ctx))
		s.mu.Unlock()
		return emptyStatus, engine.Expired(s.Engine, err)
	}
	if err := s.awaitEach(ctx, moving); err != nil { // there are no writers once all are released
		return emptyStatus, err
	}
	return s.endRound()
}

// Test reports whether Wait would return at once, and if so its result (MPI_Test).
func (s *Send) Test() (st Status, done bool, err error) {
	s.mu.Lock()
	active, left, moving := s.active, s.left, s.moving
	s.mu.Unlock()
	if !active {
		return emptyStatus, true, nil
	}
	if left > 0 || !eachDone(moving) {
		return Status{}, false, nil
	}
	st, err = s.endRound()
	return st, true, err
}

// endRound ends a round whose transfers are complete.
func (s *Send) endRound() (Status, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.active {
		return emptyStatus, nil
	}
	s.active = false
	if s.Null {
		return nullStatus, nil
	}
	var errs []error
	for i, h := range s.moving {
		if _, err := h.Result(); err != nil {
			errs = append(errs, fmt.Errorf("partition %d: %w", i, err))
		}
	}
	st := Status{Source: s.Source, Tag: s.Transfer.Tag, Count: s.part.Size, Bytes: s.part.Size}
	return st, errors.Join(errs...)
}
