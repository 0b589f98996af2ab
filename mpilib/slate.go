package mpilib

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/isthmus-grid/isthmus/internal/ipc/shm"
)

// slateAfter is how many collective calls a communicator has made before its ranks, if they are all
// on one node, look for a slate: one that makes few needs none.
const slateAfter = 16

// A slate is the memory over which a communicator's ranks, all on one node, make the collective calls
// that they wait for. It is unmapped when nobody can reach it any more.
type slate struct {
	mu    sync.Mutex // held by the call that uses it
	b     *shm.Slate
	check func() error // says why to wait no longer, or returns nil
}

// slateRecord is what a rank tells all others when they look for one.
type slateRecord struct {
	Willing bool
	CPUs    [16]uint64 // on which it may run
}

// slateOffer is how to map what rank 0 has made.
type slateOffer struct {
	Made  bool
	Offer [shm.OfferSize]byte
}

// findSlate has all ranks share a slate, or none. That there is none is no error.
func (c *collectiveCall) findSlate(ctx context.Context, o *snapshot) (*slate, error) {
	if !o.oneNode() {
		return nil, nil
	}
	world := c.comm.world
	mine := slateRecord{Willing: !world.config.place.unshared && world.watch == nil, CPUs: shm.Allowed()}
	all, err := allgather(ctx, c, mine)
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
	seg, err := c.shareSlate(ctx)
	if err != nil {
		return nil, err
	}
	have, err := allgather(ctx, c, seg != nil)
	switch {
	case seg == nil:
		return nil, err
	case err != nil || slices.Contains(have, false): // nobody uses it
		seg.Close()
		return nil, err
	}
	seg.CloseFile() // all have opened it
	b := &slate{b: seg.Slate(c.Rank(), c.Size(), others)}
	group, id := (*everybody)(c.comm), c.context
	b.check = func() error { return world.engine.Refused(group, id) }
	runtime.AddCleanup(b, func(b *shm.Slate) { b.Close() }, b.b)
	return b, nil
}

// shareSlate returns the memory that rank 0 makes, nil where it could not be had.
func (c *collectiveCall) shareSlate(ctx context.Context) (*shm.Segment, error) {
	var offer [1]slateOffer
	var seg *shm.Segment
	if c.Rank() == 0 {
		if made, err := shm.CreateSlate(c.Size()); err == nil {
			seg, offer[0].Made = made, true
			made.Offer().Append(offer[0].Offer[:0])
		}
	}
	if err := bcast(ctx, c, offer[:], 0); err != nil || !offer[0].Made || c.Rank() == 0 {
		if err != nil && seg != nil {
			seg.Close()
		}
		return seg, err
	}
	o, err := shm.ParseOffer(offer[0].Offer[:])
	if err == nil {
		seg, err = shm.OpenSlate(o, c.Size())
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

// takeSlate has the call, which is waited for, go over the communicator's slate if it has one.
// leaveSlate ends that.
func (c *collectiveCall) takeSlate() error {
	b := c.plan.slate
	if b == nil || !c.waited || c.needs() != c.comm {
		return nil
	}
	b.mu.Lock()
	c.slate = b
	return b.check() // else only who waits would hear of a failure
}

func (c *collectiveCall) leaveSlate() {
	if c.slate != nil {
		c.slate.mu.Unlock()
		c.slate = nil
	}
}

// Posts implements collectives.Slate.
func (c *collectiveCall) Posts() int {
	if c.slate == nil {
		return 0
	}
	return shm.SlatePiece
}

// stepBits is how many steps of a call have stamps of their own, as a power of two: more than
// collectives.MostSteps.
const stepBits = 16

// Post implements collectives.Slate.
func (c *collectiveCall) Post(ctx context.Context, p []byte) error {
	c.step++
	return c.slate.b.Post(ctx, c.stamp(), c.slate.check, p)
}

// PostParts implements collectives.Slate.
func (c *collectiveCall) PostParts(ctx context.Context, parts [][]byte) error {
	c.step++
	return c.slate.b.Post(ctx, c.stamp(), c.slate.check, parts...)
}

func (c *collectiveCall) stamp() uint64 { return c.number<<stepBits | c.step }

// Read implements collectives.Slate.
func (c *collectiveCall) Read(ctx context.Context, rank, n int) ([]byte, error) {
	p, err := c.slate.b.Read(ctx, rank, c.stamp(), c.slate.check)
	switch {
	case errors.Is(err, shm.ErrPassed):
		return nil, fmt.Errorf("rank %d: %w: %w", rank, err, errGivenUp)
	case err != nil:
		return nil, err
	case len(p) != n:
		return nil, fmt.Errorf("rank %d: %w", rank, wrongLength(len(p), n))
	}
	return p, nil
}
