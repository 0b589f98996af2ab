package mpilib

import (
	"errors"
	"fmt"
	"sync"

	"github.com/isthmus-grid/isthmus/mpilib/internal/buffer"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
)

// Partitioned communication (MPI-4.1, chapter 4): one message whose parts the sender
// gives away, and the receiver sees, one by one. A send and a receive are matched
// when they are made, in the order in which they are, and then started again and again.
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

// partitionOffer is what a sender tells the receiver.
type partitionOffer struct {
	Tag        int64 // of the first partition's messages; the others' follow
	Partitions int64
	Bytes      int64            // of all of them
	Types      buffer.Signature // of all of them
}

// valid says what is wrong with an offer, which a peer made.
func (o partitionOffer) valid() error {
	if o.Partitions < 1 || o.Partitions > MaxPartitions || o.Bytes < 0 || o.Bytes%o.Partitions != 0 || o.Tag < 0 || o.Tag > MaxTag+1-o.Partitions {
		return fmt.Errorf("%w: the sender offers %d partitions of %d bytes in all, from tag %d on", ErrCount, o.Partitions, o.Bytes, o.Tag)
	}
	return nil
}

// each returns the bytes of one partition.
func (o partitionOffer) each() int { return int(o.Bytes / o.Partitions) }

// partitions is what both ends of a partitioned transfer have: all of it stays as it
// was made.
type partitions struct {
	what transfer
	part buffer.Part
	n    int // partitions
	each int // bytes of one
}

func newPartitions(what transfer, p buffer.Part, n int) (partitions, error) {
	switch {
	case p.Err != nil:
		return partitions{}, p.Err
	case n < 1 || n > MaxPartitions:
		return partitions{}, fmt.Errorf("%w: %d partitions; 1 to %d are possible", ErrArg, n, MaxPartitions)
	case p.Count%int64(n) != 0:
		return partitions{}, fmt.Errorf("%w: %d elements are not %d equal partitions", ErrCount, p.Count, n)
	}
	return partitions{what: what, part: p, n: n, each: p.Size / n}, nil
}

func (p *partitions) comm() *Comm { return p.what.comm }

func (p *partitions) null() bool { return p.what.peer == ProcNull }

// called says in which call of which transfer err came up, and has the error handler
// see it.
func (p *partitions) called(call string, err error) error {
	if err == nil {
		return nil
	}
	c := p.comm()
	return c.raise(fmt.Errorf("mpilib: rank %d: %s of a partitioned %v%s: %w", c.rank, call, p.what, c.world.watch.Line(), err))
}

// check says that there is no partition i, or that the request is not active.
func (p *partitions) check(i int, active bool) error {
	switch {
	case i < 0 || i >= p.n:
		return fmt.Errorf("%w: partition %d of %d", ErrArg, i, p.n)
	case !active:
		return fmt.Errorf("%w: Start it first", ErrInactive)
	}
	return nil
}

// ErrInactive is that of giving away a partition of a send that was not started.
var ErrInactive = errors.New("request is not active")

// tagsOf returns the first of n tags in a row that no other partitioned send of this
// process on c has had. None is used twice: a receiver may start its requests in
// another order than that of the messages.
func (c *Comm) tagsOf(n int) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.parted+n > MaxTag+1 {
		return 0, fmt.Errorf("%w: partitioned sends on %s have had %d partitions; make them once and start them often, or Dup the communicator",
			ErrContexts, c.Name(), c.parted)
	}
	first := c.parted
	c.parted += n
	return first, nil
}

// transfer starts the transfer of b as the message with an inner tag.
func (p *partitions) transfer(tag int, b []byte) *Request {
	c, r := p.comm(), newRequest(p.what)
	context, peer := c.context+partitionContext, c.global(p.what.peer)
	if p.what.send {
		c.world.engine.StartSend(&r.core, p.what.parties(), context, peer, tag, b, engine.Standard, false)
	} else {
		c.world.engine.StartRecv(&r.core, p.what.parties(), context, peer, tag, b)
	}
	return r
}

// partitionRound is what both ends have of one start to the next; mu guards it.
type partitionRound struct {
	mu     sync.Mutex
	active bool
	freed  bool
	moving []*Request // by partition of the sender
}

// start begins a round. mu is held.
func (r *partitionRound) start() error {
	switch {
	case r.freed:
		return errRequestFreed
	case r.active:
		return fmt.Errorf("%w; wait for it first", ErrActive)
	}
	r.active = true
	return nil
}

var errRequestFreed = fmt.Errorf("%w: the request has been freed", ErrInactive)

// free ends the use of the request, which is not active.
func (r *partitionRound) free(c *Comm) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.freed:
		return errRequestFreed
	case r.active:
		return fmt.Errorf("%w; wait for it first", ErrActive)
	}
	r.freed = true
	c.occupy(-1)
	return nil
}
