package calls

import (
	"context"

	"github.com/isthmus-grid/isthmus/mpilib/internal/buffer"
	"github.com/isthmus-grid/isthmus/mpilib/internal/coll"
	"github.com/isthmus-grid/isthmus/mpilib/internal/comm"
	"github.com/isthmus-grid/isthmus/mpilib/internal/debug"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
)

// message is one message of a collective call that the debug mode observes, or that is received
// into a Part; others are coll.Messages.
type message struct {
	handle engine.Handle
	what   comm.Transfer
	size   int                // of the buffer, which the message must have exactly
	into   *buffer.Arrival    // of a receive into a Part; otherwise nil
	seen   *debug.Observation // in debug mode; otherwise nil
}

// message returns one of the call's messages, which the caller starts.
func (c *Call) message(send bool, peer, tag int, buf []byte) *message {
	m := &message{what: comm.Transfer{Comm: &c.comm.Core, Send: send, Peer: peer, Tag: tag}, size: len(buf)}
	if w := c.comm.World.Watch; w != nil {
		w.Started(m, c.context, len(buf))
	}
	return m
}

// Handle, Transfer, Observation and SetObservation implement debug.Request.
func (m *message) Handle() *engine.Handle              { return &m.handle }
func (m *message) Transfer() comm.Transfer             { return m.what }
func (m *message) Observation() *debug.Observation     { return m.seen }
func (m *message) SetObservation(s *debug.Observation) { m.seen = s }

// Done implements collectives.Request.
func (m *message) Done() bool {
	_, ok := m.handle.Settled()
	return ok
}

// Wait implements collectives.Request.
func (m *message) Wait(ctx context.Context) error {
	if m.seen == nil {
		m.handle.Wait(ctx)
	} else if err := m.seen.Wait(ctx, m); err != nil {
		return err
	}
	got, err := m.handle.Result()
	if err != nil || m.what.Send {
		return err
	}
	if m.into != nil {
		_, err = m.into.Land(int(got.Bytes))
	}
	if err == nil && int(got.Bytes) != m.size {
		err = coll.WrongLength(int(got.Bytes), m.size)
	}
	return err
}
