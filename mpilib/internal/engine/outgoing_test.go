package engine

import (
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine/protocol"
	"testing"

	"github.com/isthmus-grid/isthmus/wire"
)

// What is queued for the ring waits until the link has taken all that was queued before the change.
func TestRingWaitsForTheLink(t *testing.T) {
	e := &Engine{}
	e.core.Init(protocol.Config{}, 2)
	p := newPeer(e, 1)
	p.out.add(wire.Envelope{Kind: wire.EnvelopeSwitch}, nil)
	p.out.toRing()
	p.queueOrSend(wire.Envelope{Kind: wire.EnvelopeEager, Length: 1}, []byte("a"))
	p.flush() // a send would need a ring, and there is none
	if size, yes := p.ring.stalled(); yes {
		t.Errorf("%d bytes are said to wait for room in the ring, not for the link", size)
	}
	if len(p.link.queue.queue) != 1 || len(p.ring.queue) != 1 || !p.link.queued() || p.out.clear() {
		t.Errorf("queued: %+v", p.out)
	}
}
