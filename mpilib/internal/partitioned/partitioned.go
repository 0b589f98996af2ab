// Package partitioned implements partitioned communication (MPI-4.1, chapter 4): one message whose
// parts the sender releases, and the receiver sees, one by one.
//
// It uses the engine, and of the communicator what a Transfer contains. A transfer's state is in
// its two ends, Send and Recv.
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
//	Pready(2)  -- partition 2 ----------->   Parrived     of each that lies in the bytes received
//	Pready(0)  -- partition 0 ----------->
//	Wait                                     Wait         then both may Start again

// MaxPartitions is the maximum number of partitions of a message.
const MaxPartitions = 1 << 20

// offer is the sender's announcement to the receiver.
type offer struct {
	Tag        int64 // of the first partition's messages; the others' follow
	Partitions int64
	Bytes      int64            // of all of them
	Types      buffer.Signature // of all of them
}

// valid returns an error if an offer, which a peer sent, is invalid.
func (o offer) valid() error {
	if o.Partitions < 1 || o.Partitions > MaxPartitions || o.Bytes < 0 || o.Bytes%o.Partitions != 0 || o.Tag < 0 || o.Tag > mpi.MaxTag+1-o.Partitions {
		return fmt.Errorf("%w: the sender offers %d partitions of %d bytes in all, from tag %d on", mpi.ErrCount, o.Partitions, o.Bytes, o.Tag)
	}
	return nil
}

// each returns the size of one partition in bytes.
func (o offer) each() int { return int(o.Bytes / o.Partitions) }

// Transfer describes the ends of a transfer.
type Transfer struct {
	Engine *engine.Engine
	Group  engine.Group // the processes whose failure matters
	Offers uint32       // context of offers
	Parts  uint32       // context of partitions
	Peer   int          // in the world
	Source int          // the sender's rank in the communicator, for Status
	Tag    int
	Null   bool // a transfer to or from MPI_PROC_NULL
	Signs  bool // the receiver compares types

	Tags  func(n int) (first int, err error)          // n consecutive tags that no other send of this process on the communicator has used
	Start func(func()) bool                           // runs a function in the background, unless the world has ended
	Wait  func(context.Context, *engine.Handle) error // waits until it is complete, or ctx is done
}

// Status describes a message.
type Status struct{ Source, Tag, Count, Bytes int }

var (
	emptyStatus = Status{Source: mpi.AnySource, Tag: mpi.AnyTag} // of an inactive request
	nullStatus  = Status{Source: mpi.ProcNull, Tag: mpi.AnyTag}
)

// partitions is what both ends of a partitioned transfer have; it is immutable.
type partitions struct {
	Transfer
	part buffer.Part
	n    int // partitions
	each int // size of one in bytes
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

// check returns an error if there is no partition i, or the request is not active.
func (p *partitions) check(i int, active bool) error {
	switch {
	case i < 0 || i >= p.n:
		return fmt.Errorf("%w: partition %d of %d", mpi.ErrArg, i, p.n)
	case !active:
		return fmt.Errorf("%w: Start it first", mpi.ErrInactive)
	}
	return nil
}

// awaitEach returns when the transfers, some of which may be nil, are complete, or with ctx's
// error; it cancels none.
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

// round is the state of both ends from one start to the next; mu guards it.
type round struct {
	mu     sync.Mutex
	active bool
	freed  bool
	moving []*engine.Handle // by partition of the sender
}

// checkInactive returns an error if the request is freed or active. mu is held.
func (r *round) checkInactive() error {
	switch {
	case r.freed:
		return errRequestFreed
	case r.active:
		return fmt.Errorf("%w; wait for it first", mpi.ErrActive)
	}
	return nil
}

// start begins a round. mu is held.
func (r *round) start() error {
	if err := r.checkInactive(); err != nil {
		return err
	}
	r.active = true
	return nil
}

var errRequestFreed = fmt.Errorf("%w: the request has been freed", mpi.ErrInactive)

// Free releases the request, which is not active.
func (r *round) Free() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.checkInactive(); err != nil {
		return err
	}
	r.freed = true
	return nil
}
