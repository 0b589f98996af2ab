package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/ipc/shm"
	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// neighbours returns two engines with sockets in the place of their link, before
// these are attached to them.
func neighbours(t testing.TB, unexpected int) (es [2]*Engine, conns [2]*net.TCPConn, attach func()) {
	t.Helper()
	conns[0], conns[1] = sockets(t)
	for i := range es {
		es[i] = New(Config{Rank: i, Size: 2, Unexpected: unexpected, SharedMemory: true,
			Connect: func(context.Context, int) error { return nil }})
		t.Cleanup(es[i].Close)
	}
	return es, conns, func() {
		for i := range es {
			es[i].Attach(&link.Link{Conn: bare(conns[i]), Peer: overlay.ProcessName{Rank: uint32(1 - i)}})
		}
	}
}

// settle waits until both engines say whether they share memory.
func settle(t testing.TB, es [2]*Engine, shared bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; runtime.Gosched() {
		n := 0
		for _, e := range es {
			if l := e.Links()[0]; shared && l.Shared || !shared && l.Reason != nil {
				n++
			}
		}
		if n == 2 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after 30 s: %+v, %+v; %v, %v", es[0].Links()[0], es[1].Links()[0], ended(es[0]), ended(es[1]))
		}
	}
}

// together returns two engines that share memory.
func together(t testing.TB) (es [2]*Engine, conns [2]*net.TCPConn) {
	t.Helper()
	es, conns, attach := neighbours(t, 1<<20)
	attach()
	settle(t, es, true)
	return es, conns
}

// numbered fills b with what message i has.
func numbered(b []byte, i int) []byte {
	valueOf(b, uint64(i))
	if len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, uint64(i))
	}
	return b
}

// streamOf sends count messages of many sizes to the other engine and receives as
// many from it, all in order.
func streamOf(ctx context.Context, e *Engine, seed uint64, count int) error {
	peer := 1 - e.Rank()
	sizes := func() func() int {
		r := rand.New(rand.NewPCG(seed, 0))
		return func() int {
			switch r.IntN(8) {
			case 0:
				return r.IntN(100 << 10)
			case 1:
				return r.IntN(40 << 10)
			}
			return r.IntN(200)
		}
	}
	sent := make(chan error, 1)
	go func() {
		size := sizes()
		var rs []*Request
		for i := range count {
			r := new(Request)
			mode := Mode(i % 3)
			e.Isend(r, everyone{}, 0, peer, i, numbered(make([]byte, size()), i), mode, false)
			if rs = append(rs, r); len(rs) == 50 || i == count-1 {
				for _, r := range rs {
					if _, err := r.Wait(ctx); err != nil {
						sent <- fmt.Errorf("send %d of %d: %w", i, count, err)
						return
					}
				}
				rs = rs[:0]
			}
		}
		sent <- nil
	}()
	size := sizes()
	buf, want := make([]byte, 100<<10), make([]byte, 100<<10)
	for i := range count {
		n := size()
		var r Request
		src := peer
		if i%2 == 0 {
			src = AnySource
		}
		e.Irecv(&r, everyone{}, 0, src, AnyTag, buf)
		got, err := r.Wait(ctx)
		if err != nil || got != (Result{Source: peer, Tag: i, Bytes: uint64(n)}) {
			return fmt.Errorf("receive %d of %d bytes: %+v, %w", i, n, got, err)
		}
		if !bytes.Equal(buf[:n], numbered(want[:n], i)) {
			return fmt.Errorf("message %d of %d bytes came damaged", i, n)
		}
	}
	return <-sent
}

// streams has both engines stream at once.
func streams(t *testing.T, es [2]*Engine, count int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	errs := make(chan error, 2)
	for _, e := range es {
		go func() { errs <- streamOf(ctx, e, uint64(count), count) }()
	}
	for range es {
		if err := <-errs; err != nil {
			t.Error(err)
			cancel()
		}
	}
}

// No message is overtaken by another while the two engines change from the link
// to shared memory, however much is under way then.
func TestOrderAcrossSwitch(t *testing.T) {
	for _, unexpected := range []int{0, 16 << 20} {
		for round := range sweep(6, 20) {
			es, _, attach := neighbours(t, unexpected)
			go attach()
			streams(t, es, 200+round)
			settle(t, es, true)
		}
	}
}

// Memory that is there only when all is sent and who sent it is gone, is shared all the same.
func TestSwitchAfterAll(t *testing.T) {
	es, _, attach := neighbours(t, 0)
	sent := make(chan struct{})
	es[0].sharing.create = func(data int) (*shm.Segment, error) { <-sent; return shm.Create(data) }
	attach()
	streams(t, es, 100)
	close(sent)
	settle(t, es, true)
	streams(t, es, 100)
}

// Two engines of which one cannot make or map memory stay with their link, and say why.
func TestMemoryRefused(t *testing.T) {
	no := errors.New("not today")
	create := func(int) (*shm.Segment, error) { return nil, no }
	open := func(shm.Descriptor) (*shm.Segment, error) { return nil, no }
	for name, refuse := range map[string]func(es [2]*Engine){
		"created":             func(es [2]*Engine) { es[0].sharing.create = create },
		"opened":              func(es [2]*Engine) { es[1].sharing.open = open },
		"wanted by the lower": func(es [2]*Engine) { es[1].cfg.SharedMemory = false },
	} {
		t.Run(name, func(t *testing.T) {
			es, _, attach := neighbours(t, 1<<20)
			refuse(es)
			attach()
			streams(t, es, 300)
			settle(t, es, false)
			told := fmt.Sprint(es[0].Links()[0].Reason, es[1].Links()[0].Reason)
			if !strings.Contains(told, "the peer could not") || !strings.Contains(told, "not today") && !strings.Contains(told, "switched off") {
				t.Error(told)
			}
		})
	}
}

// asleep waits until an engine's rings are announced to be asleep.
func asleep(t *testing.T, e *Engine) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; runtime.Gosched() {
		e.mu.Lock()
		is := e.rings.asleep && !e.rings.polling
		e.mu.Unlock()
		if is {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the rings are awake after 30 s")
		}
	}
}

// Who sleeps for a message is woken by it, and so is an engine in which nobody waits.
func TestBell(t *testing.T) {
	es, _ := together(t)
	asleep(t, es[0])
	var r, s Request
	es[1].Isend(&s, everyone{}, 0, 0, 5, []byte{1}, Synchronous, false)
	probed(t, es[0], true, Result{Source: 1, Tag: 5, Bytes: 1})
	asleep(t, es[1])
	es[0].Irecv(&r, everyone{}, 0, 1, 5, make([]byte, 1))
	if _, err := wait(t, &s); err != nil { // which nobody polls for at the other side
		t.Error(err)
	}
	done := make(chan error, 1)
	var late, later Request
	es[0].Irecv(&late, everyone{}, 0, AnySource, 6, make([]byte, 1))
	go func() { _, err := wait(t, &late); done <- err }()
	eventually(t, es[0], "it sleeps, and somebody waits", func() bool { return es[0].rings.waiters > 0 && es[0].rings.asleep })
	es[1].Isend(&later, everyone{}, 0, 0, 6, []byte{1}, Standard, false)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// The end of a peer's link fails who waits, spinning or asleep, but not before
// what the peer sent has come.
func TestPeerEndsInSharedMemory(t *testing.T) {
	for _, sleeps := range []bool{false, true} {
		t.Run(fmt.Sprint("asleep=", sleeps), func(t *testing.T) {
			es, conns := together(t)
			var sent, first, second Request
			es[0].Irecv(&second, everyone{}, 0, 1, 9, make([]byte, 1))
			done := make(chan error, 1)
			if sleeps {
				asleep(t, es[0])
			}
			go func() { _, err := wait(t, &second); done <- err }()
			es[1].Isend(&sent, everyone{}, 0, 0, 5, []byte{7}, Standard, false)
			conns[1].Close()
			if err := <-done; !errors.Is(err, ErrProcFailed) || !strings.Contains(err.Error(), "receiving") {
				t.Error(err)
			}
			buf := make([]byte, 1)
			es[0].Irecv(&first, everyone{}, 0, 1, 5, buf)
			if _, err := wait(t, &first); err != nil || buf[0] != 7 {
				t.Errorf("the message before the end: %v, %v", buf, err)
			}
		})
	}
}

// Whatever a peer writes into shared memory that nobody writes ends it, and nothing
// else.
func TestBrokenPeersInSharedMemory(t *testing.T) {
	record := func(env wire.Envelope, payload int) func(p *peer) {
		var head [shm.HeadSize]byte
		env.Append(head[:0])
		return func(p *peer) { p.transport.ring.trySend(&head, make([]byte, payload)) }
	}
	for name, does := range map[string]func(p *peer){
		"no envelope":         func(p *peer) { p.transport.ring.trySend(&[shm.HeadSize]byte{99}) },
		"a message too short": record(wire.Envelope{Kind: wire.EnvelopeEager, Length: 8}, 7),
		"a message too long":  record(wire.Envelope{Kind: wire.EnvelopeEager, Length: 8}, 9),
		"more than it says":   record(wire.Envelope{Kind: wire.EnvelopeConfirm}, 1),
		"a bell":              record(wire.Envelope{Kind: wire.EnvelopeBell}, 0),
		"a switch":            record(wire.Envelope{Kind: wire.EnvelopeSwitch}, 0),
		"an answer to nobody": record(wire.Envelope{Kind: wire.EnvelopeTaken, ID: 4}, 0),
	} {
		t.Run(name, func(t *testing.T) {
			es, _ := together(t)
			var r Request
			es[0].Irecv(&r, everyone{}, 0, 1, 5, make([]byte, 1))
			es[1].mu.Lock()
			p := es[1].peers[0]
			does(p)
			p.transport.dispatch(false)
			es[1].mu.Unlock()
			if _, err := wait(t, &r); !errors.Is(err, ErrProcFailed) || !errors.Is(err, wire.ErrMalformed) {
				t.Error(err)
			}
		})
	}
}

// A peer that has switched to shared memory says nothing over the link any more but bells: a message
// there would be mixed with one from the ring.
func TestMessageBehindSwitch(t *testing.T) {
	for name, env := range map[string]wire.Envelope{
		"a whole one": {Kind: wire.EnvelopeEager, Tag: 5},
		"a part":      {Kind: wire.EnvelopeEager, Tag: 5, Length: 3},
		"an answer":   {Kind: wire.EnvelopeConfirm},
	} {
		t.Run(name, func(t *testing.T) {
			es, conns := together(t)
			var r Request
			es[0].Irecv(&r, everyone{}, 0, 1, 6, make([]byte, 1))
			if _, err := conns[1].Write(env.Append(nil)); err != nil {
				t.Fatal(err)
			}
			if _, err := wait(t, &r); !errors.Is(err, ErrProcFailed) || !errors.Is(err, wire.ErrMalformed) {
				t.Error(err)
			}
		})
	}
}

// late is a link whose first read returns all that a peer says until it has switched to shared memory (three envelopes, one with a descriptor), and only
// once the gate is open.
type late struct {
	*bareConn
	first      *sync.Once
	read, gate chan struct{}
}

func (c late) Read(b []byte) (n int, err error) {
	c.first.Do(func() {
		n, err = io.ReadFull(c.bareConn, b[:3*wire.EnvelopeLen+shm.DescriptorSize])
		close(c.read)
		<-c.gate
	})
	if n > 0 || err != nil {
		return n, err
	}
	return c.bareConn.Read(b)
}

// The ring of a peer that failed while its Switch was read is not polled: the message in it is not for anybody, and
// whoever waits until the ring is empty waits for ever.
func TestFailedBeforeSwitch(t *testing.T) {
	mine, theirs := sockets(t)
	conn := late{bare(mine), new(sync.Once), make(chan struct{}), make(chan struct{})}
	open := sync.OnceFunc(func() { close(conn.gate) })
	t.Cleanup(open)
	var es [2]*Engine
	for i, c := range []link.Conn{conn, bare(theirs)} {
		es[i] = New(Config{Rank: i, Size: 2, Unexpected: 1 << 20, SharedMemory: true})
		es[i].Attach(&link.Link{Conn: c, Peer: overlay.ProcessName{Rank: uint32(1 - i)}})
	}
	t.Cleanup(es[1].Close)
	<-conn.read
	var sent Request
	es[1].Isend(&sent, everyone{}, 0, 0, 5, []byte{7}, Standard, false)
	if _, err := wait(t, &sent); err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	go func() { es[0].Close(); close(closed) }()
	eventually(t, es[0], "the peer has failed", func() bool { return es[0].peers[1].proto.Failed != nil })
	open()
	<-closed
	if n := len(es[0].rings.peers); n != 0 {
		t.Errorf("%d rings are polled after the end", n)
	}
}

// Over the link memory is shared in order only.
func TestSharesOutOfTurn(t *testing.T) {
	for name, says := range map[string][]byte{
		"switches":           wire.Envelope{Kind: wire.EnvelopeSwitch}.Append(nil),
		"describes too much": wire.Envelope{Kind: wire.EnvelopeShare, Length: 1 << 30}.Append(nil),
		"maps what is not":   append(wire.Envelope{Kind: wire.EnvelopeShare, Length: shm.DescriptorSize}.Append(nil), shm.Descriptor{}.Append(nil)...),
	} {
		t.Run(name, func(t *testing.T) {
			mine, peer := sockets(t)
			e := New(Config{Rank: 0, Size: 2, SharedMemory: true})
			e.sharing.create = func(int) (*shm.Segment, error) { <-e.ctx.Done(); return nil, e.ctx.Err() }
			e.Attach(&link.Link{Conn: bare(mine), Peer: overlay.ProcessName{Rank: 1}})
			t.Cleanup(func() { peer.Close(); e.Close() })
			var r Request
			e.Irecv(&r, everyone{}, 0, 1, 5, make([]byte, 3))
			peer.Write(says)
			if _, err := wait(t, &r); !errors.Is(err, ErrProcFailed) || !errors.Is(err, wire.ErrMalformed) {
				t.Error(err)
			}
		})
	}
}
