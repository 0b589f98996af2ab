package engine

import (
	"testing"

	"github.com/isthmus-grid/isthmus/mpilib/internal/engine/protocol"
)

// A request that is complete may be waited for, and used again, before the effect of its completion is
// carried out: that ends neither the same wait twice nor another one.
func TestLateCompletion(t *testing.T) {
	e := New(Config{Size: 1, Unexpected: 1 << 20})
	defer e.Close()
	var r Request
	late := protocol.Effect{Kind: protocol.Complete, Request: &r.Request}
	e.mu.Lock()
	defer e.mu.Unlock()
	r.begin(e, everyone{}, 0, 0, 1, make([]byte, 1))
	r.Complete(nil)
	<-r.finished()
	r.wakeWaiters()
	r.begin(e, everyone{}, 0, 0, 1, make([]byte, 1))
	again := r.finished()
	e.carryOutOne(&late)
	select {
	case <-again:
		t.Error("a receive that waits was completed by the effect of the one before")
	default:
	}
}
