package engine

import (
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/ipc/shm"
	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine/protocol"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// maxMemory is by how much a peer may have the engine's memory grow, whatever it says.
const maxMemory = 64 << 20

// A peer that exceeds what it was granted, over everything that is not over, fails with an
// error that names it and says what it did; memory stays bounded, and another
// peer's messages go on.
func TestPeerExceedsItsBounds(t *testing.T) {
	const limit = 1 << 20 // of faced
	for name, tc := range map[string]struct {
		say  func(i uint32) (wire.Envelope, int) // the i-th that it says, and how many bytes follow
		want string
	}{
		"messages that nobody receives": {func(i uint32) (wire.Envelope, int) {
			return wire.Envelope{Kind: wire.EnvelopeEager, Tag: i, Length: 32 << 10}, 32 << 10
		}, "bytes eagerly beside"},
		"empty messages": {func(i uint32) (wire.Envelope, int) {
			return wire.Envelope{Kind: wire.EnvelopeEager, Tag: i}, 0
		}, "bytes eagerly beside"},
		"one message that is too large": {func(i uint32) (wire.Envelope, int) {
			return wire.Envelope{Kind: wire.EnvelopeEager, Length: wire.MaxMessage}, 0
		}, "the peer sent 1099511627840 bytes eagerly beside 0"},
		"heads of offers": {func(i uint32) (wire.Envelope, int) {
			env := wire.Envelope{Kind: wire.EnvelopeRTS, ID: i/2 + 1, Length: 1 << 30}
			if i%2 == 0 {
				return env, 0
			}
			env.Kind, env.Flags, env.Length = wire.EnvelopeData, wire.EnvelopeHead, 64<<10
			return env, 64 << 10
		}, "bytes eagerly beside"},
		"offers": {func(i uint32) (wire.Envelope, int) {
			return wire.Envelope{Kind: wire.EnvelopeRTS, ID: i + 1, Length: 1 << 30}, 0
		}, "8192 messages announced at a time"},
		"offers without a name": {func(i uint32) (wire.Envelope, int) {
			return wire.Envelope{Kind: wire.EnvelopeRTS, Length: 1 << 30}, 0
		}, "message 0 is announced"},
		"one name for two synchronous messages": {func(i uint32) (wire.Envelope, int) {
			return wire.Envelope{Kind: wire.EnvelopeEager, Flags: wire.EnvelopeSynchronous, ID: 7}, 0
		}, "message 7 is announced twice"},
		"contexts that nobody makes": {func(i uint32) (wire.Envelope, int) {
			return wire.Envelope{Kind: wire.EnvelopeEager, Context: 1000 + i}, 0
		}, "the peer sends in context 5096; it has sent in 4096 others that this process has not created"},
		"a context that cannot be": {func(i uint32) (wire.Envelope, int) {
			return wire.Envelope{Kind: wire.EnvelopeEager, Context: 999}, 0
		}, "the peer sends in context 999, which only this process could have created"},
		"questions whose answers it does not read": {func(i uint32) (wire.Envelope, int) {
			if i == 0 {
				return wire.Envelope{Kind: wire.EnvelopeRevoked, Context: 5, Tag: 1}, 0
			}
			return wire.Envelope{Kind: wire.EnvelopeRTS, Context: 5, ID: i, Length: 9}, 0
		}, "the peer sends more and more, and does not read the answers"},
		"borrowing over a link": {func(i uint32) (wire.Envelope, int) {
			return wire.Envelope{Kind: wire.EnvelopeCopying, ID: 1}, 0
		}, "the peer copies message 1"},
		"an answer to no RTS": {func(i uint32) (wire.Envelope, int) {
			return wire.Envelope{Kind: wire.EnvelopeCTS, ID: 3, Length: 9}, 0
		}, "the peer asks for message 3"},
		"a rank that is none": {func(i uint32) (wire.Envelope, int) {
			return wire.Envelope{Kind: wire.EnvelopeFailed, ID: 77}, 0
		}, "process 77 of 3 has failed"},
	} {
		t.Run(name, func(t *testing.T) {
			mine, hostile := sockets(t)
			mine.SetWriteBuffer(64 << 10) // where answers wait first that are not read
			hostile.SetReadBuffer(64 << 10)
			honestMine, honest := sockets(t)
			e := New(Config{Rank: 0, Size: 3, Unexpected: limit, Unallocated: func(id uint32) bool { return id == 999 }})
			e.maxAnswers = sweep(1<<20, maxAnswers)
			t.Cleanup(func() { hostile.Close(); honest.Close(); e.Close() })
			e.Attach(&link.Link{Conn: bare(mine), Peer: overlay.ProcessName{Rank: 1}})
			e.Attach(&link.Link{Conn: bare(honestMine), Peer: overlay.ProcessName{Rank: 2}})
			var from1, from2 Request
			e.Irecv(&from1, everyone{}, 0, 1, 1<<30, nil) // of which no message comes
			e.Irecv(&from2, everyone{}, 0, 2, 1, make([]byte, 3))
			before := heap()
			flood(t, hostile, tc.say)
			_, err := wait(t, &from1)
			if !errors.Is(err, ErrProcFailed) || !errors.Is(err, wire.ErrMalformed) ||
				!strings.HasPrefix(err.Error(), "rank 1 of the world: process failed: ") || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("it failed with %v\nwant %s", err, tc.want)
			}
			if grown := int64(heap()) - int64(before); grown > maxMemory {
				t.Errorf("memory has grown by %d MiB", grown>>20)
			}
			say(t, honest, wire.Envelope{Kind: wire.EnvelopeEager, Tag: 1, Length: 3}, 'a', 'b', 'c')
			if got, err := wait(t, &from2); err != nil || got.Bytes != 3 {
				t.Errorf("another peer's message: %+v, %v", got, err)
			}
		})
	}
}

// flood says things until the other end hangs up.
func flood(t *testing.T, c net.Conn, what func(i uint32) (wire.Envelope, int)) {
	t.Helper()
	c.SetWriteDeadline(time.Now().Add(time.Minute))
	zeros := make([]byte, 64<<10)
	var batch []byte
	for i := uint32(0); ; i++ {
		env, n := what(i)
		batch = append(env.Append(batch), zeros[:n]...)
		if len(batch) < 64<<10 && n == 0 && env.Length < wire.MaxMessage {
			continue
		}
		if _, err := c.Write(batch); err != nil {
			if ne := net.Error(nil); errors.As(err, &ne) && ne.Timeout() {
				t.Errorf("after %d envelopes the engine neither reads on nor hangs up", i)
			}
			return
		}
		batch = batch[:0]
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// What a peer may send it can: as much as was granted, in many contexts that are made
// later, and again when it was received.
func TestPeerUsesAllItsCredit(t *testing.T) {
	const limit = 1 << 20 // of faced
	e, peer := faced(t)
	go io.Copy(io.Discard, peer) // credit; ends with the socket
	const each, n = 1024 - protocol.MessageCost, limit / 1024
	for round := range 3 {
		for i := range uint32(n) {
			say(t, peer, wire.Envelope{Kind: wire.EnvelopeEager, Context: i, Tag: 1, Length: each}, make([]byte, each)...)
		}
		e.CreateContexts(0, n)
		for i := range uint32(n) {
			var r Request
			e.Irecv(&r, everyone{}, i, 1, 1, make([]byte, each))
			if got, err := wait(t, &r); err != nil || got.Bytes != each {
				t.Fatalf("round %d, message %d: %+v, %v", round, i, got, err)
			}
		}
		e.mu.Lock()
		if _, held := e.peers[1].proto.CreditGranted(); held != 0 || e.peers[1].proto.ContextsAhead() != 0 {
			t.Errorf("round %d: %d bytes are held of the peer, %d contexts are ahead", round, held, e.peers[1].proto.ContextsAhead())
		}
		e.mu.Unlock()
	}
}

// A peer that has shared memory cannot take it back while it is being looked at, nor
// share again.
func TestPeerSharesTwice(t *testing.T) {
	mine, peer := sockets(t)
	e := New(Config{Rank: 0, Size: 2, SharedMemory: true, Unexpected: 1 << 20})
	seg, err := shm.Create(0)
	if err != nil {
		t.Skip(err)
	}
	defer seg.Close()
	e.Attach(&link.Link{Conn: bare(mine), Peer: overlay.ProcessName{Rank: 1}})
	t.Cleanup(func() { peer.Close(); e.Close() })
	var r Request
	e.Irecv(&r, everyone{}, 0, 1, 5, nil)
	expect(t, peer, wire.Envelope{Kind: wire.EnvelopeCredit, Length: 1<<20 - protocol.FirstCredit})
	expect(t, peer, wire.Envelope{Kind: wire.EnvelopeShare, Length: shm.DescriptorSize})
	o := seg.Descriptor().Append(nil)
	share := wire.Envelope{Kind: wire.EnvelopeShare, Length: uint64(len(o))}
	say(t, peer, share, append(o, wire.Envelope{Kind: wire.EnvelopeShare}.Append(nil)...)...)
	if _, err := wait(t, &r); !errors.Is(err, wire.ErrMalformed) || !strings.Contains(err.Error(), "shares memory out of order") {
		t.Errorf("shared twice: %v", err)
	}
}

// revokedContexts returns how many contexts are revoked, if none is so twice.
func revokedContexts(e *Engine) (n int) {
	for _, contexts := range e.core.Revocations() {
		n += int(contexts)
	}
	return n
}

// Revocations of contexts that nobody has made are remembered up to a bound, and
// nobody is blamed for more.
func TestRevocationsAreBounded(t *testing.T) {
	e, peer := faced(t)
	go io.Copy(io.Discard, peer) // the news come back; ends with the socket
	for i := range uint32(2 * protocol.MaxRevokedAhead / maxRevoked) {
		say(t, peer, wire.Envelope{Kind: wire.EnvelopeRevoked, Context: 1000 + i*maxRevoked, Tag: maxRevoked})
	}
	e.CreateContexts(5, 1)
	say(t, peer, wire.Envelope{Kind: wire.EnvelopeRevoked, Context: 5, Tag: 1})
	eventually(t, e, "what is made here is revoked", func() bool { return e.core.IsRevoked(5) })
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := revokedContexts(e); n != protocol.MaxRevokedAhead+1 || e.peers[1].proto.Failed != nil {
		t.Errorf("%d contexts are revoked, the peer is %v", n, e.peers[1].proto.Failed)
	}
}
