package engine

import (
	"context"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/overlay"
)

// These tests have rings sleep while there is something in them, or room, and look whether
// somebody comes without a call and without the rounds that should never be needed.

// holding is a link of which one Flush waits, once it is told so.
type holding struct {
	*bareConn
	hold    *atomic.Bool
	posting chan struct{} // closed when it waits
	gate    chan struct{} // for this
}

func newHolding(c *net.TCPConn) holding {
	return holding{bare(c), new(atomic.Bool), make(chan struct{}), make(chan struct{})}
}

func (c holding) Flush(rest bool) bool {
	if c.hold.CompareAndSwap(true, false) {
		close(c.posting)
		<-c.gate
	}
	return c.bareConn.Flush(rest)
}

// three returns engines that all share memory, without rounds, and the links of rank 0 by peer.
func three(t *testing.T) (es [3]*Engine, conns [3]holding) {
	t.Helper()
	for i := range es {
		es[i] = New(Config{Rank: i, Size: 3, Unexpected: 1 << 20, SharedMemory: true, Connect: func(context.Context, int) error { return nil }})
		es[i].rings.checkEvery = time.Hour
		t.Cleanup(es[i].Close)
	}
	for i := range es {
		for j := range i {
			upper, lower := sockets(t)
			var of link.Conn = bare(lower)
			if j == 0 {
				conns[i] = newHolding(lower)
				of = conns[i]
			}
			es[j].Attach(&link.Link{Conn: of, Peer: overlay.ProcessName{Rank: uint32(i)}})
			es[i].Attach(&link.Link{Conn: bare(upper), Peer: overlay.ProcessName{Rank: uint32(j)}})
		}
	}
	for _, e := range es {
		eventually(t, e, "memory is shared with both", func() bool {
			for _, p := range e.peers {
				if p != nil && !(p.transport.fromRing && p.transport.toRing) {
					return false
				}
			}
			return true
		})
	}
	return es, conns
}

// A bell that comes while a look at sleeping rings is under way is heard, also where the look
// has passed the ring in question.
func TestBellDuringGlance(t *testing.T) {
	es, conns := three(t)
	e := es[0]
	asleep(t, e)
	e.mu.Lock()
	first, last := e.rings.peers[0], e.rings.peers[1]
	e.mu.Unlock()
	link := conns[last.rank]
	release := sync.OnceFunc(func() { close(link.gate) })
	t.Cleanup(release)
	go func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		for e.rings.polling || !e.rings.asleep || link.waiting() { // then this look, or this write, would be another's
			e.mu.Unlock()
			runtime.Gosched()
			e.mu.Lock()
		}
		link.hold.Store(true)
		last.transport.link.bellDue = true // it has something to do there
		e.rings.pollOnce()
	}()
	select {
	case <-link.posting:
	case <-time.After(30 * time.Second):
		t.Fatal("not within 30 s: a bell is rung")
	}
	var r Request
	es[first.rank].Isend(&r, everyone{}, 0, 0, 5, []byte{1}, Standard, false)
	eventually(t, e, "the bell is heard", e.rings.attention.Load)
	release()
	eventually(t, e, "the message is taken out of the ring", func() bool { return e.core.Table(0).Peek(int32(first.rank), 5) != nil })
}

// Who sends on while the rings sleep, and finds no room, hears when there is some.
func TestNoRoomWhileAsleep(t *testing.T) {
	es, _, attach := neighbours(t, 1<<20)
	for _, e := range es {
		e.rings.checkEvery = time.Hour
	}
	attach()
	settle(t, es, true)
	asleep(t, es[0])
	asleep(t, es[1])
	es[1].mu.Lock()
	es[1].rings.takeToken() // so that nobody receives
	es[1].mu.Unlock()
	var rs [600]Request // more than a ring has cells
	for i := range rs {
		es[0].Isend(&rs[i], everyone{}, 0, 1, i, make([]byte, 100), Standard, false)
	}
	eventually(t, es[0], "the ring is full", func() bool { return len(es[0].peers[1].transport.queue.entries) > 0 })
	es[1].mu.Lock()
	es[1].rings.releaseToken()
	es[1].rings.requestSweep()
	es[1].mu.Unlock()
	eventually(t, es[1], "all is received", func() bool { return es[1].core.Table(0).Peek(0, int32(len(rs)-1)) != nil })
}
