package engine

import (
	"testing"

	"github.com/isthmus-grid/isthmus/mpilib/internal/engine/protocol"
	"github.com/isthmus-grid/isthmus/wire"
)

// What is queued for the ring waits until the link has taken all that was queued before the change, and is not put into one
// batch with that.
func TestRingWaitsForTheLink(t *testing.T) {
	e := &Engine{cfg: Config{Size: 2}}
	e.core.Init(protocol.Config{}, 2)
	s := &newPeer(e, 1).transport
	s.send(wire.Envelope{Kind: wire.EnvelopeSwitch}, nil)
	s.switchOver()
	s.send(wire.Envelope{Kind: wire.EnvelopeEager, Length: 1}, []byte("a"))
	s.fill() // a send would need a ring, and there is none
	if size, yes := s.stalled(); yes {
		t.Errorf("%d bytes are said to wait for room in the ring, not for the link", size)
	}
	if q := s.queue.entries; len(q) != 2 || q[0].ring || !q[1].ring {
		t.Errorf("queued: %+v", q)
	}
	s.queue.removeFirst()
	if size, yes := s.stalled(); size != 1 || !yes {
		t.Errorf("%d bytes are said to wait for room in the ring: %v", size, yes)
	}
}
