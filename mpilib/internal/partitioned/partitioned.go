// Package partitioned carries out partitioned communication (MPI-4.1, chapter 4): one
// message whose parts the sender gives away, and the receiver sees, one by one.
//
// It knows the engine, and of the communicator what a Transfer says. A transfer's state is
// in its two ends, Send and Recv.
package partitioned

import (
	"context"
	"fmt"
	"sync"

	"github.com/isthmus-grid/isthmus/mpilib/internal/buffer"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
)

// A send and a receive are matched when they are made, in the order in which they are, and
// then started again and again.
//
// Each partition of the sender's is a message of the engine's, which goes straight to
// its place at the receiver. They have a context of their own, and tags that the
// sender deals out, one for each partition. When a send is made it tells the receiver
// in a message with the program's tag, again in a context of its own, which tags those
// are and how many bytes there will be; the receiver's partitions may be others.
//
//	sender                                   receiver
//	PsendInit  -- offer: tags, bytes ----->  PrecvInit    matched in order, once
//	Start                                    Start        receives posted when the offer is here
//	Pready(2)  -- partition 2 ----------->   Parrived     of each that lies in what has come
//	Pready(0)  -- partition 0 ----------->
//	Wait                                     Wait         then both may Start again

// MaxPartitions is how many partitions a message may have.
const MaxPartitions = 1 << 20

// offer is what a sender tells the receiver.
type offer struct {
	Tag        int64 // of the first partition's messages; the others' follow
	Partitions int64
	Bytes      int64            // of all of them
	Types      buffer.Signature // of all of them
}

// valid says what is wrong with an offer, which a peer made.
func (o offer) valid() error {
	if o.Partitions < 1 || o.Partitions > MaxPartitions || o.Bytes < 0 || o.Bytes%o.Partitions != 0 || o.Tag < 0 || o.Tag > mpi.MaxTag+1-o.Partitions {
		return fmt.Errorf("%w: the sender offers %d partitions of %d bytes in all, from tag %d on", mpi.ErrCount, o.Partitions, o.Bytes, o.Tag)
	}
	return nil
}

// each returns the bytes of one partition.
func (o offer) each() int { return int(o.Bytes / o.Partitions) }

// Transfer says between whom a message moves, and how.
type Transfer struct {
	Engine *engine.Engine
	Group  engine.Group // the processes that it concerns
	Offers uint32       // context of offers
	Parts  uint32       // context of partitions
	Peer   int          // in the world
	Source int          // the sender's rank in the communicator, as Status has it
	Tag    int
	Null   bool // it moves nothing (MPI_PROC_NULL)
	Signs  bool // the receiver compares types

	Tags  func(n int) (first int, err error)          // n tags in a row that no other send of this process on the communicator has had
	Start func(func()) bool                           // in the background, unless the world has ended
	Wait  func(context.Context, *engine.Handle) error // until it is complete, or ctx is done
}

// Status describes a message.
type Status struct{ Source, Tag, Count, Bytes int }

var (
	emptyStatus = Status{Source: mpi.AnySource, Tag: mpi.AnyTag} // of an inactive request
	nullStatus  = Status{Source: mpi.ProcNull, Tag: mpi.AnyTag}
)

// partitions is what both ends of a partitioned transfer have: all of it stays as it
// was made.
type partitions struct {
	Transfer
	part buffer.Part
	n    int // partitions
	each int // bytes of one
}

func newPartitions(t Transfer, p buffer.Part, n int) (partitions, error) {
	switch {
	case p.Err != nil:
		return partitions{}, p.Err
	case n < 1 || n > MaxPartitions:
		return partitions{}, fmt.Errorf("%w: %d partitions; 1 to %d are possible", mpi.ErrArg, n, MaxPartitions)
	case p.Count%int64(n) != 0:
		return partitions{}, fmt.Errorf("%w: %d elements are not %d equal partitions", mpi.ErrCount, p.Count, n)
	}
	return partitions{Transfer: t, part: p, n: n, each: p.Size / n}, nil
}

// check says that there is no partition i, or that the request is not active.
func (p *partitions) check(i int, active bool) error {
	switch {
	case i < 0 || i >= p.n:
		return fmt.Errorf("%w: partition %d of %d", mpi.ErrArg, i, p.n)
	case !active:
		return fmt.Errorf("%w: Start it first", mpi.ErrInactive)
	}
	return nil
}

// awaitEach returns when the transfers, of which some may be nil, are complete, or with
// ctx's error; it gives none up.
func (p *partitions) awaitEach(ctx context.Context, handles []*engine.Handle) error {
	for _, h := range handles {
		if h == nil || h.Done() {
			continue
		}
		if err := p.Wait(ctx, h); err != nil {
			return err
		}
	}
	return nil
}

// eachDone reports whether all of the transfers are complete.
func eachDone(handles []*engine.Handle) bool {
	for _, h := range handles {
		if h != nil && !h.Done() {
			return false
		}
	}
	return true
}

// round is what both ends have of one start to the next; mu guards it.
type round struct {
	mu     sync.Mutex
	active bool
	freed  bool
	moving []*engine.Handle // by partition of the sender
}

// start begins a round. mu is held.
func (r *round) start() error {
	switch {
	case r.freed:
		return errRequestFreed
	case r.active:
		return fmt.Errorf("%w; wait for it first", mpi.ErrActive)
	}
	r.active = true
	return nil
}

var errRequestFreed = fmt.Errorf("%w: the request has been freed", mpi.ErrInactive)

// Free ends the use of the request, which is not active.
func (r *round) Free() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.freed:
		return errRequestFreed
	case r.active:
		return fmt.Errorf("%w; wait for it first", mpi.ErrActive)
	}
	r.freed = true
	return nil
}
