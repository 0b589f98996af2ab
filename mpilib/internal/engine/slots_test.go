package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine/slot"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// apart returns two engines with sockets in the place of their link; conn wraps that of the first.
func apart(t testing.TB, conn func(*bareConn) link.Conn) (es [2]*Engine, conns [2]*net.TCPConn) {
	t.Helper()
	conns[0], conns[1] = sockets(t)
	for i := range es {
		es[i] = New(Config{Rank: i, Size: 2, Unexpected: 1 << 20, Connect: func(context.Context, int) error { return nil }})
		t.Cleanup(es[i].Close)
	}
	es[0].Attach(&link.Link{Conn: conn(bare(conns[0])), Peer: overlay.ProcessName{Rank: 1}})
	es[1].Attach(&link.Link{Conn: bare(conns[1]), Peer: overlay.ProcessName{Rank: 0}})
	return es, conns
}

func plain(c *bareConn) link.Conn { return c }

// slotOf returns both ends of a slot from es[0] to es[1].
func slotOf(t testing.TB, es [2]*Engine, max int) (*PutSlot, *GetSlot) {
	t.Helper()
	g, err := NewGetSlot(es[1], 2, 0, 7, max)
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewPutSlot(es[0], everyone{}, 2, 1, 7, max)
	if err != nil {
		t.Fatal(err)
	}
	return p, g
}

// valueOf fills b with what value i has.
func valueOf(b []byte, i uint64) []byte {
	n := min(len(b), 256)
	for k := range b[:n] {
		b[k] = byte(i*31 + uint64(k))
	}
	repeat(b, n)
	return b
}

// repeat fills b with its first n bytes. A race detector takes long for a loop over all of them.
func repeat(b []byte, n int) {
	for n < len(b) {
		n += copy(b[n:], b[:n])
	}
}

func await(t testing.TB, g *GetSlot, number uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := g.Await(ctx, number); err != nil {
		t.Fatal(err)
	}
}

// streamValues puts n values as fast as it can while the peer gets, and checks what that sees: whole values, whose
// numbers never fall, and at the end the last one. All values are accounted for.
func streamValues(t *testing.T, es [2]*Engine, size int, n uint64) {
	t.Helper()
	p, g := slotOf(t, es, size)
	defer g.Close()
	failed := make(chan error, 1)
	go func() {
		b := make([]byte, size)
		for i := uint64(1); i <= n; i++ {
			length := size - int(i)%2*(size/2) // the length of a slot's values may change
			if err := p.Put(i, valueOf(b[:length], i)); err != nil {
				failed <- err
				return
			}
		}
		failed <- nil
	}()
	got, want := make([]byte, size), make([]byte, size)
	for last := uint64(0); last < n; {
		await(t, g, last)
		number, length := g.Get(got)
		if number <= last || length != size-int(number)%2*(size/2) || !bytes.Equal(got[:length], valueOf(want[:length], number)) {
			t.Fatalf("after value %d: value %d of %d bytes, or its bytes are not whole", last, number, length)
		}
		last = number
		if again, _ := g.Get(got); again < last {
			t.Fatalf("value %d after value %d", again, last)
		}
	}
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	out, in := p.Counts(), g.Counts()
	if out.Put != n || out.Sent+out.Overwritten != n || in.Received != out.Sent || in.Dropped != 0 {
		t.Errorf("%+v put, %+v got", out, in)
	}
}

func TestSlotOverLink(t *testing.T) {
	for _, size := range []int{0, 1, 1000, maxPiece - slot.Header, maxPiece, 1 << 20} {
		es, _ := apart(t, plain)
		streamValues(t, es, max(size, 1), uint64(sweep(60, 150)))
	}
}

// While a link is busy with one value the next ones replace each other: the peer gets the first and the last.
func TestSlotOverwrites(t *testing.T) {
	allow, begun := make(chan struct{}), make(chan struct{}, 100) // one for each value
	es, _ := apart(t, func(c *bareConn) link.Conn {
		c.before = func(w written) {
			if wire.EnvelopeKind(w.b[0]) == wire.EnvelopeValue {
				begun <- struct{}{}
				<-allow
			}
		}
		return c
	})
	t.Cleanup(func() { close(allow) })
	p, g := slotOf(t, es, 8)
	put := func(i uint64) {
		if err := p.Put(i, valueOf(make([]byte, 8), i)); err != nil {
			t.Fatal(err)
		}
	}
	put(1)
	<-begun
	for i := uint64(2); i <= 100; i++ {
		put(i) // would block here if it waited for the link
	}
	if got := p.Counts(); got != (slot.PutCounts{Put: 100, Overwritten: 98, Sent: 1}) {
		t.Errorf("before the link goes on: %+v", got)
	}
	for _, want := range []uint64{1, 100} {
		allow <- struct{}{}
		await(t, g, want-1)
		if number, n := g.Get(nil); number != want || n != 8 {
			t.Errorf("got value %d of %d bytes, want value %d", number, n, want)
		}
	}
	if out, in := p.Counts(), g.Counts(); out.Sent != 2 || in != (slot.GetCounts{Received: 2}) {
		t.Errorf("%+v put, %+v got", out, in)
	}
}

// Messages go between the pieces of a value, and while values are put all the time.
func TestMessagesPassValues(t *testing.T) {
	es, _ := apart(t, plain)
	p, _ := slotOf(t, es, 4<<20)
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		b := make([]byte, 4<<20)
		for i := uint64(1); ; i++ {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			if err := p.Put(i, b); err != nil {
				done <- err
				return
			}
		}
	}()
	for i := range 50 {
		var s, r Request
		es[1].Irecv(&r, everyone{}, 2, 0, i, make([]byte, 100<<10))
		es[0].Isend(&s, everyone{}, 2, 1, i, make([]byte, 100<<10), Standard, true)
		if _, err := wait(t, &s); err != nil {
			t.Fatal(err, ended(es[0]), ended(es[1]))
		}
		if _, err := wait(t, &r); err != nil {
			t.Fatal(err, ended(es[0]), ended(es[1]))
		}
	}
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// What is put before the peer has opened its end waits for that, and only the newest does.
func TestSlotOpensLate(t *testing.T) {
	es, _ := apart(t, plain)
	p, err := NewPutSlot(es[0], everyone{}, 2, 1, 7, 8)
	if err != nil {
		t.Fatal(err)
	}
	for i := uint64(1); i <= 3; i++ {
		if err := p.Put(i, nil); err != nil {
			t.Fatal(err)
		}
	}
	g, err := NewGetSlot(es[1], 2, 0, 7, 8)
	if err != nil {
		t.Fatal(err)
	}
	await(t, g, 0)
	if number, _ := g.Get(nil); number != 3 || p.Counts() != (slot.PutCounts{Put: 3, Overwritten: 2, Sent: 1}) {
		t.Errorf("got value %d, %+v", number, p.Counts())
	}
	g.Close()
	if err := g.Err(); !errors.Is(err, ErrSlot) {
		t.Errorf("closed: %v", err)
	}
	if g, err = NewGetSlot(es[1], 2, 0, 7, 8); err != nil { // and opens again
		t.Fatal(err)
	}
	if err := p.Put(4, nil); err != nil {
		t.Fatal(err)
	}
	await(t, g, 0)
	if number, _ := g.Get(nil); number != 4 {
		t.Errorf("opened again: value %d", number)
	}
}

// A lost peer ends its slots at once, and what was got stays.
func TestSlotLosesItsPeer(t *testing.T) {
	es, conns := apart(t, plain)
	p, g := slotOf(t, es, 8)
	if err := p.Put(1, nil); err != nil {
		t.Fatal(err)
	}
	await(t, g, 0)
	waiting := make(chan error, 1)
	go func() { waiting <- g.Await(t.Context(), 1) }()
	conns[0].Close()
	if err := <-waiting; !errors.Is(err, ErrProcFailed) {
		t.Errorf("a wait for the next value: %v", err)
	}
	if number, _ := g.Get(nil); number != 1 {
		t.Errorf("got value %d", number)
	}
	if _, err := NewGetSlot(es[1], 2, 0, 8, 8); !errors.Is(err, ErrProcFailed) {
		t.Errorf("another slot: %v", err)
	}
	ended := func() error { // the other end learns of it as well
		_, err := NewPutSlot(es[0], everyone{}, 2, 1, 9, 8)
		return err
	}
	for end := time.Now().Add(30 * time.Second); ended() == nil && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if err := p.Put(2, nil); !errors.Is(err, ErrProcFailed) {
		t.Errorf("a Put: %v", err)
	}
}

func TestSlotRules(t *testing.T) {
	es, _ := apart(t, plain)
	p, _ := slotOf(t, es, 8)
	if err := p.Put(2, nil); err != nil {
		t.Fatal(err)
	}
	for _, number := range []uint64{0, 1, 2} {
		if err := p.Put(number, nil); !errors.Is(err, ErrSlot) {
			t.Errorf("value %d after value 2: %v", number, err)
		}
	}
	if err := p.Put(3, make([]byte, 9)); !errors.Is(err, ErrSlot) {
		t.Errorf("too long: %v", err)
	}
	if _, err := NewPutSlot(es[0], everyone{}, 2, 0, 7, 8); !errors.Is(err, ErrSlot) {
		t.Errorf("to itself: %v", err)
	}
	if _, err := NewGetSlot(es[1], 2, 0, 7, 8); !errors.Is(err, ErrSlot) {
		t.Errorf("opened twice: %v", err)
	}
}

// piece is one of a value as a peer may send it.
func piece(number uint64, at int, last bool, n int) (wire.Envelope, []byte) {
	value := append(binary.BigEndian.AppendUint64(nil, number), make([]byte, at+n)...)
	env := wire.Envelope{Kind: wire.EnvelopeValue, Context: 2, Tag: 7, ID: uint32(at), Length: uint64(n)}
	if last {
		env.Flags = wire.EnvelopeLast
	}
	return env, value[at : at+n]
}

// Pieces without a slot, out of order, too long or too old are dropped, and the peer lives on.
func TestSlotDrops(t *testing.T) {
	e, peer := faced(t)
	send := func(number uint64, at int, last bool, n int) {
		env, b := piece(number, at, last, n)
		say(t, peer, env, b...)
	}
	send(9, 0, true, 8) // there is no slot
	say(t, peer, wire.Envelope{Kind: wire.EnvelopeEager})
	var r Request
	e.Irecv(&r, everyone{}, 0, 1, 0, nil)
	if _, err := wait(t, &r); err != nil {
		t.Fatal(err)
	}
	g, err := NewGetSlot(e, 2, 1, 7, 100)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, peer, wire.Envelope{Kind: wire.EnvelopeSlot, Context: 2, Tag: 7, Length: 100})
	send(1, 0, false, 50)
	send(1, 50, true, 10)
	await(t, g, 0)
	send(5, 0, false, 50)
	send(5, 60, true, 10) // does not continue it
	send(6, 50, true, 10) // nor does this begin one
	send(1, 0, true, 8)   // has been here
	send(7, 0, true, 109) // too long
	send(8, 0, true, 4)   // has no number
	send(2, 0, true, 108)
	await(t, g, 1)
	if number, n := g.Get(nil); number != 2 || n != 100 || g.Counts() != (slot.GetCounts{Received: 2, Overwritten: 1, Dropped: 5}) {
		t.Errorf("value %d of %d bytes, %+v", number, n, g.Counts())
	}
}

// A peer may open so many slots, and no more.
func TestSlotsOfAPeerAreBounded(t *testing.T) {
	e, peer := faced(t)
	for tag := range uint32(maxSlots + 1) {
		say(t, peer, wire.Envelope{Kind: wire.EnvelopeSlot, Tag: tag, Length: 8})
	}
	var r Request
	e.Irecv(&r, everyone{}, 0, 1, 0, nil)
	if _, err := wait(t, &r); !errors.Is(err, wire.ErrMalformed) {
		t.Errorf("%d slots: %v", maxSlots+1, err)
	}
}

// ended says why an engine of two has lost the other, or returns nil.
func ended(e *Engine) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.peers[1-e.Rank()].proto.Failed
}
