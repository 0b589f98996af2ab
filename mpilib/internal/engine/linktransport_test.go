package engine

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"

	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine/protocol"
	"github.com/isthmus-grid/isthmus/wire"
)

// lone is a linkTransport without an engine, and what it has told.
type lone struct {
	linkTransport
	mutex sync.Mutex
	idle  idleWatch
	peer  protocol.Peer

	kinds    []wire.EnvelopeKind
	payloads [][]byte // of those that are all here
	payload  []byte
	written  []*Request
	last     []bool
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
func (u *lone) flush()                         {}
func (u *lone) linkLost(doing string, e error) { u.err = e }

// user keeps linkUser's written apart from the field of that name.
type user struct{ *lone }

func (u user) written(r *Request, last bool) {
	u.lone.written, u.last = append(u.lone.written, r), append(u.last, last)
}

// alone returns one, whose lock is held, and the other end of its link.
func alone(t *testing.T) (*lone, io.ReadWriteCloser) {
	mine, theirs := sockets(t)
	u := &lone{idle: idleWatch{start: make(chan struct{}, 1)}}
	u.linkTransport.init(t.Context(), &u.mutex, &u.idle, &u.peer, user{u})
	u.attach(&link.Link{Conn: bareConn{mine}})
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
			u.readOnce(false)
		}
		for len(u.payloads) < 3 && u.err == nil { // the kernel may cut it again
			u.readOnce(false)
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
	for len(u.kinds) == 0 && u.in.end-u.in.begin < len(bell) {
		done := new(Request)
		done.State = complete
		u.reading.forRequest = done
		u.readOnce(false)
	}
	u.reading.forRequest = nil
	seen := len(u.kinds)
	if !u.hasBuffered() || seen > 0 {
		t.Fatalf("%d envelopes are handled, %d bytes are left", seen, u.in.end-u.in.begin)
	}
	for len(u.kinds) < 2 {
		u.readOnce(false)
	}
}

// A waiter that reads a link needs no checks, tick after tick, until it leaves: a process that waits shall sleep. While
// others take turns, and when nobody reads, they go on.
func TestWaiterNeedsNoChecks(t *testing.T) {
	u, _ := alone(t)
	if u.takeReading(t.Context()); !u.checkIdle() {
		t.Error("no checks behind a waiter that has just come: it may come and leave all the time")
	}
	if u.checkIdle() || len(u.reading.wake) > 0 {
		t.Error("checked while a waiter reads")
	}
	u.idle.runs = false
	if u.releaseReading(false); !u.idle.runs {
		t.Error("no checks once it has left")
	}
	if u.checkIdle(); len(u.reading.wake) == 0 {
		t.Error("nobody reads, and nobody is woken")
	}
}

// What is queued is written in order: small messages, buffers of the callers, and last the
// streams, in turns. Of each buffer its owner learns.
func TestLinkWritesInOrder(t *testing.T) {
	u, theirs := alone(t)
	large, first, second := new(Request), new(Request), new(Request)
	large.Begin(large, 0, 1, 5, make([]byte, gatherBelow))
	for _, r := range []*Request{first, second} {
		r.Begin(r, 0, 1, 5, make([]byte, chunk+1))
		r.Got.Bytes = chunk + 1
		u.stream(r)
	}
	first.ID, second.ID = 1, 2
	eager := protocol.EagerEnvelope(0, 5, 1)
	copied := u.sendSmall(eager, []byte{9}) && u.sendEager(eager, &Request{Request: protocol.Request{Buf: []byte{8}}})
	if !copied || u.sendEager(protocol.EagerEnvelope(0, 5, gatherBelow), large) {
		t.Fatal("a small message was not copied, or a large one was")
	}
	var got []wire.Envelope
	done := make(chan error, 1)
	go func() { // a link that nobody reads takes no more
		for range 7 {
			var head [wire.EnvelopeLen]byte
			if _, err := io.ReadFull(theirs, head[:]); err != nil {
				done <- err
				return
			}
			env, err := wire.ParseEnvelope(head[:])
			if err != nil {
				done <- err
				return
			}
			got = append(got, env)
			if _, err := io.CopyN(io.Discard, theirs, int64(env.Length)); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for u.writable() {
		u.write()
	}
	if err := errors.Join(<-done, u.err); err != nil {
		t.Fatal(err)
	}
	data := func(id uint32, n uint64) wire.Envelope {
		return wire.Envelope{Kind: wire.EnvelopeData, ID: id, Length: n}
	}
	want := []wire.Envelope{eager, eager, protocol.EagerEnvelope(0, 5, gatherBelow), data(1, chunk), data(2, chunk), data(1, 1), data(2, 1)}
	if !slices.Equal(got, want) {
		t.Errorf("written:\n%+v\nwant\n%+v", got, want)
	}
	if !slices.Equal(u.written, []*Request{large, first, second, first, second}) || !slices.Equal(u.last, []bool{true, false, false, false, false}) {
		t.Errorf("%d requests are said to be written, last: %v", len(u.written), u.last)
	}
}

// ledger is a link that notes what it is told to write, and does not block.
type ledger struct {
	bareConn
	calls   []string
	refuses bool
	busy    func() // within the next Flush
}

func (c *ledger) Append(head, body []byte) (bool, error) {
	if c.refuses {
		return false, nil
	}
	c.calls = append(c.calls, fmt.Sprintf("append %d %s", len(head), body))
	return true, nil
}

func (c *ledger) Flush() {
	c.calls = append(c.calls, "flush")
	if f := c.busy; f != nil {
		c.busy = nil
		f()
	}
}

func (c *ledger) Post(p []byte) (bool, error) {
	c.calls = append(c.calls, fmt.Sprintf("post %s", p[wire.EnvelopeLen:]))
	return true, nil
}

// A small message goes to the link at once, also while another is being written, unless something is queued before it or is
// being taken out of the queue, or the link has no room.
func TestLinkAppendsSmallMessages(t *testing.T) {
	u, _ := alone(t)
	c := &ledger{bareConn: u.l.Conn.(bareConn)}
	u.l.Conn = c
	say := func(text string) {
		if !u.sendSmall(protocol.EagerEnvelope(0, 5, len(text)), []byte(text)) {
			t.Fatalf("%q was not taken", text)
		}
	}
	expect := func(what string, want ...string) {
		t.Helper()
		if !slices.Equal(c.calls, want) {
			t.Errorf("%s: %q, want %q", what, c.calls, want)
		}
		c.calls = nil
	}
	say("first")
	c.busy = func() {
		u.mutex.Lock()
		defer u.mutex.Unlock()
		say("second")
		u.dispatch(false)
	}
	u.dispatch(false)
	expect("an idle link", "append 24 first", "flush", "append 24 second", "flush")

	c.refuses = true
	say("third")
	c.refuses = false
	say("fourth") // behind it
	u.dispatch(false)
	expect("a link without room", "post third"+string(protocol.EagerEnvelope(0, 5, 6).Append(nil))+"fourth")

	u.writing.busy = true
	say("fifth")
	u.writing.busy = false
	u.dispatch(false)
	expect("a link to which another goroutine takes the queue", "post fifth")
	if u.queued() || u.unflushed {
		t.Error("something is left")
	}
}
