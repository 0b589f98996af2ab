package mpilib

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/isthmus-grid/isthmus/internal/ipc/shm"
	"github.com/isthmus-grid/isthmus/mpilib/internal/coll"
)

// sharedBufferAfter is how many collective calls a communicator has made before its ranks, if they are all
// on one node, look for a shared buffer: one that makes few needs none.
const sharedBufferAfter = 16

// A sharedBuffer is the memory over which a communicator's ranks, all on one node, make the collective calls
// that they wait for. It is unmapped when nobody can reach it any more.
type sharedBuffer struct {
	mu    sync.Mutex // held by the call that uses it
	b     *shm.SharedBuffer
	check func() error // says why to wait no longer, or returns nil
}

// sharedBufferRecord is what a rank tells all others when they look for one.
type sharedBufferRecord struct {
	Willing bool
	CPUs    [16]uint64 // on which it may run
}

// sharedBufferOffer is how to map what rank 0 has made.
type sharedBufferOffer struct {
	Made  bool
	Offer [shm.DescriptorSize]byte
}

// findSharedBuffer has all ranks share one, or none. That there is none is no error.
func (c *collectiveCall) findSharedBuffer(ctx context.Context, o *snapshot) (*sharedBuffer, error) {
	if !o.oneNode() {
		return nil, nil
	}
	world := c.comm.world
	mine := sharedBufferRecord{Willing: !world.config.place.Unshared && world.watch == nil, CPUs: shm.Allowed()}
	all, err := coll.Allgather(ctx, c, c.Size(), mine)
	if err != nil {
		return nil, err
	}
	var others []shm.CPUs
	for r := range all {
		if !all[r].Willing {
			return nil, nil
		}
		if r != c.Rank() {
			others = append(others, all[r].CPUs)
		}
	}
	seg, err := c.makeSharedBuffer(ctx)
	if err != nil {
		return nil, err
	}
	have, err := coll.Allgather(ctx, c, c.Size(), seg != nil)
	switch {
	case seg == nil:
		return nil, err
	case err != nil || slices.Contains(have, false): // nobody uses it
		seg.Close()
		return nil, err
	}
	seg.CloseFile() // all have opened it
	b := &sharedBuffer{b: seg.SharedBuffer(c.Rank(), c.Size(), others)}
	group, id := (*everybody)(c.comm), c.context
	b.check = func() error { return world.engine.Refused(group, id) }
	runtime.AddCleanup(b, func(b *shm.SharedBuffer) { b.Close() }, b.b)
	return b, nil
}

// makeSharedBuffer returns the memory that rank 0 makes, nil where it could not be had.
func (c *collectiveCall) makeSharedBuffer(ctx context.Context) (*shm.Segment, error) {
	var offer [1]sharedBufferOffer
	var seg *shm.Segment
	if c.Rank() == 0 {
		if made, err := shm.CreateSharedBuffer(c.Size()); err == nil {
			seg, offer[0].Made = made, true
			made.Descriptor().Append(offer[0].Offer[:0])
		}
	}
	if err := coll.Bcast(ctx, c, offer[:], 0); err != nil || !offer[0].Made || c.Rank() == 0 {
		if err != nil && seg != nil {
			seg.Close()
		}
		return seg, err
	}
	o, err := shm.ParseDescriptor(offer[0].Offer[:])
	if err == nil {
		seg, err = shm.OpenSharedBuffer(o, c.Size())
	}
	if err != nil { // as in another container of the node: messages do
		return nil, nil
	}
	return seg, nil
}

// oneNode reports whether all ranks are, as far as is known: where nobody says where they are, they
// are at one place.
func (o *snapshot) oneNode() bool {
	for _, p := range o.places {
		if p != o.places[0] {
			return false
		}
	}
	return true
}

// errGivenUp explains that of a rank that has gone on.
var errGivenUp = errors.New("the rank has given up this call, or called another; its own error says why")

// takeSharedBuffer has the call, which is waited for, go over the communicator's shared buffer if it has one.
// leaveSharedBuffer ends that.
func (c *collectiveCall) takeSharedBuffer() error {
	b := c.plan.sharedBuffer
	if b == nil || !c.waited || c.needs() != c.comm {
		return nil
	}
	b.mu.Lock()
	c.sharedBuffer = b
	return b.check() // else only who waits would hear of a failure
}

func (c *collectiveCall) leaveSharedBuffer() {
	if c.sharedBuffer != nil {
		c.sharedBuffer.mu.Unlock()
		c.sharedBuffer = nil
	}
}

// Posts implements collectives.SharedBuffer.
func (c *collectiveCall) Posts() int {
	if c.sharedBuffer == nil {
		return 0
	}
	return shm.SharedBufferPiece
}

// stepBits is how many steps of a call have stamps of their own, as a power of two: more than
// collectives.MaxSteps.
const stepBits = 16

// Post implements collectives.SharedBuffer.
func (c *collectiveCall) Post(ctx context.Context, p []byte) error {
	c.step++
	return c.sharedBuffer.b.Post(ctx, c.stamp(), c.sharedBuffer.check, p)
}

// PostParts implements collectives.SharedBuffer.
func (c *collectiveCall) PostParts(ctx context.Context, parts [][]byte) error {
	c.step++
	return c.sharedBuffer.b.Post(ctx, c.stamp(), c.sharedBuffer.check, parts...)
}

func (c *collectiveCall) stamp() uint64 { return c.number<<stepBits | c.step }

// Read implements collectives.SharedBuffer.
func (c *collectiveCall) Read(ctx context.Context, rank, n int) ([]byte, error) {
	p, err := c.sharedBuffer.b.Read(ctx, rank, c.stamp(), c.sharedBuffer.check)
	switch {
	case errors.Is(err, shm.ErrPassed):
		return nil, fmt.Errorf("rank %d: %w: %w", rank, err, errGivenUp)
	case err != nil:
		return nil, err
	case len(p) != n:
		return nil, fmt.Errorf("rank %d: %w", rank, coll.WrongLength(len(p), n))
	}
	return p, nil
}
