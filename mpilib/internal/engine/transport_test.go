package engine

import (
	"testing"

	"github.com/isthmus-grid/isthmus/mpilib/internal/engine/protocol"
	"github.com/isthmus-grid/isthmus/wire"
)

// What is queued for the ring waits until the link has taken all that was queued before the change.
func TestRingWaitsForTheLink(t *testing.T) {
	e := &Engine{cfg: Config{Size: 2}}
	e.core.Init(protocol.Config{}, 2)
	p := newPeer(e, 1)
	s := &p.transport
	s.send(wire.Envelope{Kind: wire.EnvelopeSwitch}, nil)
	s.switchOver()
	s.send(wire.Envelope{Kind: wire.EnvelopeEager, Length: 1}, []byte("a"))
	p.flush() // a send would need a ring, and there is none
	if size, yes := s.ring.stalled(); yes {
		t.Errorf("%d bytes are said to wait for room in the ring, not for the link", size)
	}
	if len(s.link.queue.queue) != 1 || len(s.ring.queue) != 1 || !s.link.queued() || s.ring.clear() {
		t.Errorf("queued: %+v, %+v", s.link.queue.queue, s.ring.queue)
	}
}
