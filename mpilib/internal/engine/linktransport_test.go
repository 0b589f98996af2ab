package engine

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/link/stream"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine/protocol"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine/slot"
	"github.com/isthmus-grid/isthmus/wire"
)

// lone is a transport without an engine, and what it has told.
type lone struct {
	transport
	mutex sync.Mutex
	idle  idleWatch
	core  protocol.Core
	peer  protocol.Peer

	kinds    []wire.EnvelopeKind
	payloads [][]byte // of those that are all here
	payload  []byte
	err      error
}

func (u *lone) envelope(env wire.Envelope, b []byte) (n int, err error) {
	u.kinds = append(u.kinds, env.Kind)
	u.payload = make([]byte, env.Length)
	in := &u.peer.In
	in.Left, in.Into = env.Length, u.payload
	if n = fill(in, b); in.Left == 0 {
		err = u.arrived()
	}
	return n, err
}

func (u *lone) arrived() error {
	u.payloads = append(u.payloads, u.payload)
	return nil
}

func (u *lone) bufferHandled(bool)             {}
func (u *lone) readFailed(err error)           { u.err = err }
func (u *lone) carryOut()                      {}
func (u *lone) linkLost(doing string, e error) { u.err = e }

// alone returns one, whose lock is held, and the other end of its link.
func alone(t *testing.T) (*lone, io.ReadWriteCloser) {
	mine, theirs := sockets(t)
	u := &lone{idle: idleWatch{start: make(chan struct{}, 1)}}
	u.core.Init(protocol.Config{}, 2)
	u.core.AddPeer(&u.peer, 1)
	u.proto = &u.peer
	u.link.init(t.Context(), &u.mutex, &u.idle, &u.peer, u)
	u.link.attach(&link.Link{Conn: bare(mine)})
	u.link.l.Conn.SetUser(&u.transport)
	u.mutex.Lock()
	t.Cleanup(func() { u.mutex.Unlock(); mine.Close(); theirs.Close() })
	return u, theirs
}

// Wherever the stream is cut, envelopes and what follows them come in order, and whole.
func TestLinkReadsPieces(t *testing.T) {
	var stream []byte
	stream = append(wire.Envelope{Kind: wire.EnvelopeEager, Length: 5}.Append(stream), 1, 2, 3, 4, 5)
	stream = wire.Envelope{Kind: wire.EnvelopeConfirm}.Append(stream)
	stream = append(wire.Envelope{Kind: wire.EnvelopeEager, Length: 2}.Append(stream), 6, 7)
	for cut := 1; cut < len(stream); cut++ {
		u, theirs := alone(t)
		for _, part := range [][]byte{stream[:cut], stream[cut:]} {
			if _, err := theirs.Write(part); err != nil {
				t.Fatal(err)
			}
			u.link.readOnce(false)
		}
		for len(u.payloads) < 3 && u.err == nil { // the kernel may cut it again
			u.link.readOnce(false)
		}
		want := [][]byte{{1, 2, 3, 4, 5}, {}, {6, 7}}
		if !slices.EqualFunc(u.payloads, want, slices.Equal) || u.err != nil {
			t.Fatalf("cut at %d: %v, %v, %v", cut, u.kinds, u.payloads, u.err)
		}
	}
}

// Of a waiter's request that is complete nothing more is read, so that it may post the next receive.
func TestLinkStopsForItsWaiter(t *testing.T) {
	u, theirs := alone(t)
	bell := wire.Envelope{Kind: wire.EnvelopeBell}.Append(nil)
	if _, err := theirs.Write(append(bell, bell...)); err != nil {
		t.Fatal(err)
	}
	for len(u.kinds) == 0 && u.link.in.end-u.link.in.begin < len(bell) {
		done := new(Request)
		done.State = complete
		u.link.reading.forRequest = done
		u.link.readOnce(false)
	}
	u.link.reading.forRequest = nil
	seen := len(u.kinds)
	if !u.link.hasBuffered() || seen > 0 {
		t.Fatalf("%d envelopes are handled, %d bytes are left", seen, u.link.in.end-u.link.in.begin)
	}
	for len(u.kinds) < 2 {
		u.link.readOnce(false)
	}
}

// A waiter that reads a link needs no checks, tick after tick, until it leaves: a process that waits shall sleep. While
// others take turns, and when nobody reads, they go on.
func TestWaiterNeedsNoChecks(t *testing.T) {
	u, _ := alone(t)
	if u.link.takeReading(t.Context()); !u.link.checkIdle() {
		t.Error("no checks behind a waiter that has just come: it may come and leave all the time")
	}
	if u.link.checkIdle() || len(u.link.reading.wake) > 0 {
		t.Error("checked while a waiter reads")
	}
	u.idle.runs = false
	if u.link.releaseReading(false); !u.idle.runs {
		t.Error("no checks once it has left")
	}
	if u.link.checkIdle(); len(u.link.reading.wake) == 0 {
		t.Error("nobody reads, and nobody is woken")
	}
}

// ledger is a link that notes what it is told to write, as far as it has room, and does not block.
type ledger struct {
	*bareConn
	calls []string
	room  int    // for so many calls of Append
	stale bool   // something is not with the kernel
	full  bool   // its socket takes nothing
	busy  func() // within the next Flush
}

func (c *ledger) Append(how stream.How, head, body []byte) (mark uint64, ok bool, err error) {
	if c.room == 0 || how == stream.Fresh && c.stale {
		return 0, false, nil
	}
	c.room--
	text := fmt.Sprintf("%d bytes", len(body))
	if len(body) < 10 {
		text = string(body)
	}
	if how == stream.Lend && len(body) >= gatherBelow {
		c.added += uint64(len(body))
		mark = c.added
		text += " lent"
	}
	c.calls = append(c.calls, fmt.Sprintf("%d %s", len(head), text))
	return mark, true, nil
}

func (c *ledger) Flush(rest bool) bool {
	what := "flush"
	if rest {
		what = "flush the rest"
	}
	c.calls = append(c.calls, what)
	if f := c.busy; f != nil {
		c.busy = nil
		f()
	}
	return c.full && !rest
}

func (c *ledger) Push() bool { c.calls = append(c.calls, "push"); return false }

func (c *ledger) Released(mark uint64) bool { return false }

func (c *ledger) Reclaim(from, to uint64) (next uint64, ok bool) {
	c.calls = append(c.calls, fmt.Sprintf("reclaim %d to %d", from, to))
	return min(to, from+maxCopied), !c.writes
}

// logged returns a linkTransport, whose lock is held, and its link.
func logged(t *testing.T) (*lone, *ledger) {
	u, _ := alone(t)
	c := &ledger{bareConn: u.link.l.Conn.(*bareConn), room: 100}
	u.link.l.Conn = c
	return u, c
}

// expect says what the link has been told since the last call.
func (c *ledger) expect(t *testing.T, what string, want ...string) {
	t.Helper()
	if !slices.Equal(c.calls, want) {
		t.Errorf("%s: %q, want %q", what, c.calls, want)
	}
	c.calls = nil
}

// begun returns a send of n bytes.
func begun(n int, mode Mode) *Request {
	r := &Request{e: new(Engine)}
	r.Begin(r, 0, 1, 5, make([]byte, n))
	r.IsSend, r.Mode, r.Got.Bytes = true, mode, uint64(n)
	return r
}

// A message goes to the link at once, unless something is queued before it, or the link has no room; then it follows when
// that has.
func TestLinkAppends(t *testing.T) {
	u, c := logged(t)
	say := func(text string) {
		if !u.sendSmall(protocol.EagerEnvelope(0, 5, len(text)), []byte(text)) {
			t.Fatalf("%q was not taken", text)
		}
	}
	say("first")
	c.busy = func() {
		u.mutex.Lock()
		defer u.mutex.Unlock()
		say("second")
		u.dispatch(false)
	}
	u.dispatch(false)
	c.expect(t, "an idle link", "24 first", "flush the rest", "24 second", "flush the rest")

	c.room = 0
	say("third")
	c.room = 100
	say("fourth") // behind it
	u.dispatch(true)
	c.expect(t, "a link without room", "59 ")
	u.link.push()
	c.expect(t, "who waits", "push")

	c.room = 0
	say("fifth")
	u.dispatch(false)
	c.room = 100
	u.mutex.Unlock()
	u.Writable()
	u.mutex.Lock()
	c.expect(t, "room", "29 ", "flush the rest")
	if u.queued() || u.link.unflushed {
		t.Error("something is left")
	}
}

// What is queued is handed over in order: small messages, buffers of the callers, the streams, in turns, and a bell.
func TestLinkFillsInOrder(t *testing.T) {
	u, c := logged(t)
	c.room = 0
	medium, large, head := begun(maxCopied, Copied), begun(maxCopied+1, Copied), begun(100<<10, Standard)
	first, second := begun(chunk+1, Standard), begun(chunk+1, Standard)
	u.stream(first)
	u.stream(second)
	u.link.bellDue = true
	eager := protocol.EagerEnvelope(0, 5, 1)
	if !u.sendSmall(eager, []byte{'a'}) || !u.sendEager(eager, begun(1, Standard)) || u.sendEager(eager, medium) || u.sendEager(eager, large) {
		t.Fatal("a small message was not copied, or a large one was")
	}
	u.sendHead(eager, head, 70<<10)
	c.room = 6
	u.dispatch(false)
	c.expect(t, "the first", "74 65536 bytes", "24 65537 bytes lent", "24 71680 bytes lent", "24 1048576 bytes lent", "24 1048576 bytes lent", "24 \x00", "flush the rest")
	if medium.State != complete || !large.isUncopied() || head.mark == 0 || head.uncopied {
		t.Error("a copied message is not complete, or a lent one is")
	}
	c.room = 6
	u.dispatch(false)
	c.expect(t, "the rest", "24 \x00", "24 ", "flush the rest")
}

// An eager message is lent, and complete once it is taken back, which the link may refuse; one that is to be complete at once
// is copied, if it is not too large.
func TestLinkLends(t *testing.T) {
	u, c := logged(t)
	eager := protocol.EagerEnvelope(0, 5, 0)
	if !u.sendEager(eager, begun(gatherBelow, Copied)) || !u.sendEager(eager, begun(5, Standard)) {
		t.Error("messages that are copied are not complete")
	}
	small, large := begun(gatherBelow, Standard), begun(maxCopied+1, Copied)
	if u.sendEager(eager, small) || u.sendEager(eager, large) {
		t.Error("a message that is lent is complete")
	}
	c.expect(t, "four messages", "24 16384 bytes", "24 \x00\x00\x00\x00\x00", "24 16384 bytes lent", "24 65537 bytes lent")
	c.writes = true
	u.link.takeBack(small)
	u.link.takeBack(large)
	c.expect(t, "what is being written", "reclaim 0 to 16384", "reclaim 0 to 16384", "reclaim 16384 to 81921")
	if small.State != moving || large.State != moving {
		t.Error("what is being written is complete, or may be given up")
	}
	c.writes = false
	u.mutex.Unlock()
	u.Writable()
	u.mutex.Lock()
	c.expect(t, "what was written", "flush the rest", "reclaim 0 to 16384", "reclaim 16384 to 81921", "reclaim 81920 to 81921")
	if small.State != complete || large.State != complete || len(u.link.claimed) > 0 {
		t.Errorf("what was taken back: states %d, %d", small.State, large.State)
	}
}

// An eager message that somebody waits for when it goes to the link is taken back at once: its waiter may be asleep.
func TestLinkLendsToWaiter(t *testing.T) {
	u, c := logged(t)
	c.room = 0
	r := begun(gatherBelow, Standard)
	u.sendEager(protocol.EagerEnvelope(0, 5, 0), r)
	r.hold, c.room = true, 1
	u.dispatch(false)
	c.expect(t, "it", "24 16384 bytes lent", "flush the rest", "reclaim 0 to 16384")
	if r.State != complete {
		t.Errorf("state %d", r.State)
	}
}

// A synchronous message is complete when the peer says so, and not when the link has let go of it.
func TestLinkLendsSynchronous(t *testing.T) {
	u, _ := logged(t)
	r := begun(gatherBelow, Synchronous)
	if !u.sendEager(protocol.EagerEnvelope(0, 5, gatherBelow), r) || r.mark == 0 || r.uncopied {
		t.Errorf("mark %d, complete without the peer: %t", r.mark, r.uncopied)
	}
}

// A value goes once the kernel has all before it, and messages wait for it when many have gone before.
func TestLinkKeepsMessagesBehindValues(t *testing.T) {
	u, c := logged(t)
	u.values = new(slot.Queue)
	out := &slot.Out{Max: 100}
	u.values.Reset(out, 100)
	out.Replace(append(make([]byte, slot.Header), "value"...))
	u.values.Update(out)
	c.stale, c.room = true, 1<<20
	const n = maxCopied
	sent := 0
	for len(u.queue.entries) == 0 && sent <= maxAhead/n {
		u.sendEager(protocol.EagerEnvelope(0, 5, n), begun(n, Standard))
		u.dispatch(false)
		sent++
	}
	if sent != maxAhead/n+1 {
		t.Errorf("the %dth message waits for the value", sent)
	}
	c.calls, c.stale = nil, false
	u.dispatch(false)
	c.expect(t, "the value goes", "24 13 bytes", "24 65536 bytes lent", "flush the rest")

	out.Replace(append(make([]byte, slot.Header), "another"...))
	u.values.Update(out)
	c.stale = true
	for len(u.queue.entries) == 0 {
		u.sendEager(protocol.EagerEnvelope(0, 5, n), begun(n, Standard))
		u.dispatch(false)
	}
	c.calls = nil
	u.values.Clear()
	u.dispatch(false)
	c.expect(t, "there is no value any more", "24 65536 bytes lent", "flush the rest")
}

// What the socket does not take is left: to a waiter of a send, to the next flush, and after a tick, or when somebody else
// waits, to a goroutine of the stream.
func TestLinkLeavesTheRest(t *testing.T) {
	u, c := logged(t)
	c.full = true
	say := func() {
		u.sendSmall(protocol.EagerEnvelope(0, 5, 1), []byte{'a'})
		u.dispatchNow()
	}
	say()
	say()
	c.expect(t, "a full socket", "24 a", "flush", "24 a", "flush")
	if !slices.Equal(u.idle.left, []*linkTransport{&u.link}) || !u.idle.runs {
		t.Errorf("%d links are left, and checked: %v", len(u.idle.left), u.idle.runs)
	}
	u.idle.writeLeft()
	c.expect(t, "after a tick", "flush the rest")
	u.idle.writeLeft()
	c.expect(t, "nothing is left")
	say()
	u.link.push()
	u.idle.writeLeft()
	c.expect(t, "a waiter's", "24 a", "flush", "push")
}

// A link that is over, while the ring is not, is given nothing: it would say again and again that it is.
func TestLostLinkGetsNothing(t *testing.T) {
	u, c := logged(t)
	u.link.lost, u.link.bellDue = true, true
	u.queue.add(wire.Envelope{Kind: wire.EnvelopeSwitch}, nil, false)
	u.dispatch(false)
	c.expect(t, "a lost link")
}

// Nothing is handed over as a whole that a link's window may never have room for.
func TestLinkGetsNoMoreThanItsWindow(t *testing.T) {
	u, c := logged(t)
	u.link.l.RTT = time.Second
	u.peer.CreditReceived(wire.Envelope{Length: 1 << 30})
	if n, head := u.eagerLimit(), u.maxHead(); n != maxWhole || head != maxWhole {
		t.Errorf("messages of %d bytes are sent eagerly, and heads of %d", n, head)
	}
	u.send(wire.Envelope{Kind: wire.EnvelopeReplica, Length: 2 * chunk}, make([]byte, 2*chunk))
	c.room = 2
	u.dispatch(false)
	c.room = 2
	u.send(wire.Envelope{Kind: wire.EnvelopeGoodbye}, nil)
	u.dispatch(false)
	c.expect(t, "a large note", "1048576 ", "1048576 ", "flush the rest", "48 ", "flush the rest")
}
