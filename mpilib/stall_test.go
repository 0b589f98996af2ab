package mpilib

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// A peer that stops in the middle of a message holds a wait no longer than
// its context; the message after the rest is received as usual.
func TestPeerStallsInMessage(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	peer, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	mine, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	w := &World{engine: newEngine(0, 2, 1<<20)}
	c := newComm(w, "world", firstRanks(t, 2), 0)
	w.engine.attach(&link.Link{Conn: bareConn{mine.(*net.TCPConn)}, Peer: overlay.ProcessName{Rank: 1}})

	const n = 100000
	first, second := Irecv(c, make([]byte, n), 1, 5), Irecv(c, make([]byte, 3), 1, 5)
	peer.Write(wire.Envelope{Kind: wire.EnvelopeMessage, Tag: 5, Length: n}.Append(nil))
	peer.Write(make([]byte, n/2))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := first.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("half a message: %v", err)
	}
	peer.Write(make([]byte, n-n/2))
	peer.Write(append(wire.Envelope{Kind: wire.EnvelopeMessage, Tag: 5, Length: 3}.Append(nil), 'a', 'b', 'c'))
	if st, err := second.Wait(t.Context()); err != nil || st.Bytes != 3 {
		t.Errorf("the message after: %+v, %v", st, err)
	}
	// Nonsense ends the link with an error that says what came.
	third := Irecv(c, make([]byte, 3), 1, 5)
	io.WriteString(peer, strings.Repeat("nonsense", 3))
	if _, err := third.Wait(t.Context()); !errors.Is(err, ErrProcFailed) || !errors.Is(err, wire.ErrMalformed) || !strings.Contains(err.Error(), "envelope kind 110") {
		t.Errorf("nonsense: %v", err)
	}
	w.engine.mu.Lock()
	w.engine.closed = ErrFinalized
	w.engine.mu.Unlock()
	w.engine.shut()
}

// bareConn is a socket in the place of a link.
type bareConn struct{ *net.TCPConn }

func (c bareConn) WriteBuffers(bufs [][]byte) (int64, error) {
	b := append(net.Buffers(nil), bufs...)
	return b.WriteTo(c.TCPConn)
}

func (c bareConn) Lend(bufs [][]byte) (uint64, error) {
	n, err := c.WriteBuffers(bufs)
	return uint64(n), err
}
func (c bareConn) Await(uint64) error          { return nil }
func (c bareConn) Post(p []byte) (bool, error) { _, err := c.Write(p); return true, err }
