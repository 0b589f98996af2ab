package plan

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

// SharedBufferAfter is how many collective calls a communicator has made before its ranks, if they are all
// on one node, look for a shared buffer: one that makes few needs none. Where an algorithm over it is
// forced they look at once.
const SharedBufferAfter = 16

// A SharedBuffer is the memory through which a communicator's ranks, all on one node, make their
// blocking collective calls. It is unmapped when it is unreachable.
type SharedBuffer struct {
	mu    sync.Mutex // held by the call that uses it
	b     *shm.SharedBuffer
	check func() error // returns why to stop waiting, or nil
}

// sharedBufferRecord is what a rank sends to all others when they look for one.
type sharedBufferRecord struct {
	Shares bool
	CPUs   [16]uint64 // on which it may run
}

// sharedBufferOffer is how to map the memory that rank 0 has created.
type sharedBufferOffer struct {
	Created bool
	Offer   [shm.DescriptorSize]byte
}

// findSharedBuffer makes all ranks share one, or none. Its absence is not an error.
func findSharedBuffer(ctx context.Context, c Call, comm Comm, o *snapshot) (*SharedBuffer, error) {
	if !o.oneNode() {
		return nil, nil
	}
	mine := sharedBufferRecord{Shares: comm.Config().Shares(), CPUs: shm.Allowed()}
	all, err := coll.Allgather(ctx, c, c.Size(), mine)
	if err != nil {
		return nil, err
	}
	var others []shm.CPUs
	for r := range all {
		if !all[r].Shares {
			return nil, nil
		}
		if r != c.Rank() {
			others = append(others, all[r].CPUs)
		}
	}
	seg, err := makeSharedBuffer(ctx, c)
	if err != nil {
		return nil, err
	}
	have, err := coll.Allgather(ctx, c, c.Size(), seg != nil)
	switch {
	case seg == nil:
		return nil, err
	case err != nil || slices.Contains(have, false): // it is not in use yet
		seg.Close()
		return nil, err
	}
	seg.CloseFile() // all have opened it
	b := &SharedBuffer{b: seg.SharedBuffer(c.Rank(), c.Size(), others)}
	id := c.Context()
	b.check = func() error { return comm.Refused(id) }
	runtime.AddCleanup(b, func(b *shm.SharedBuffer) { b.Close() }, b.b)
	return b, nil
}

// makeSharedBuffer returns the memory that rank 0 creates, nil if it is not available.
func makeSharedBuffer(ctx context.Context, c Call) (*shm.Segment, error) {
	var offer [1]sharedBufferOffer
	var seg *shm.Segment
	if c.Rank() == 0 {
		if made, err := shm.CreateSharedBuffer(c.Size()); err == nil {
			seg, offer[0].Created = made, true
			made.Descriptor().Append(offer[0].Offer[:0])
		}
	}
	if err := coll.Bcast(ctx, c, offer[:], 0); err != nil || !offer[0].Created || c.Rank() == 0 {
		if err != nil && seg != nil {
			seg.Close()
		}
		return seg, err
	}
	o, err := shm.ParseDescriptor(offer[0].Offer[:])
	if err == nil {
		seg, err = shm.OpenSharedBuffer(o, c.Size())
	}
	if err != nil { // for example in another container of the node: messages are used
		return nil, nil
	}
	return seg, nil
}

// oneNode reports whether all ranks are on one node, as far as known: without known locations, they
// count as being together.
func (o *snapshot) oneNode() bool {
	for _, p := range o.places {
		if p != o.places[0] {
			return false
		}
	}
	return true
}

// ErrGivenUp returns the error of a rank that has given up.
var ErrGivenUp = errors.New("the rank has given up this call, or called another; its own error says why")

// Posting is the part of a call that uses a shared buffer. It implements collectives.SharedBuffer;
// so does the zero Posting, of a call that uses messages.
type Posting struct {
	buffer *SharedBuffer
	number uint64 // of the call
	step   uint64
}

// Take makes a call, the communicator's number-th, which is blocking and needs all of its
// processes, use its shared buffer. Leave ends that, also when Take has failed.
func (p *Posting) Take(b *SharedBuffer, number uint64) error {
	b.mu.Lock()
	p.buffer, p.number = b, number
	return b.check() // otherwise only waiting ranks would detect a failure
}

// Leave ends what Take began, if anything.
func (p *Posting) Leave() {
	if p.buffer != nil {
		p.buffer.mu.Unlock()
		p.buffer = nil
	}
}

// Posts implements collectives.SharedBuffer.
func (p *Posting) Posts() int {
	if p.buffer == nil {
		return 0
	}
	return shm.SharedBufferPiece
}

// stepBits is the number of steps of a call that have distinct stamps, as a power of two: more than
// collectives.MaxSteps.
const stepBits = 16

// Post implements collectives.SharedBuffer.
func (p *Posting) Post(ctx context.Context, b []byte) error {
	p.step++
	return p.buffer.b.Post(ctx, p.stamp(), p.buffer.check, b)
}

// PostParts implements collectives.SharedBuffer.
func (p *Posting) PostParts(ctx context.Context, parts [][]byte) error {
	p.step++
	return p.buffer.b.Post(ctx, p.stamp(), p.buffer.check, parts...)
}

func (p *Posting) stamp() uint64 { return p.number<<stepBits | p.step }

// Read implements collectives.SharedBuffer.
func (p *Posting) Read(ctx context.Context, rank, n int) ([]byte, error) {
	b, err := p.buffer.b.Read(ctx, rank, p.stamp(), p.buffer.check)
	switch {
	case errors.Is(err, shm.ErrPassed):
		return nil, fmt.Errorf("rank %d: %w: %w", rank, err, ErrGivenUp)
	case err != nil:
		return nil, err
	case len(b) != n:
		return nil, fmt.Errorf("rank %d: %w", rank, coll.WrongLength(len(b), n))
	}
	return b, nil
}
