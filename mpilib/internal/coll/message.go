package coll

import (
	"context"
	"fmt"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
)

// A Message is one message of a collective call, of exactly the bytes of its buffer.
type Message struct {
	Handle engine.Handle // started by the caller of Messages.Next
	n      int
	send   bool
}

// Done implements collectives.Request.
func (m *Message) Done() bool {
	_, ok := m.Handle.Settled()
	return ok
}

// Wait implements collectives.Request.
func (m *Message) Wait(ctx context.Context) error {
	m.Handle.Wait(ctx)
	got, err := m.Handle.Result()
	if err == nil && !m.send && got.Bytes != uint64(m.n) {
		err = WrongLength(int(got.Bytes), m.n)
	}
	return err
}

// WrongLength is the error for a message of have bytes where want bytes were expected.
func WrongLength(have, want int) error {
	return fmt.Errorf("%w: the message has %d bytes, the buffer %d; do all ranks give the same counts?", mpi.ErrCount, have, want)
}

// Messages are those of one call after another; they are reused, so that small calls allocate no
// memory.
type Messages struct {
	slabs []*[messageSlab]Message
	used  int
	any   []*engine.Handle
}

const messageSlab = 16

// Reset prepares for the next call: no message is in use any more.
func (p *Messages) Reset() { p.used = 0 }

// Next returns a message of n bytes.
func (p *Messages) Next(n int, send bool) *Message {
	if p.used == len(p.slabs)*messageSlab {
		p.slabs = append(p.slabs, new([messageSlab]Message))
	}
	q := &p.slabs[p.used/messageSlab][p.used%messageSlab]
	p.used++
	q.n, q.send = n, send
	return q
}

// WaitAny waits for any of several requests, all of which are Messages.
func (p *Messages) WaitAny(ctx context.Context, requests []collectives.Request, first int) (int, error) {
	p.any = p.any[:0]
	for _, q := range requests {
		p.any = append(p.any, &q.(*Message).Handle)
	}
	return engine.WaitAnyHandle(ctx, p.any, first)
}
