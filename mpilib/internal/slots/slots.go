// Package slots gives a program typed ends of the engine's slots. It knows communicators only as what
// messages of errors name; the state is in the engine.
package slots

import (
	"context"
	"fmt"

	"github.com/isthmus-grid/isthmus/mpilib/internal/buffer"
	"github.com/isthmus-grid/isthmus/mpilib/internal/comm"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine/slot"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
)

// A Put is the sending end of a slot. Safe for concurrent use.
type Put[T any] struct {
	s    *engine.PutSlot
	what comm.Transfer
}

// PutTo makes the sending end of slot number tag to rank dst of c.
func PutTo[T any](e *engine.Engine, c *comm.Core, dst, tag, count int) (*Put[T], error) {
	size, err := check[T](c, dst, tag, count)
	if err != nil {
		return nil, err
	}
	s, err := engine.NewPutSlot(e, c.Senders(), c.Context, c.Global(dst), tag, size*count)
	if err != nil {
		return nil, err
	}
	return &Put[T]{s, comm.Transfer{Comm: c, Send: true, Peer: dst, Tag: tag}}, nil
}

// check returns the size of an element in bytes, or what is wrong with the arguments.
func check[T any](c *comm.Core, peer, tag, count int) (int, error) {
	if err := c.CheckSend(peer, tag); err != nil { // at both ends the peer is one rank, and the tag is one number
		return 0, err
	}
	size, err := buffer.Size[T]()
	switch {
	case err != nil:
		return 0, err
	case peer == mpi.ProcNull:
		return 0, fmt.Errorf("%w: no process", mpi.ErrRank)
	case count <= 0:
		return 0, fmt.Errorf("%w: %d elements", mpi.ErrCount, count)
	}
	return size, nil
}

// Put puts a copy of v in place of the slot's last value, under a number that must be above that one's. It
// never waits: what has not been sent when the next value is put is overwritten. The peer gets this value or a later
// one, unless this process ends before. Put fails once the peer is lost.
func (s *Put[T]) Put(number uint64, v []T) error {
	b, err := buffer.View(v)
	if err == nil {
		err = s.s.Put(number, b)
	}
	return failed(s.what, err)
}

// failed describes the slot in err, which may be nil.
func failed(what comm.Transfer, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("mpilib: slot: %v: %w", what, err)
}

// Counts returns the slot's counters.
func (s *Put[T]) Counts() slot.PutCounts { return s.s.Counts() }

// A Get is the receiving end of a slot. Safe for concurrent use.
type Get[T any] struct {
	s    *engine.GetSlot
	what comm.Transfer
	size int // of an element, in bytes
}

// GetFrom makes the receiving end of slot number tag from rank src of c.
func GetFrom[T any](e *engine.Engine, c *comm.Core, src, tag, count int) (*Get[T], error) {
	size, err := check[T](c, src, tag, count)
	if err != nil {
		return nil, err
	}
	s, err := engine.NewGetSlot(e, c.Context, c.Global(src), tag, size*count)
	if err != nil {
		return nil, err
	}
	return &Get[T]{s, comm.Transfer{Comm: c, Peer: src, Tag: tag}, size}, nil
}

// Get copies the newest value to v, as far as there is room, and returns its number and how many elements it
// has; number 0 says that none has come. The number never falls; it is that of the last Get if no newer value has come.
// Get works on when the peer is lost.
func (s *Get[T]) Get(v []T) (number uint64, count int, err error) {
	b, err := buffer.View(v)
	if err != nil {
		return 0, 0, failed(s.what, err)
	}
	number, n := s.s.Get(b)
	return number, n / s.size, nil
}

// Await waits until there is a value above number. It fails when ctx is done, the peer is lost or the slot is
// closed. One goroutine at a time may wait.
func (s *Get[T]) Await(ctx context.Context, number uint64) error {
	return failed(s.what, s.s.Await(ctx, number))
}

// Notify makes news, which must have room for one element, hold one once a value has come since the last
// Get or the slot has ended: so one goroutine waits for several slots.
func (s *Get[T]) Notify(news chan struct{}) { s.s.Notify(news) }

// Err returns why no further value comes, or nil.
func (s *Get[T]) Err() error { return failed(s.what, s.s.Err()) }

// Counts returns the slot's counters.
func (s *Get[T]) Counts() slot.GetCounts { return s.s.Counts() }

// Close ends the slot: the peer is told to send no more, and what still comes is dropped.
func (s *Get[T]) Close() { s.s.Close() }
