package engine

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine/protocol"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// Who waits for several messages and reads the link of the likeliest is told of all the
// others too: of those that come over links that nobody reads, and of what is given up.
func TestWaitAnyLooksAfterOne(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	e := New(Config{Rank: 0, Size: 3, Unexpected: 1 << 20})
	t.Cleanup(e.Close)
	var peers [3]*net.TCPConn
	for rank := 1; rank < 3; rank++ {
		mine, peer := sockets(t)
		t.Cleanup(func() { peer.Close() })
		e.Attach(&link.Link{Conn: bare(mine), Peer: overlay.ProcessName{Rank: uint32(rank)}})
		expect(t, peer, wire.Envelope{Kind: wire.EnvelopeCredit, Length: 1<<20 - protocol.FirstCredit})
		peers[rank] = peer
	}
	for round := range 20 {
		var rs [2]Request
		for i := range rs {
			e.Irecv(&rs[i], everyone{}, 0, i+1, round, make([]byte, 4))
		}
		which := round % 2 // 0: the one that is looked after
		begun := make(chan struct{})
		go func() {
			<-begun
			say(t, peers[which+1], wire.Envelope{Kind: wire.EnvelopeEager, Tag: uint32(round), Length: 4}, 1, 2, 3, 4)
		}()
		close(begun)
		i, err := WaitAny(ctx, []*Request{&rs[0], &rs[1]}, 0)
		if err != nil || i != which {
			t.Fatalf("round %d: request %d, %v; want %d", round, i, err, which)
		}
		rs[1-which].Cancel()
		if _, err := rs[1-which].Wait(ctx); err != nil {
			t.Fatal(err)
		}
	}
	var r Request
	e.Irecv(&r, everyone{}, 0, 1, 100, make([]byte, 4))
	short, stop := context.WithCancel(ctx)
	go stop()
	if _, err := WaitAny(short, []*Request{&r}, 0); err != context.Canceled {
		t.Errorf("given up: %v", err)
	}
	r.Cancel()
}

// What ends a wait while the waiter has others write what was left is not slept through.
func TestWaitAnyLooksAgain(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	e := New(Config{Rank: 0, Size: 3, Unexpected: 1 << 20})
	defer e.Close()
	mine, peer := sockets(t)
	defer peer.Close()
	c := &twiceConn{bareConn: bare(mine)}
	e.Attach(&link.Link{Conn: c, Peer: overlay.ProcessName{Rank: 1}})
	var r Request
	e.Irecv(&r, everyone{}, 0, AnySource, 5, nil)
	c.again = func() { e.MarkFailed(2, errors.New("it is silent")) }
	e.mu.Lock()
	e.idle.left = append(e.idle.left, &e.peers[1].transport.link)
	w := e.newAny()
	w.rs = append(w.rs, &r)
	_, err := w.wait(ctx, -1, false)
	e.mu.Unlock()
	if err := r.BlockedBy(); !errors.Is(err, ErrProcFailedPending) {
		t.Errorf("blocked by %v", err)
	}
	if err != nil || ctx.Err() != nil {
		t.Errorf("a wait for what a failure blocks: %v, %v", err, ctx.Err())
	}
	r.Cancel()
}

// Who asks whether something has come, or is complete, does not compute meanwhile: what was left is written first.
func TestAskersWriteWhatIsLeft(t *testing.T) {
	e := New(Config{Rank: 0, Size: 2, Unexpected: 1 << 20})
	defer e.Close()
	mine, peer := sockets(t)
	defer peer.Close()
	c := &twiceConn{bareConn: bare(mine)}
	e.Attach(&link.Link{Conn: c, Peer: overlay.ProcessName{Rank: 1}})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for what, ask := range map[string]func(r *Request){
		"Done":   func(r *Request) { r.Done() },
		"Iprobe": func(*Request) { e.Iprobe(everyone{}, 0, 1, 5, false) },
		"Probe":  func(*Request) { e.Probe(ended, everyone{}, 0, 1, 5, false) },
	} {
		var r Request
		e.Irecv(&r, everyone{}, 0, 1, 5, nil)
		written := false
		e.mu.Lock()
		c.again = func() { written = true }
		e.idle.left = append(e.idle.left, &e.peers[1].transport.link) // no tick is due
		e.mu.Unlock()
		ask(&r)
		if !written {
			t.Errorf("%s: what was left is not written", what)
		}
		r.Cancel()
	}
}
