package engine

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine/protocol"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// delayed returns two connections between which bytes take a time, and what the second one writes.
func delayed(t *testing.T, delay time.Duration, tap io.Writer) (a, b *net.TCPConn) {
	t.Helper()
	a, toA := sockets(t)
	b, toB := sockets(t)
	var work sync.WaitGroup
	t.Cleanup(work.Wait)
	carry := func(from, to *net.TCPConn, tap io.Writer) {
		type piece struct {
			at time.Time
			b  []byte
		}
		pieces := make(chan piece, 1<<12)
		work.Go(func() {
			defer close(pieces)
			for buf := make([]byte, 64<<10); ; {
				n, err := from.Read(buf)
				if n > 0 {
					pieces <- piece{time.Now().Add(delay), append([]byte(nil), buf[:n]...)}
				}
				if err != nil {
					return
				}
			}
		})
		work.Go(func() {
			defer to.Close()
			for p := range pieces {
				time.Sleep(time.Until(p.at))
				tap.Write(p.b)
				to.Write(p.b)
			}
		})
	}
	carry(toA, toB, io.Discard)
	carry(toB, toA, tap)
	return a, b
}

// said gathers the lengths of the credits in a stream of envelopes without messages.
type said struct {
	mu   sync.Mutex
	rest []byte
	each []int
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rest = append(s.rest, b...)
	for len(s.rest) >= wire.EnvelopeLen {
		if env, err := wire.ParseEnvelope(s.rest); err == nil && env.Kind == wire.EnvelopeCredit {
			s.each = append(s.each, int(env.Length))
		}
		s.rest = s.rest[wire.EnvelopeLen:]
	}
	return len(b), nil
}

// Over a path with a delay a stream gets more credit than it began with, in steps much smaller than quarters;
// when nobody receives any more its peer keeps no more than that.
func TestStreamOverDelay(t *testing.T) {
	const delay, first, most, size = 10 * time.Millisecond, 256 << 10, 8 << 20, 8000
	var credits said
	var es [2]*Engine
	var conns [2]*net.TCPConn
	conns[0], conns[1] = delayed(t, delay, &credits)
	for i := range es {
		es[i] = New(Config{Rank: i, Size: 2, Unexpected: first, MaxUnexpected: most})
		t.Cleanup(es[i].Close)
		es[i].Attach(&link.Link{Conn: bare(conns[i]), Peer: overlay.ProcessName{Rank: uint32(1 - i)}, RTT: 2 * delay})
	}
	total := func() (now, held int) {
		es[1].mu.Lock()
		defer es[1].mu.Unlock()
		now, held = es[1].peers[0].proto.CreditGranted()
		if extra := es[1].core.ExtraCredit(); extra != protocol.MaxExtraCredit-(now-first) {
			t.Errorf("of %d bytes beyond the first %d are missing from what others may have", now-first, protocol.MaxExtraCredit-extra)
		}
		return now, held
	}
	message := make([]byte, size)
	sends, receives := make([]Request, 256), make([]Request, 256)
	start := time.Now()
	for i := 0; ; i++ {
		s, r := &sends[i%len(sends)], &receives[i%len(receives)]
		if i >= len(sends) {
			if _, err := wait(t, s); err != nil {
				t.Fatal(err)
			}
			if _, err := wait(t, r); err != nil {
				t.Fatal(err)
			}
			*s, *r = Request{}, Request{}
		}
		es[1].Irecv(r, everyone{}, 0, 0, 5, make([]byte, size))
		es[0].Isend(s, everyone{}, 0, 1, 5, message, Standard, false)
		now, _ := total()
		if now > most {
			t.Fatalf("the credit is %d bytes", now)
		}
		if now >= 4*first {
			break
		}
		if time.Since(start) > 30*time.Second {
			t.Fatalf("after %d messages the credit is %d bytes", i, now)
		}
	}
	credits.mu.Lock()
	small := 0
	for _, n := range credits.each {
		if n < 2*protocol.MinStep {
			small++
		}
	}
	if small < len(credits.each)/2 {
		t.Errorf("credit came back as %d", credits.each)
	}
	credits.mu.Unlock()

	late := make([]Request, most/size+protocol.MaxPendingSends) // of which no receive comes; more than there is credit for, and more than are announced
	for i := range late {
		es[0].Isend(&late[i], everyone{}, 0, 1, 6, message, Standard, false)
	}
	eventually(t, es[0], "all credit is used", func() bool { return es[0].peers[1].proto.Backlog() > 0 })
	eventually(t, es[1], "what was sent is here", func() bool { _, held := es[1].peers[0].proto.CreditGranted(); return held > 3*first })
	if now, held := total(); held > now {
		t.Errorf("of the peer %d bytes are kept, it was granted %d", held, now)
	}
}

// A peer that was granted more has that and no more, whatever it says: one that lies fails, and leaves
// to others what it had.
func TestPeerExceedsGrownCredit(t *testing.T) {
	const first, size = 1 << 20, 16 << 10
	mine, peer := sockets(t)
	e := New(Config{Rank: 0, Size: 2, Unexpected: first, MaxUnexpected: 8 << 20})
	t.Cleanup(func() { peer.Close(); e.Close() })
	e.Attach(&link.Link{Conn: bare(mine), Peer: overlay.ProcessName{Rank: 1}, RTT: 50 * time.Millisecond})
	go io.Copy(io.Discard, peer) // credit; ends with the socket
	total := 0
	for start := time.Now(); total < 2*first; {
		var rs [64]Request
		for i := range rs {
			e.Irecv(&rs[i], everyone{}, 0, 1, 5, make([]byte, size))
			say(t, peer, wire.Envelope{Kind: wire.EnvelopeEager, Tag: 5, Length: size}, make([]byte, size)...)
		}
		for i := range rs {
			if _, err := wait(t, &rs[i]); err != nil {
				t.Fatal(err)
			}
		}
		e.mu.Lock()
		total, _ = e.peers[1].proto.CreditGranted()
		e.mu.Unlock()
		if time.Since(start) > 30*time.Second {
			t.Fatalf("the credit is %d bytes", total)
		}
	}
	var r Request
	e.Irecv(&r, everyone{}, 0, 1, 1<<30, nil)
	before := heap()
	flood(t, peer, func(i uint32) (wire.Envelope, int) {
		return wire.Envelope{Kind: wire.EnvelopeEager, Tag: i, Length: size}, size
	})
	_, err := wait(t, &r)
	if want := fmt.Sprintf("it was granted %d in all", total); !errors.Is(err, wire.ErrMalformed) || !strings.Contains(err.Error(), want) {
		t.Errorf("it failed with %v, want %s", err, want)
	}
	if grown := int64(heap()) - int64(before); grown > maxMemory {
		t.Errorf("memory has grown by %d MiB", grown>>20)
	}
	e.mu.Lock()
	if now, held := e.peers[1].proto.CreditGranted(); e.core.ExtraCredit() != protocol.MaxExtraCredit-(now-first) || now > max(first, held) {
		t.Errorf("it keeps %d bytes and is counted with %d; others may have %d", held, now, e.core.ExtraCredit())
	}
	e.mu.Unlock()
}

// A peer that grants what it likes and reads nothing has its engine copy no more than
// is bounded: further messages stay in their senders' buffers.
func TestPeerGrantsWithoutEnd(t *testing.T) {
	mine, peer := sockets(t)
	e := New(Config{Rank: 0, Size: 2, Unexpected: 1 << 20})
	t.Cleanup(func() { peer.Close(); e.Close() })
	e.Attach(&link.Link{Conn: bare(mine), Peer: overlay.ProcessName{Rank: 1}})
	for range 1 << 10 {
		say(t, peer, wire.Envelope{Kind: wire.EnvelopeCredit, Length: wire.MaxMessage})
	}
	eventually(t, e, "the credit is here", func() bool { return e.peers[1].proto.Credit == wire.MaxMessage })
	message := make([]byte, gatherBelow-1)
	sends := make([]Request, 64<<20/len(message))
	for i := range sends {
		e.Isend(&sends[i], everyone{}, 0, 1, 5, message, Standard, false)
	}
	e.mu.Lock()
	copied, lent := 0, 0
	for _, s := range e.peers[1].transport.queue.entries {
		copied += len(s.copied)
		if s.r != nil {
			lent++
		}
	}
	e.mu.Unlock()
	if copied > maxBatches*batchSize+len(sends)*wire.EnvelopeLen || lent == 0 || e.peers[1].proto.Unfinished() > 0 {
		t.Errorf("%d bytes are copied, %d messages are not", copied, lent)
	}
	go io.Copy(io.Discard, peer) // ends with the socket
	for i := range sends {
		if _, err := wait(t, &sends[i]); err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
	}
}
