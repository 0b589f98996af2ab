package mpilib

import (
	"context"
	"errors"
	"fmt"

	"github.com/isthmus-grid/isthmus/mpilib/internal/buffer"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
)

// PartitionedSend is the sending end of a partitioned transfer. It is inactive until
// Start, and from its completion on. Safe for concurrent use: partitions may be given
// away by different goroutines.
type PartitionedSend struct {
	partitions
	tag    int    // of the first partition's messages
	staged []byte // the message, where the Part is in pieces

	partitionRound
	left  int           // partitions not ready
	ready []bool        // which are
	all   chan struct{} // closed when all are
}

// PsendInit prepares to send buf to rank dst in partitions equal parts (MPI_Psend_init;
// MPI-4.1, section 4.2.1). It is matched, once, by a PrecvInit there with this rank as
// source, the same tag and communicator, in the order of the calls; no other receive
// matches it. It does not wait. Free it in the end.
func PsendInit[T Elem](comm *Comm, buf []T, partitions, dst, tag int) (*PartitionedSend, error) {
	return comm.PsendInit(PartOf(buf), partitions, dst, tag)
}

// PsendInit is the package's PsendInit of a Part.
func (c *Comm) PsendInit(p Part, partitions, dst, tag int) (*PartitionedSend, error) {
	s, err := c.psendInit(p.p, partitions, dst, tag)
	if err != nil {
		return nil, c.called("PsendInit", err)
	}
	return s, nil
}

func (c *Comm) psendInit(p buffer.Part, n, dst, tag int) (*PartitionedSend, error) {
	if err := c.checkSend(dst, tag); err != nil {
		return nil, err
	}
	what := transfer{comm: c, send: true, peer: dst, tag: tag, elem: 1}
	parts, err := newPartitions(what, p, n)
	if err != nil {
		return nil, err
	}
	s := &PartitionedSend{partitions: parts}
	if !s.null() {
		if err := s.offer(); err != nil {
			return nil, err
		}
	}
	if p.Pieces {
		s.staged = make([]byte, p.Size)
	}
	c.occupy(1)
	return s, nil
}

// offer tells the receiver what will come.
func (s *PartitionedSend) offer() (err error) {
	if s.tag, err = s.comm().tagsOf(s.n); err != nil {
		return err
	}
	types, err := s.part.Signature()
	if err != nil {
		return err
	}
	b, err := buffer.View([]partitionOffer{{Tag: int64(s.tag), Partitions: int64(s.n), Bytes: int64(s.part.Size), Types: types}})
	if err != nil {
		return err
	}
	r := newRequest(s.what)
	c := s.comm()
	c.world.engine.StartSend(&r.core, s.what.parties(), c.context+offerContext, c.global(s.what.peer), s.what.tag, b, engine.Buffered, false)
	return nil // what fails will fail for the partitions, too
}

// Start begins a round (MPI_Start): from now on partitions may be given away. None of
// them is sent by this. It returns ErrActive if the round before is not over.
func (s *PartitionedSend) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.start(); err != nil {
		return s.called("Start", err)
	}
	s.left, s.ready, s.all, s.moving = s.n, make([]bool, s.n), make(chan struct{}), make([]*Request, s.n)
	return nil
}

// Pready gives partition i away (MPI_Pready; MPI-4.1, section 4.2.2): its elements must
// not change until the round is over. It does not wait. Each partition is given away
// once in a round.
func (s *PartitionedSend) Pready(i int) error {
	s.mu.Lock()
	err := s.check(i, s.active)
	if err == nil && s.ready[i] {
		err = fmt.Errorf("%w: partition %d was given away already", ErrActive, i)
	}
	if err == nil {
		s.ready[i] = true
	}
	s.mu.Unlock()
	if err != nil {
		return s.called("Pready", err)
	}
	var r *Request
	if !s.null() {
		r = s.transfer(s.tag+i, s.bytes(i))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moving[i] = r
	if s.left--; s.left == 0 {
		close(s.all)
	}
	return nil
}

// bytes returns those of partition i.
func (s *PartitionedSend) bytes(i int) []byte {
	if !s.part.Pieces {
		return s.part.Message[i*s.each:][:s.each]
	}
	b := s.staged[i*s.each:][:s.each]
	s.part.Gather(b, i*s.each)
	return b
}

// PreadyRange gives the partitions low to high, high included, away (MPI_Pready_range;
// MPI-4.1, section 4.2.2).
func (s *PartitionedSend) PreadyRange(low, high int) error {
	if low > high {
		return s.called("PreadyRange", fmt.Errorf("%w: partitions %d to %d", ErrArg, low, high))
	}
	for i := low; i <= high; i++ {
		if err := s.Pready(i); err != nil {
			return err
		}
	}
	return nil
}

// PreadyList gives the listed partitions away (MPI_Pready_list; MPI-4.1, section
// 4.2.2).
func (s *PartitionedSend) PreadyList(partitions []int) error {
	for _, i := range partitions {
		if err := s.Pready(i); err != nil {
			return err
		}
	}
	return nil
}

// Wait returns when all partitions were given away and the buffer is the program's
// again, after which the request is inactive; at once for an inactive one, with the
// empty status. When ctx is done before, it returns ctx's error and the round goes on.
func (s *PartitionedSend) Wait(ctx context.Context) (Status, error) {
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
		return emptyStatus, s.called("Wait", err)
	}
	if err := awaitEach(ctx, moving); err != nil { // nobody writes there once all are given away
		return emptyStatus, s.called("Wait", err)
	}
	return s.over()
}

// Test says whether Wait would return at once, and if so what (MPI_Test).
func (s *PartitionedSend) Test() (st Status, done bool, err error) {
	s.mu.Lock()
	active, left, moving := s.active, s.left, s.moving
	s.mu.Unlock()
	if !active {
		return emptyStatus, true, nil
	}
	if left > 0 || !eachDone(moving) {
		return Status{}, false, nil
	}
	st, err = s.over()
	return st, true, err
}

// over ends a round whose transfers are complete.
func (s *PartitionedSend) over() (Status, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.active {
		return emptyStatus, nil
	}
	s.active = false
	if s.null() {
		return nullStatus, nil
	}
	var errs []error
	for i, r := range s.moving {
		if _, err := r.status(); err != nil {
			errs = append(errs, fmt.Errorf("partition %d: %w", i, err))
		}
	}
	st := Status{Source: s.comm().rank, Tag: s.what.tag, Count: s.part.Size, Bytes: s.part.Size}
	return st, s.called("Wait", errors.Join(errs...))
}

// Free says that the program will not start the send again (MPI_Request_free). It
// returns ErrActive while a round is under way.
func (s *PartitionedSend) Free() error { return s.called("Free", s.free(s.comm())) }

// awaitEach returns when the requests, of which some may be nil, are complete, or with
// ctx's error; it gives none up.
func awaitEach(ctx context.Context, requests []*Request) error {
	for _, r := range requests {
		if r == nil || r.core.Done() {
			continue
		}
		if _, err := waitAny(ctx, []*Request{r}); err != nil {
			return err
		}
	}
	return nil
}

// eachDone reports whether all of the requests are complete.
func eachDone(requests []*Request) bool {
	for _, r := range requests {
		if r != nil && !r.core.Done() {
			return false
		}
	}
	return true
}
