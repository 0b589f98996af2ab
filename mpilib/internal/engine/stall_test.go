package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/link/stream"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine/protocol"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// everyone is a group of all.
type everyone struct{}

func (everyone) Member(int) bool       { return true }
func (everyone) Whole() bool           { return false }
func (everyone) Acknowledged(int) bool { return false }

// sockets returns two that are connected.
func sockets(t testing.TB) (mine, peer *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	dialled, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return accepted.(*net.TCPConn), dialled.(*net.TCPConn)
}

// faced returns an engine of rank 0 of two, and a socket in the place of rank 1.
// The engine's credit has been read from it.
func faced(t *testing.T) (*Engine, *net.TCPConn) {
	t.Helper()
	mine, peer := sockets(t)
	e := New(Config{Rank: 0, Size: 2, Unexpected: 1 << 20})
	e.Attach(&link.Link{Conn: bare(mine), Peer: overlay.ProcessName{Rank: 1}})
	t.Cleanup(func() { peer.Close(); e.Close() })
	expect(t, peer, wire.Envelope{Kind: wire.EnvelopeCredit, Length: 1<<20 - protocol.FirstCredit})
	return e, peer
}

// expect reads an envelope that has to come next.
func expect(t *testing.T, peer net.Conn, want wire.Envelope) {
	t.Helper()
	peer.SetReadDeadline(time.Now().Add(30 * time.Second))
	b := make([]byte, wire.EnvelopeLen)
	if _, err := io.ReadFull(peer, b); err != nil {
		t.Fatalf("waiting for %+v: %v", want, err)
	}
	if got, err := wire.ParseEnvelope(b); got != want {
		t.Fatalf("got %+v, %v, want %+v", got, err, want)
	}
}

func say(t *testing.T, peer net.Conn, env wire.Envelope, data ...byte) {
	t.Helper()
	if _, err := peer.Write(append(env.Append(nil), data...)); err != nil {
		t.Fatal(err)
	}
}

func wait(t *testing.T, r *Request) (Result, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	return r.Wait(ctx)
}

// A peer that stops in the middle of a message holds a wait no longer than
// its context; the message after the rest is received as usual.
func TestPeerStallsInMessage(t *testing.T) {
	e, peer := faced(t)
	const n = 60000
	var first, second, third Request
	e.Irecv(&first, everyone{}, 0, 1, 5, make([]byte, n))
	e.Irecv(&second, everyone{}, 0, 1, 5, make([]byte, 3))
	say(t, peer, wire.Envelope{Kind: wire.EnvelopeEager, Tag: 5, Length: n}, make([]byte, n/2)...)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := first.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("half a message: %v", err)
	}
	peer.Write(make([]byte, n-n/2))
	say(t, peer, wire.Envelope{Kind: wire.EnvelopeEager, Tag: 5, Length: 3}, 'a', 'b', 'c')
	if got, err := wait(t, &second); err != nil || got.Bytes != 3 {
		t.Errorf("the message after: %+v, %v", got, err)
	}
	// Nonsense ends the link with an error that says what came.
	e.Irecv(&third, everyone{}, 0, 1, 5, make([]byte, 3))
	io.WriteString(peer, strings.Repeat("nonsense", 3))
	if _, err := wait(t, &third); !errors.Is(err, ErrProcFailed) || !errors.Is(err, wire.ErrMalformed) || !strings.Contains(err.Error(), "envelope kind 110") {
		t.Errorf("nonsense: %v", err)
	}
}

// lostConn is a link that is lost for good because something timed out.
type lostConn struct {
	*bareConn
	calls atomic.Int64
	lost  context.Context // ends when it is
	lose  func()
}

var errStalled = fmt.Errorf("not restored: the handshake stalled: %w", os.ErrDeadlineExceeded)

func (c *lostConn) Read(b []byte) (int, error) {
	<-c.lost.Done()
	c.calls.Add(1)
	return 0, errStalled
}

func (c *lostConn) Append(stream.How, []byte, []byte) (uint64, bool, error) {
	c.calls.Add(1)
	c.lose()
	return 0, false, errStalled
}

// A link that is lost by a timeout fails its peer; it is not taken for an interrupt of
// the engine's own and tried for ever.
func TestLinkLostByTimeout(t *testing.T) {
	for _, sends := range []bool{false, true} {
		mine, peer := sockets(t)
		defer peer.Close()
		conn := &lostConn{bareConn: bare(mine)}
		conn.lost, conn.lose = context.WithCancel(t.Context())
		e := New(Config{Rank: 0, Size: 2, Unexpected: protocol.FirstCredit})
		defer e.Close()
		defer conn.lose()
		e.Attach(&link.Link{Conn: conn, Peer: overlay.ProcessName{Rank: 1}})
		var r Request
		if sends {
			e.Isend(&r, everyone{}, 0, 1, 5, []byte("abc"), Synchronous, false)
		} else {
			e.Irecv(&r, everyone{}, 0, 1, 5, make([]byte, 3))
			conn.lose()
		}
		if _, err := wait(t, &r); !errors.Is(err, ErrProcFailed) || !strings.Contains(err.Error(), "the handshake stalled") {
			t.Errorf("sends %v: %v", sends, err)
		}
		if n := conn.calls.Load(); n > 3 {
			t.Errorf("sends %v: the lost link was tried %d times", sends, n)
		}
	}
}

// An RTS is answered when a receive matches it, its head and the rest come to
// the receive's buffer, and the sender hears that it is taken.
func TestOfferIsAskedFor(t *testing.T) {
	for _, when := range []string{"posted", "before", "while the head comes"} {
		t.Run(when, func(t *testing.T) {
			e, peer := faced(t)
			offer := wire.Envelope{Kind: wire.EnvelopeRTS, Tag: 5, ID: 9, Length: 6}
			head := wire.Envelope{Kind: wire.EnvelopeData, Flags: wire.EnvelopeHead, ID: 9, Length: 4}
			var r Request
			buf := make([]byte, 8)
			if when == "posted" {
				e.Irecv(&r, everyone{}, 0, AnySource, AnyTag, buf)
			}
			say(t, peer, offer)
			probed(t, e, when != "posted", Result{Source: 1, Tag: 5, Bytes: 6})
			switch when {
			case "before":
				say(t, peer, head, 1, 2, 3, 4)
				say(t, peer, wire.Envelope{Kind: wire.EnvelopeEager, Tag: 6})
				found(t, e, 6)
				e.Irecv(&r, everyone{}, 0, 1, 5, buf)
			case "posted":
				say(t, peer, head, 1, 2, 3, 4)
			default:
				say(t, peer, head, 1, 2)
				e.Irecv(&r, everyone{}, 0, 1, 5, buf)
				peer.Write([]byte{3, 4})
			}
			ask := wire.Envelope{Kind: wire.EnvelopeCTS, ID: 9, Length: 6}
			if when != "posted" {
				ask.Flags = wire.EnvelopeLate
			}
			expect(t, peer, ask)
			say(t, peer, wire.Envelope{Kind: wire.EnvelopeData, ID: 9, Length: 1}, 5)
			say(t, peer, wire.Envelope{Kind: wire.EnvelopeData, ID: 9, Length: 1}, 6)
			if got, err := wait(t, &r); err != nil || got != (Result{Source: 1, Tag: 5, Bytes: 6}) || !bytes.Equal(buf, []byte{1, 2, 3, 4, 5, 6, 0, 0}) {
				t.Errorf("%+v, %v, % x", got, err, buf)
			}
			expect(t, peer, wire.Envelope{Kind: wire.EnvelopeTaken, ID: 9})
		})
	}
}

// As much of a message goes eagerly as the peer's latest answer makes worth while.
func TestHeadGrowsAndShrinks(t *testing.T) {
	e, peer := faced(t)
	data := make([]byte, protocol.MaxHead+5)
	for i, step := range []struct {
		flags uint8
		head  int // of the next message
	}{{0, 256 << 10}, {0, protocol.MaxHead}, {0, protocol.MaxHead}, {wire.EnvelopeLate, protocol.EagerShort}, {wire.EnvelopeLate, protocol.EagerShort}, {0, 256 << 10}} {
		var r Request
		e.mu.Lock()
		e.peers[1].proto.Credit = 4 << 20
		head := min(max(e.peers[1].proto.HeadSize(), protocol.EagerShort), len(data))
		e.mu.Unlock()
		e.Isend(&r, everyone{}, 0, 1, 5, data, Standard, false)
		id := uint32(i + 1)
		expect(t, peer, wire.Envelope{Kind: wire.EnvelopeRTS, Tag: 5, ID: id, Length: uint64(len(data))})
		expect(t, peer, wire.Envelope{Kind: wire.EnvelopeData, Flags: wire.EnvelopeHead, ID: id, Length: uint64(head)})
		io.ReadFull(peer, make([]byte, head))
		say(t, peer, wire.Envelope{Kind: wire.EnvelopeCTS, Flags: step.flags, ID: id, Length: uint64(len(data))})
		expect(t, peer, wire.Envelope{Kind: wire.EnvelopeData, ID: id, Length: uint64(len(data) - head)})
		io.ReadFull(peer, make([]byte, len(data)-head))
		say(t, peer, wire.Envelope{Kind: wire.EnvelopeTaken, ID: id})
		if _, err := wait(t, &r); err != nil {
			t.Fatal(err)
		}
		e.mu.Lock()
		if got := max(e.peers[1].proto.HeadSize(), protocol.EagerShort); got != step.head {
			t.Errorf("after %d answers the next head is to have %d bytes, want %d", i+1, got, step.head)
		}
		e.mu.Unlock()
	}
}

// What comes behind a message that somebody waits for is left for the receive that
// the waiter may post next.
func TestNextReceiveIsPostedFirst(t *testing.T) {
	e, peer := faced(t)
	var first, second Request
	buf := make([]byte, 6)
	e.Irecv(&first, everyone{}, 0, 1, 6, make([]byte, 1))
	both := append(wire.Envelope{Kind: wire.EnvelopeEager, Tag: 6, Length: 1}.Append(nil), 2)
	both = wire.Envelope{Kind: wire.EnvelopeRTS, Tag: 5, ID: 9, Length: 6}.Append(both)
	e.mu.Lock()
	p := e.peers[1]
	p.transport.link.reading.waiters++ // so that its own goroutine gives up the token
	for p.transport.link.reading.busy {
		p.transport.link.interruptRead()
		e.mu.Unlock()
		<-p.transport.link.reading.token
		e.mu.Lock()
	}
	p.transport.link.reading.waiters--
	if _, err := peer.Write(both); err != nil {
		t.Fatal(err)
	}
	p.transport.link.readForWaiter(t.Context(), &first)
	if first.State != complete || !p.transport.link.hasBuffered() {
		t.Errorf("state %d, %d bytes are left", first.State, p.transport.link.in.end-p.transport.link.in.begin)
	}
	e.mu.Unlock()
	e.Irecv(&second, everyone{}, 0, 1, 5, buf)
	say(t, peer, wire.Envelope{Kind: wire.EnvelopeData, Flags: wire.EnvelopeHead, ID: 9, Length: 6}, 1, 2, 3, 4, 5, 6)
	if got, err := wait(t, &second); err != nil || got.Bytes != 6 || buf[5] != 6 {
		t.Errorf("%+v, %v", got, err)
	}
}

// probed waits until a message is here, if one is to be kept.
func probed(t *testing.T, e *Engine, kept bool, want Result) {
	t.Helper()
	if !kept {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if m, err := e.Probe(ctx, everyone{}, 0, 1, want.Tag, false); err != nil || m.Result() != want {
		t.Fatalf("probe: %v", err)
	}
}

// found waits until an empty message with tag is here.
func found(t *testing.T, e *Engine, tag int) {
	t.Helper()
	probed(t, e, true, Result{Source: 1, Tag: tag})
}

// A message that is copied at once is written, though its caller waits for nothing any more.
func TestCopiedIsWritten(t *testing.T) {
	e, peer := faced(t)
	var r Request
	e.Isend(&r, everyone{}, 0, 1, 5, []byte{1}, Standard, true)
	expect(t, peer, wire.Envelope{Kind: wire.EnvelopeEager, Tag: 5, Length: 1})
}

// fullConn is a link whose socket takes nothing at once: what is left only one kind of call writes.
type fullConn struct {
	*bareConn
	push bool
}

func (c fullConn) Flush(rest bool) bool {
	if rest && !c.push {
		c.bareConn.Flush(true)
	}
	return !rest
}

func (c fullConn) Push() bool {
	if c.push {
		c.bareConn.Flush(true)
	}
	return false
}

// What the socket does not take is written after a tick, by a waiter of a send, and at once when something else is waited for.
func TestLeftIsWritten(t *testing.T) {
	for _, by := range []string{"a tick", "a waiter of a send", "a waiter of a receive", "a waiter of any"} {
		t.Run(by, func(t *testing.T) {
			mine, peer := sockets(t)
			e := New(Config{Rank: 0, Size: 2})
			e.Attach(&link.Link{Conn: fullConn{bare(mine), by == "a waiter of a send"}, Peer: overlay.ProcessName{Rank: 1}})
			t.Cleanup(func() { peer.Close(); e.Close() })
			if by != "a tick" {
				eventually(t, e, "the link has its reader", func() bool { return !e.idle.runs })
				e.mu.Lock()
				e.idle.runs = true // and will not
				e.mu.Unlock()
			}
			var s, r Request
			e.Isend(&s, everyone{}, 0, 1, 5, []byte{1}, Synchronous, false)
			e.Irecv(&r, everyone{}, 0, 1, 5, make([]byte, 1))
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			t.Cleanup(func() { cancel(); <-done })
			go func() {
				defer close(done)
				switch by {
				case "a waiter of a send":
					s.Wait(ctx)
				case "a waiter of a receive":
					r.Wait(ctx)
				case "a waiter of any":
					WaitAny(ctx, []*Request{&s, &r}, -1)
				}
			}()
			expect(t, peer, wire.Envelope{Kind: wire.EnvelopeEager, Flags: wire.EnvelopeSynchronous, Tag: 5, ID: 1, Length: 1})
		})
	}
}

// A receive that is too short for an announced message wants nothing of it.
func TestOfferTooLong(t *testing.T) {
	e, peer := faced(t)
	var r, next Request
	e.Irecv(&r, everyone{}, 0, 1, 5, make([]byte, 3))
	e.Irecv(&next, everyone{}, 0, 1, 5, make([]byte, 3))
	say(t, peer, wire.Envelope{Kind: wire.EnvelopeRTS, Tag: 5, ID: 9, Length: 6})
	say(t, peer, wire.Envelope{Kind: wire.EnvelopeData, Flags: wire.EnvelopeHead, ID: 9, Length: 4}, 1, 2, 3, 4)
	say(t, peer, wire.Envelope{Kind: wire.EnvelopeEager, Tag: 5, Length: 1}, 7)
	if got, err := wait(t, &r); !errors.Is(err, ErrTruncate) || got.Bytes != 6 {
		t.Errorf("%+v, %v", got, err)
	}
	expect(t, peer, wire.Envelope{Kind: wire.EnvelopeCTS, ID: 9})
	if got, err := wait(t, &next); err != nil || got.Bytes != 1 {
		t.Errorf("the next: %+v, %v", got, err)
	}
}

// A message that was announced or is synchronous can be taken back until a
// receive has matched it, from either end.
func TestWithdraw(t *testing.T) {
	e, peer := faced(t)
	say(t, peer, wire.Envelope{Kind: wire.EnvelopeRTS, Tag: 5, ID: 9, Length: 6})
	say(t, peer, wire.Envelope{Kind: wire.EnvelopeEager, Flags: wire.EnvelopeSynchronous, Tag: 5, ID: 10, Length: 1}, 1)
	say(t, peer, wire.Envelope{Kind: wire.EnvelopeWithdraw, ID: 9})
	expect(t, peer, wire.Envelope{Kind: wire.EnvelopeWithdrawn, ID: 9})
	var r Request
	e.Irecv(&r, everyone{}, 0, 1, 5, make([]byte, 9))
	if got, err := wait(t, &r); err != nil || got.Bytes != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	expect(t, peer, wire.Envelope{Kind: wire.EnvelopeTaken, ID: 10})
	say(t, peer, wire.Envelope{Kind: wire.EnvelopeWithdraw, ID: 10}) // too late: no answer

	var s Request
	e.Isend(&s, everyone{}, 0, 1, 5, []byte{1, 2}, Synchronous, false)
	expect(t, peer, wire.Envelope{Kind: wire.EnvelopeEager, Flags: wire.EnvelopeSynchronous, Tag: 5, ID: 1, Length: 2})
	io.ReadFull(peer, make([]byte, 2))
	s.Cancel()
	expect(t, peer, wire.Envelope{Kind: wire.EnvelopeWithdraw, ID: 1})
	say(t, peer, wire.Envelope{Kind: wire.EnvelopeWithdrawn, ID: 1})
	if got, err := wait(t, &s); err != nil || !got.Cancelled {
		t.Errorf("%+v, %v", got, err)
	}
}

// Whatever a peer says that nobody says ends its link, and nothing else.
func TestBrokenPeers(t *testing.T) {
	offer := wire.Envelope{Kind: wire.EnvelopeRTS, Tag: 1, ID: 9, Length: 6}.Append(nil)
	head := append(wire.Envelope{Kind: wire.EnvelopeData, Flags: wire.EnvelopeHead, ID: 9, Length: 4}.Append(nil), 1, 2, 3, 4)
	for name, says := range map[string][]byte{
		"asks for what was not announced":       wire.Envelope{Kind: wire.EnvelopeCTS, ID: 4, Length: 1}.Append(nil),
		"takes what was not announced":          wire.Envelope{Kind: wire.EnvelopeTaken, ID: 4}.Append(nil),
		"gives back what was not announced":     wire.Envelope{Kind: wire.EnvelopeWithdrawn, ID: 4}.Append(nil),
		"sends what was not asked for":          wire.Envelope{Kind: wire.EnvelopeData, ID: 4, Length: 1}.Append(nil),
		"sends beyond its credit":               wire.Envelope{Kind: wire.EnvelopeEager, Length: 2 << 20}.Append(nil),
		"offers twice":                          append(offer, offer...),
		"sends two heads":                       append(append(append([]byte(nil), offer...), head...), head...),
		"sends nothing of a rendezvous message": append(append([]byte(nil), offer...), wire.Envelope{Kind: wire.EnvelopeData, ID: 9}.Append(nil)...),
	} {
		t.Run(name, func(t *testing.T) {
			e, peer := faced(t)
			var r Request
			e.Irecv(&r, everyone{}, 7, 1, 5, make([]byte, 3))
			peer.Write(says)
			if _, err := wait(t, &r); !errors.Is(err, ErrProcFailed) || !errors.Is(err, wire.ErrMalformed) {
				t.Error(err)
			}
		})
	}
}

// eventually waits until something holds of an engine, without a call that would help it.
func eventually(t *testing.T, e *Engine, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; runtime.Gosched() {
		e.mu.Lock()
		does := holds()
		e.mu.Unlock()
		if does {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

// gated returns a link that writes what it was lent, and refers to it until it gets something from the gate, or that is closed.
func gated(c socket, gate chan struct{}) *bareConn {
	l := bare(c)
	l.after = func(w written) {
		if w.lent {
			<-gate
		}
	}
	return l
}

// A send whose waiter reads the link, where nothing comes any more, or sleeps, is complete when another goroutine has
// given it up, and the link has let go of its buffer.
func TestCompletedBySomebodyElse(t *testing.T) {
	mine, peer := sockets(t)
	gate := make(chan struct{})
	e := New(Config{Rank: 0, Size: 2})
	e.Attach(&link.Link{Conn: gated(mine, gate), Peer: overlay.ProcessName{Rank: 1}})
	t.Cleanup(func() { peer.Close(); e.Close() })
	open := sync.OnceFunc(func() { close(gate) })
	t.Cleanup(open)
	var r Request
	e.Isend(&r, everyone{}, 0, 1, 5, make([]byte, 100<<10), Standard, false)
	expect(t, peer, wire.Envelope{Kind: wire.EnvelopeRTS, Tag: 5, ID: 1, Length: 100 << 10})
	expect(t, peer, wire.Envelope{Kind: wire.EnvelopeData, Flags: wire.EnvelopeHead, ID: 1, Length: protocol.FirstCredit})
	done := make(chan error, 1)
	go func() { _, err := wait(t, &r); done <- err }()
	eventually(t, e, "the send is waited for", func() bool {
		p := e.peers[1]
		return r.reader != nil && p.transport.link.reading.blocked || p.transport.link.reading.waiters > 0
	})
	e.Revoke(0, 1)
	eventually(t, e, "the send is given up", func() bool { return r.GiveUp != nil })
	if r.Done() {
		t.Error("it is complete before the link has let go of its buffer")
	}
	open()
	select {
	case err := <-done:
		if !errors.Is(err, ErrRevoked) {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the waiter goes on though its request is complete")
	}
}

// A send whose peer says goodbye while a part of it is being written has no further
// part written, and fails.
func TestGoodbyeWhileMoving(t *testing.T) {
	const size = 3 << 20
	mine, peer := sockets(t)
	gate := make(chan struct{})
	e := New(Config{Rank: 0, Size: 2})
	e.Attach(&link.Link{Conn: gated(mine, gate), Peer: overlay.ProcessName{Rank: 1}})
	t.Cleanup(func() { peer.Close(); e.Close() })
	open := sync.OnceFunc(func() { close(gate) })
	t.Cleanup(open)
	var r Request
	e.Isend(&r, everyone{}, 0, 1, 5, make([]byte, size), Standard, false)
	expect(t, peer, wire.Envelope{Kind: wire.EnvelopeRTS, Tag: 5, ID: 1, Length: size})
	expect(t, peer, wire.Envelope{Kind: wire.EnvelopeData, Flags: wire.EnvelopeHead, ID: 1, Length: protocol.FirstCredit})
	io.CopyN(io.Discard, peer, protocol.FirstCredit)
	gate <- struct{}{}
	say(t, peer, wire.Envelope{Kind: wire.EnvelopeCTS, ID: 1, Length: size})
	expect(t, peer, wire.Envelope{Kind: wire.EnvelopeData, ID: 1, Length: chunk})
	say(t, peer, wire.Envelope{Kind: wire.EnvelopeGoodbye})
	eventually(t, e, "the goodbye is heard", func() bool { return r.IsEnded() })
	io.CopyN(io.Discard, peer, chunk)
	open()
	expect(t, peer, wire.Envelope{Kind: wire.EnvelopeConfirm})
	if _, err := wait(t, &r); !errors.Is(err, ErrFinalized) {
		t.Error(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.peers[1].transport.queued() {
		t.Error("more of it is to be sent")
	}
}

// A send whose link fails while a part of it is being written is complete when the write has returned,
// and not before: its buffer is read until then.
func TestLinkFailsWhileMoving(t *testing.T) {
	const size = 3 << 20
	mine, peer := sockets(t)
	gate := make(chan struct{})
	e := New(Config{Rank: 0, Size: 2})
	e.Attach(&link.Link{Conn: gated(mine, gate), Peer: overlay.ProcessName{Rank: 1}})
	t.Cleanup(func() { peer.Close(); e.Close() })
	open := sync.OnceFunc(func() { close(gate) })
	t.Cleanup(open)
	var r Request
	e.Isend(&r, everyone{}, 0, 1, 5, make([]byte, size), Standard, false)
	expect(t, peer, wire.Envelope{Kind: wire.EnvelopeRTS, Tag: 5, ID: 1, Length: size})
	expect(t, peer, wire.Envelope{Kind: wire.EnvelopeData, Flags: wire.EnvelopeHead, ID: 1, Length: protocol.FirstCredit})
	io.CopyN(io.Discard, peer, protocol.FirstCredit)
	gate <- struct{}{}
	say(t, peer, wire.Envelope{Kind: wire.EnvelopeCTS, ID: 1, Length: size})
	expect(t, peer, wire.Envelope{Kind: wire.EnvelopeData, ID: 1, Length: chunk})
	io.CopyN(io.Discard, peer, chunk)
	peer.Close()
	eventually(t, e, "the link has failed", func() bool { return e.peers[1].proto.Failed != nil })
	e.mu.Lock()
	if r.State == complete {
		t.Error("the send is complete while its buffer is being read")
	}
	e.mu.Unlock()
	open()
	if _, err := wait(t, &r); err == nil {
		t.Error("the send succeeded")
	}
}

// A link that comes after Goodbye has looked at all peers is told of it, too, whether Goodbye still waits for another one or has
// returned: its peer would take the end of the link for a failure.
func TestGoodbyeOnLateLinks(t *testing.T) {
	mine, peer := sockets(t)
	e := New(Config{Rank: 0, Size: 4})
	t.Cleanup(func() { peer.Close(); e.Close() })
	e.Attach(&link.Link{Conn: bare(mine), Peer: overlay.ProcessName{Rank: 1}})
	bye := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() { bye <- e.Goodbye(ctx) }()
	expect(t, peer, wire.Envelope{Kind: wire.EnvelopeGoodbye})
	for rank := uint32(2); rank < 4; rank++ {
		mine, late := sockets(t)
		defer late.Close()
		e.Attach(&link.Link{Conn: bare(mine), Peer: overlay.ProcessName{Rank: rank}})
		if rank == 2 {
			say(t, peer, wire.Envelope{Kind: wire.EnvelopeConfirm})
		} else {
			e.Close()
		}
		expect(t, late, wire.Envelope{Kind: wire.EnvelopeGoodbye})
		if rank == 3 {
			return
		}
		select {
		case err := <-bye:
			t.Fatalf("a link is not waited for: %v", err)
		default:
		}
		say(t, late, wire.Envelope{Kind: wire.EnvelopeConfirm})
		if err := <-bye; err != nil {
			t.Fatal(err)
		}
	}
}

// A peer that has said goodbye is told of this end's, too, and its link need not end: it may wait for others, and they for
// this process.
func TestGoodbyeToOneThatWaits(t *testing.T) {
	e, peer := faced(t)
	say(t, peer, wire.Envelope{Kind: wire.EnvelopeGoodbye})
	expect(t, peer, wire.Envelope{Kind: wire.EnvelopeConfirm})
	bye := make(chan error, 1)
	go func() { bye <- e.Goodbye(t.Context()) }()
	expect(t, peer, wire.Envelope{Kind: wire.EnvelopeGoodbye})
	say(t, peer, wire.Envelope{Kind: wire.EnvelopeConfirm})
	if err := <-bye; err != nil {
		t.Error(err)
	}
}

// A message for which there was no link yet is sent before the goodbye.
func TestGoodbyeAfterLateLink(t *testing.T) {
	const size = 100 << 10
	mine, peer := sockets(t)
	e := New(Config{Rank: 0, Size: 2, Connect: func(context.Context, int) error { return nil }})
	t.Cleanup(func() { peer.Close(); e.Close() })
	var r Request
	e.Isend(&r, everyone{}, 0, 1, 5, make([]byte, size), Buffered, true)
	bye := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() { bye <- e.Goodbye(ctx) }()
	eventually(t, e, "the program is over", func() bool { return e.core.Closed() != nil })
	e.Attach(&link.Link{Conn: bare(mine), Peer: overlay.ProcessName{Rank: 1}})
	expect(t, peer, wire.Envelope{Kind: wire.EnvelopeRTS, Tag: 5, ID: 1, Length: size})
	expect(t, peer, wire.Envelope{Kind: wire.EnvelopeData, Flags: wire.EnvelopeHead, ID: 1, Length: protocol.FirstCredit})
	io.CopyN(io.Discard, peer, protocol.FirstCredit)
	say(t, peer, wire.Envelope{Kind: wire.EnvelopeCTS, ID: 1, Length: size})
	expect(t, peer, wire.Envelope{Kind: wire.EnvelopeData, ID: 1, Length: size - protocol.FirstCredit})
	io.CopyN(io.Discard, peer, size-protocol.FirstCredit)
	say(t, peer, wire.Envelope{Kind: wire.EnvelopeTaken, ID: 1})
	expect(t, peer, wire.Envelope{Kind: wire.EnvelopeGoodbye})
	say(t, peer, wire.Envelope{Kind: wire.EnvelopeConfirm})
	if err := <-bye; err != nil {
		t.Error(err)
	}
}

// A message of a buffered send is received though its sender finalizes at once, and
// one that is never received holds nobody.
func TestBufferedBeforeGoodbye(t *testing.T) {
	e, peer := faced(t)
	var a, b Request
	e.Isend(&a, everyone{}, 0, 1, 5, make([]byte, 100<<10), Buffered, true)
	expect(t, peer, wire.Envelope{Kind: wire.EnvelopeRTS, Tag: 5, ID: 1, Length: 100 << 10})
	say(t, peer, wire.Envelope{Kind: wire.EnvelopeRTS, Tag: 5, ID: 7, Length: 1}) // for which there is no receive
	say(t, peer, wire.Envelope{Kind: wire.EnvelopeEager, Flags: wire.EnvelopeSynchronous, Tag: 9, ID: 8})
	found(t, e, 9)
	if _, err := wait(t, &a); err != nil {
		t.Fatal(err)
	}
	bye := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() { bye <- e.Goodbye(ctx) }()
	expect(t, peer, wire.Envelope{Kind: wire.EnvelopeData, Flags: wire.EnvelopeHead, ID: 1, Length: protocol.FirstCredit})
	io.CopyN(io.Discard, peer, protocol.FirstCredit)
	expect(t, peer, wire.Envelope{Kind: wire.EnvelopeCTS, ID: 7}) // not wanted
	expect(t, peer, wire.Envelope{Kind: wire.EnvelopeTaken, ID: 8})
	say(t, peer, wire.Envelope{Kind: wire.EnvelopeCTS, ID: 1, Length: 100 << 10})
	expect(t, peer, wire.Envelope{Kind: wire.EnvelopeData, ID: 1, Length: 100<<10 - protocol.FirstCredit})
	io.CopyN(io.Discard, peer, 100<<10-protocol.FirstCredit)
	e.Isend(&b, everyone{}, 0, 1, 5, nil, Standard, false)
	if _, err := wait(t, &b); !errors.Is(err, ErrFinalized) {
		t.Error(err)
	}
	say(t, peer, wire.Envelope{Kind: wire.EnvelopeTaken, ID: 1})
	expect(t, peer, wire.Envelope{Kind: wire.EnvelopeGoodbye})
	say(t, peer, wire.Envelope{Kind: wire.EnvelopeConfirm})
	if err := <-bye; err != nil {
		t.Error(err)
	}
}

// handConn reads what the test gives it, one piece for each read, also after it is closed.
type handConn struct {
	*bareConn
	begun  chan struct{} // one for each read
	pieces chan []byte   // closed: the peer has closed the link
}

func (c handConn) Read(b []byte) (int, error) {
	c.begun <- struct{}{}
	piece, ok := <-c.pieces
	if !ok {
		return 0, io.EOF
	}
	return copy(b, piece), nil
}

// A receive into whose buffer a goroutine reads ends when the peer is lost meanwhile, also where that read succeeds: nobody
// else may end it before.
func TestLostWhileRead(t *testing.T) {
	mine, peer := sockets(t)
	defer peer.Close()
	c := handConn{bare(mine), make(chan struct{}, 10), make(chan []byte)}
	e := New(Config{Rank: 0, Size: 2, Unexpected: 1 << 20})
	defer e.Close()
	defer close(c.pieces)
	e.Attach(&link.Link{Conn: c, Peer: overlay.ProcessName{Rank: 1}})
	var r Request
	e.Irecv(&r, everyone{}, 0, 1, 5, make([]byte, 100))
	<-c.begun
	c.pieces <- append(wire.Envelope{Kind: wire.EnvelopeEager, Tag: 5, Length: 100}.Append(nil), make([]byte, 10)...)
	<-c.begun
	e.MarkFailed(1, errors.New("it is silent"))
	if r.Done() {
		t.Error("it is complete while its buffer is read into")
	}
	c.pieces <- make([]byte, 10)
	if _, err := wait(t, &r); !errors.Is(err, ErrProcFailed) {
		t.Errorf("it ends with %v", err)
	}
}

// twiceConn is a link during whose last flush another failure of its peer is reported.
type twiceConn struct {
	*bareConn
	again func()
}

func (c *twiceConn) Flush(rest bool) bool {
	if again := c.again; again != nil {
		c.again = nil
		again()
	}
	return c.bareConn.Flush(rest)
}

// All processes report that one has failed, perhaps at once: it has failed once.
func TestFailureIsReportedTwice(t *testing.T) {
	mine, peer := sockets(t)
	defer peer.Close()
	c := &twiceConn{bareConn: bare(mine)}
	e := New(Config{Rank: 0, Size: 2, Unexpected: 1 << 20})
	defer e.Close()
	e.Attach(&link.Link{Conn: c, Peer: overlay.ProcessName{Rank: 1}})
	c.again = func() { e.MarkFailed(1, errors.New("another says so")) }
	e.MarkFailed(1, errors.New("one says so"))
	if dead := e.Dead(); c.again != nil || !slices.Equal(dead, []int{1}) {
		t.Errorf("dead: %v", dead)
	}
}

// busyConn is a link for which others always have more to write. It notes how it is flushed.
type busyConn struct {
	*bareConn
	flushed chan bool
}

func (c busyConn) Push() bool { c.bareConn.Push(); return true }

func (c busyConn) Flush(rest bool) bool {
	c.flushed <- rest
	return c.bareConn.Flush(rest)
}

// Who waits for a send writes what others send behind it, but not for ever. It leaves the rest to the next that waits for one,
// or to a tick.
func TestWaiterDoesNotWriteForEver(t *testing.T) {
	mine, peer := sockets(t)
	defer peer.Close()
	go io.Copy(io.Discard, peer)
	e := New(Config{Rank: 0, Size: 2, Unexpected: 1 << 20})
	defer e.Close()
	c := busyConn{bare(mine), make(chan bool, 100)}
	e.Attach(&link.Link{Conn: c, Peer: overlay.ProcessName{Rank: 1}})
	for len(c.flushed) > 0 {
		<-c.flushed
	}
	var r Request
	e.Isend(&r, everyone{}, 0, 1, 5, make([]byte, gatherBelow), Standard, true)
	e.mu.Lock()
	if err := r.wait(t.Context()); err != nil {
		t.Error(err)
	}
	if n := len(c.flushed); n > 0 || len(e.idle.left) != 1 {
		t.Errorf("it was flushed %d times, and %d links are left to others", n, len(e.idle.left))
	}
	e.mu.Unlock()
	if !<-c.flushed {
		t.Error("a tick does not have the rest written")
	}
}

// holdConn refers to what it was lent until the test lets go of it.
type holdConn struct {
	*bareConn
	asked chan struct{} // once for each question
	free  *atomic.Bool
}

func (c holdConn) Released(uint64) bool {
	if c.free.Load() {
		return true
	}
	c.asked <- struct{}{}
	return false
}

// A send that the peer has taken is complete once the link has let go of its buffer. One that is given up before, or lost with
// its peer, is over: what is begun with the same Request then is not taken for it.
func TestTakenBeforeReleased(t *testing.T) {
	for _, name := range []string{"released", "not wanted", "before a goodbye", "given up", "lost", "closed", "taken twice"} {
		t.Run(name, func(t *testing.T) {
			mine, peer := sockets(t)
			defer peer.Close()
			c := holdConn{bare(mine), make(chan struct{}, 10), new(atomic.Bool)}
			e := New(Config{Rank: 0, Size: 2, Unexpected: 1 << 20})
			defer e.Close()
			e.Attach(&link.Link{Conn: c, Peer: overlay.ProcessName{Rank: 1}})
			expect(t, peer, wire.Envelope{Kind: wire.EnvelopeCredit, Length: 1<<20 - protocol.FirstCredit})

			const n = 1 << 20
			var r Request
			e.Isend(&r, everyone{}, 0, 1, 5, make([]byte, n), Standard, false)
			expect(t, peer, wire.Envelope{Kind: wire.EnvelopeRTS, ID: 1, Tag: 5, Length: n})
			head := wire.Envelope{Kind: wire.EnvelopeData, Flags: wire.EnvelopeHead, ID: 1, Length: protocol.EagerShort}
			expect(t, peer, head)
			io.CopyN(io.Discard, peer, protocol.EagerShort)
			if name == "not wanted" {
				say(t, peer, wire.Envelope{Kind: wire.EnvelopeCTS, ID: 1})
			} else {
				say(t, peer, wire.Envelope{Kind: wire.EnvelopeCTS, ID: 1, Length: n})
				expect(t, peer, wire.Envelope{Kind: wire.EnvelopeData, ID: 1, Length: n - protocol.EagerShort})
				io.CopyN(io.Discard, peer, n-protocol.EagerShort)
				say(t, peer, wire.Envelope{Kind: wire.EnvelopeTaken, ID: 1})
			}
			<-c.asked
			if r.Done() {
				t.Fatal("it is complete before the link has let go of its buffer")
			}
			letGo := func() {
				c.free.Store(true)
				say(t, peer, wire.Envelope{Kind: wire.EnvelopeCredit}) // so that a read returns
			}
			switch name {
			case "released", "not wanted":
				letGo()
				if _, err := wait(t, &r); err != nil {
					t.Error(err)
				}
				return
			case "before a goodbye":
				say(t, peer, wire.Envelope{Kind: wire.EnvelopeGoodbye})
				eventually(t, e, "the goodbye is read", func() bool { return e.peers[1].goodbye.received })
				if r.Done() {
					t.Fatal("the peer's goodbye ends what it has taken")
				}
				letGo()
				if _, err := wait(t, &r); err != nil {
					t.Error(err)
				}
				expect(t, peer, wire.Envelope{Kind: wire.EnvelopeConfirm})
				return
			case "taken twice":
				say(t, peer, wire.Envelope{Kind: wire.EnvelopeTaken, ID: 1})
				if _, err := wait(t, &r); !errors.Is(err, wire.ErrMalformed) {
					t.Errorf("the peer takes a message twice, and that is %v", err)
				}
				return
			}
			gone, cancel := context.WithCancel(t.Context())
			cancel()
			switch name {
			case "lost":
				e.MarkFailed(1, errors.New("it is silent"))
			case "closed":
				e.Close()
			}
			if _, err := r.Wait(gone); err == nil {
				t.Fatal("it was sent before the link had let go of its buffer")
			}
			if name == "closed" {
				return
			}
			e.Irecv(&r, everyone{}, 0, 0, 6, make([]byte, 1))
			if name != "lost" {
				letGo()
			}
			eventually(t, e, "the send is over", func() bool { return len(e.peers[1].taken) == 0 && e.peers[1].proto.Unfinished() == 0 })
			if r.Done() {
				_, err := r.Result()
				t.Errorf("the receive is complete with %v, and no message has come", err)
			}
			r.Cancel()
		})
	}
}

// An eager message to which the link refers is complete as soon as somebody waits for it or asks, without a word of the peer;
// while it is being written, once that is over.
func TestTakenBack(t *testing.T) {
	for name, completes := range map[string]func(r, never *Request) bool{
		"Wait": func(r, _ *Request) bool { _, err := r.Wait(t.Context()); return err == nil },
		"Test": func(r, _ *Request) bool { return r.Done() },
		"Waitany": func(r, never *Request) bool {
			i, err := WaitAny(t.Context(), []*Request{never, r}, -1)
			return i == 1 && err == nil
		},
		"Waitany, reading": func(r, never *Request) bool {
			i, err := WaitAny(t.Context(), []*Request{never, r}, 0)
			return i == 1 && err == nil
		},
	} {
		for _, writing := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, being written: %t", name, writing), func(t *testing.T) {
				mine, peer := sockets(t)
				defer peer.Close()
				gate := make(chan struct{})
				e := New(Config{Rank: 0, Size: 2})
				defer e.Close()
				e.Attach(&link.Link{Conn: gated(mine, gate), Peer: overlay.ProcessName{Rank: 1}})
				open := sync.OnceFunc(func() { close(gate) })
				defer open()
				if !writing {
					open()
				}
				var r, never Request
				e.Irecv(&never, everyone{}, 0, 1, 6, nil)
				e.Isend(&r, everyone{}, 0, 1, 5, make([]byte, gatherBelow), Standard, false)
				expect(t, peer, wire.Envelope{Kind: wire.EnvelopeEager, Tag: 5, Length: gatherBelow})
				io.CopyN(io.Discard, peer, gatherBelow)
				if !writing {
					eventually(t, e, "it is written", func() bool { return !e.peers[1].transport.link.l.Conn.(*bareConn).isWriting() })
				}
				e.mu.Lock()
				if !r.isUncopied() {
					t.Error("it was copied")
				}
				e.mu.Unlock()
				done := make(chan bool, 1)
				go func() { done <- completes(&r, &never) }()
				if writing {
					eventually(t, e, "it is to be taken back", func() bool { return r.State == moving })
					open()
				}
				eventually(t, e, "it is complete", func() bool { return r.State == complete })
				if ok := <-done; !ok && (name != "Test" || !writing) {
					t.Error("it is not complete for who asks")
				}
			})
		}
	}
}

// An eager message that goes to the link while its waiter sleeps is taken back by who hands it over.
func TestTakenBackForSleeper(t *testing.T) {
	for name, wait := range map[string]func(r *Request) error{
		"Wait":    func(r *Request) error { _, err := r.Wait(t.Context()); return err },
		"Waitany": func(r *Request) error { _, err := WaitAny(t.Context(), []*Request{r}, -1); return err },
	} {
		t.Run(name, func(t *testing.T) {
			mine, peer := sockets(t)
			defer peer.Close()
			e := New(Config{Rank: 0, Size: 2, Connect: func(context.Context, int) error { return nil }})
			defer e.Close()
			var r, never Request
			e.Isend(&r, everyone{}, 0, 1, 5, make([]byte, gatherBelow), Standard, false)
			e.Irecv(&never, everyone{}, 0, 1, 6, nil)
			go never.Wait(t.Context()) // which reads the link
			eventually(t, e, "somebody else waits", func() bool { return e.peers[1].transport.link.reading.waiters > 0 })
			done := make(chan error, 1)
			go func() { done <- wait(&r) }()
			eventually(t, e, "it is waited for", func() bool { return r.done != nil || len(r.watchers) > 0 })
			e.Attach(&link.Link{Conn: bare(mine), Peer: overlay.ProcessName{Rank: 1}})
			eventually(t, e, "it is complete", func() bool { return r.State == complete })
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}
