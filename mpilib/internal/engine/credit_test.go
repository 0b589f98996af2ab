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
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// longPath is a stream of bytes from a sender that uses all of its credit to a receiver, in
// virtual time.
type longPath struct {
	rtt       time.Duration
	rate      int // of the path, bytes in a millisecond
	consumes  int // of the receiver, likewise
	grant     grant
	extra     int
	credit    int
	now       time.Time
	data      []inTransit
	credits   []inTransit
	arrived   int
	returns   int // that the receiver said
	greatest  int // of those that did not grow it
	wasBroken error
}

type inTransit struct {
	at time.Time
	n  int
}

func newLongPath(rtt time.Duration, mbit, consumes int, first, most, extra int) *longPath {
	p := &longPath{rtt: rtt, rate: mbit * 125, consumes: consumes, grant: newGrant(first, most), extra: extra, credit: firstCredit, now: time.Unix(1e9, 0)}
	p.resize()
	p.giveCredit()
	p.returns, p.greatest = 0, 0
	return p
}

func (p *longPath) resize() int {
	more := p.grant.resize(p.now, p.rtt, p.extra)
	p.extra -= more
	return more
}

func (p *longPath) giveCredit() {
	p.credits = append(p.credits, inTransit{p.now.Add(p.rtt / 2), p.grant.owed})
	p.grant.owed = 0
	p.returns++
}

// here takes out what has arrived.
func here(q *[]inTransit, now time.Time) (n int) {
	for len(*q) > 0 && !(*q)[0].at.After(now) {
		n += (*q)[0].n
		*q = (*q)[1:]
	}
	return n
}

func sum(q []inTransit) (n int) {
	for _, t := range q {
		n += t.n
	}
	return n
}

// run goes on for d with a sender that sends at most so much in a millisecond, and returns which
// part of the path was used.
func (p *longPath) run(d time.Duration, sends int) float64 {
	g, before := &p.grant, p.arrived
	for range d / time.Millisecond {
		p.now = p.now.Add(time.Millisecond)
		p.credit += here(&p.credits, p.now)
		n := min(p.credit, p.rate, sends)
		p.credit -= n
		p.data = append(p.data, inTransit{p.now.Add(p.rtt / 2), n})
		n = here(&p.data, p.now)
		p.arrived += n
		g.held += n
		g.came += n
		n = min(g.held, p.consumes)
		g.held -= n
		if g.owed += n; g.owed >= g.step {
			owed := g.owed
			if p.resize() == 0 {
				p.greatest = max(p.greatest, owed)
			}
			p.giveCredit()
		}
		if all := p.credit + sum(p.data) + g.held + g.owed + sum(p.credits); all != g.total || g.total > g.max || g.total < g.first {
			p.wasBroken = fmt.Errorf("of a credit of %d bytes, %d to %d, there are %d", g.total, g.first, g.max, all)
		}
	}
	return float64(p.arrived-before) / float64(p.rate) / float64(d/time.Millisecond)
}

const fast = 1 << 30 // more than any path brings in a millisecond

// A stream fills a long path as long as its receiver keeps up, and the peer has no more than that
// takes.
func TestCreditFollowsThePath(t *testing.T) {
	const MiB = 1 << 20
	for name, tc := range map[string]struct {
		path        *longPath
		used        float64 // of the path, at least
		below       float64 // and less than
		least, most int     // of the credit in the end
	}{
		"1 Gb/s, 200 ms":               {newLongPath(200*time.Millisecond, 1000, fast, 16*MiB, 64*MiB, 256*MiB), 0.99, 2, 40 * MiB, 56 * MiB},
		"with a fixed credit":          {newLongPath(200*time.Millisecond, 1000, fast, 16*MiB, 16*MiB, 256*MiB), 0.6, 0.7, 16 * MiB, 16 * MiB},
		"500 Mb/s, 400 ms":             {newLongPath(400*time.Millisecond, 500, fast, 16*MiB, 64*MiB, 256*MiB), 0.99, 2, 40 * MiB, 56 * MiB},
		"10 Gb/s, 10 ms":               {newLongPath(10*time.Millisecond, 10000, fast, 16*MiB, 64*MiB, 256*MiB), 0.99, 2, 16 * MiB, 30 * MiB},
		"the first amount is enough":   {newLongPath(20*time.Millisecond, 1000, fast, 16*MiB, 64*MiB, 256*MiB), 0.99, 2, 16 * MiB, 16 * MiB},
		"more than there may be":       {newLongPath(time.Second, 1000, fast, 16*MiB, 64*MiB, 256*MiB), 0.5, 0.6, 64 * MiB, 64 * MiB},
		"others have the extra credit": {newLongPath(200*time.Millisecond, 1000, fast, 16*MiB, 64*MiB, 4*MiB), 0.75, 0.9, 20 * MiB, 20 * MiB},
		"nobody receives":              {newLongPath(200*time.Millisecond, 1000, 0, 16*MiB, 64*MiB, 256*MiB), 0, 0.01, 16 * MiB, 16 * MiB},
		"a slow receiver":              {newLongPath(200*time.Millisecond, 1000, 10_000, 16*MiB, 64*MiB, 256*MiB), 0.07, 0.09, 16 * MiB, 16 * MiB},
	} {
		t.Run(name, func(t *testing.T) {
			p := tc.path
			p.run(5*time.Second, fast)
			if used := p.run(5*time.Second, fast); used < tc.used || used >= tc.below {
				t.Errorf("%.3f of the path is used, want %g to %g", used, tc.used, tc.below)
			}
			if total := p.grant.total; total < tc.least || total > tc.most {
				t.Errorf("the credit is %d bytes, want %d to %d", total, tc.least, tc.most)
			}
			if p.wasBroken != nil {
				t.Error(p.wasBroken)
			}
			if limit := p.grant.total/longStep + p.rate; p.greatest > limit {
				t.Errorf("%d bytes came back at once, want %d at most", p.greatest, limit)
			}
		})
	}
}

// What was granted beyond the first amount is not returned once it was of no use for a
// while, and others may have it.
func TestCreditShrinks(t *testing.T) {
	const extra = 256 << 20
	p := newLongPath(200*time.Millisecond, 1000, fast, 16<<20, 64<<20, extra)
	p.run(5*time.Second, fast)
	full := p.grant.total
	for range 20 { // bursts that need it, and pauses
		p.run(time.Second, fast)
		p.run(5*time.Second, 0)
	}
	if p.grant.total < full {
		t.Errorf("with pauses the credit shrank from %d to %d bytes", full, p.grant.total)
	}
	p.run(30*time.Second, 10_000)
	if p.grant.total != 16<<20 || p.extra != extra {
		t.Errorf("a slow sender has %d bytes, and others %d", p.grant.total, p.extra)
	}
	p.run(3*time.Second, fast)
	if p.grant.total < full*9/10 {
		t.Errorf("a fast one has %d bytes again, it had %d", p.grant.total, full)
	}
	p.grant.held = 20 << 20 // of a peer that fails
	p.extra += p.grant.end()
	if p.grant.total != 20<<20 || p.extra != extra-4<<20 {
		t.Errorf("of one that has failed %d bytes are counted, and others have %d", p.grant.total, p.extra)
	}
	p.grant.held = 0
	p.extra += p.grant.end()
	if p.grant.total != 16<<20 || p.extra != extra || p.wasBroken != nil {
		t.Errorf("when they are received %d, %d; %v", p.grant.total, p.extra, p.wasBroken)
	}
}

// On a short path credit comes back in quarters: there is nothing to wait for.
func TestCreditStep(t *testing.T) {
	for _, tc := range []struct {
		total int
		rtt   time.Duration
		want  int
	}{
		{16 << 20, 0, 4 << 20}, {16 << 20, longRTT, 4 << 20}, {16 << 20, longRTT + 1, 256 << 10}, {64 << 20, time.Second, 1 << 20},
		{256 << 10, time.Second, minStep}, {64 << 10, time.Second, 16 << 10}, {64 << 10, 0, 16 << 10},
	} {
		g := newGrant(tc.total, 0)
		if g.resize(time.Unix(1e9, 0), tc.rtt, maxExtraCredit); g.step != tc.want || g.total != tc.total {
			t.Errorf("of %d over %v: %d at a time of %d, want %d", tc.total, tc.rtt, g.step, g.total, tc.want)
		}
	}
}

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
		es[i].Attach(&link.Link{Conn: bareConn{conns[i]}, Peer: overlay.ProcessName{Rank: uint32(1 - i)}, RTT: 2 * delay})
	}
	total := func() (now, held int) {
		es[1].mu.Lock()
		defer es[1].mu.Unlock()
		g := &es[1].peers[0].arrivals.grant
		if es[1].extraCredit != maxExtraCredit-(g.total-first) {
			t.Errorf("of %d bytes beyond the first %d are missing from what others may have", g.total-first, maxExtraCredit-es[1].extraCredit)
		}
		return g.total, g.held
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
		if n < 2*minStep {
			small++
		}
	}
	if small < len(credits.each)/2 {
		t.Errorf("credit came back as %d", credits.each)
	}
	credits.mu.Unlock()

	late := make([]Request, most/size+maxPendingSends) // of which no receive comes; more than there is credit for, and more than are announced
	for i := range late {
		es[0].Isend(&late[i], everyone{}, 0, 1, 6, message, Standard, false)
	}
	eventually(t, es[0], "all credit is used", func() bool { return len(es[0].peers[1].sends.backlog) > 0 })
	eventually(t, es[1], "what was sent is here", func() bool { return es[1].peers[0].arrivals.grant.held > 3*first })
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
	e.Attach(&link.Link{Conn: bareConn{mine}, Peer: overlay.ProcessName{Rank: 1}, RTT: 50 * time.Millisecond})
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
		total = e.peers[1].arrivals.grant.total
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
	if g := &e.peers[1].arrivals.grant; e.extraCredit != maxExtraCredit-(g.total-first) || g.total > max(first, g.held) {
		t.Errorf("it keeps %d bytes and is counted with %d; others may have %d", g.held, g.total, e.extraCredit)
	}
	e.mu.Unlock()
}

// A peer that grants what it likes and reads nothing has its engine copy no more than
// is bounded: further messages stay in their senders' buffers.
func TestPeerGrantsWithoutEnd(t *testing.T) {
	mine, peer := sockets(t)
	e := New(Config{Rank: 0, Size: 2, Unexpected: 1 << 20})
	t.Cleanup(func() { peer.Close(); e.Close() })
	e.Attach(&link.Link{Conn: fullConn{bareConn{mine}}, Peer: overlay.ProcessName{Rank: 1}})
	for range 1 << 10 {
		say(t, peer, wire.Envelope{Kind: wire.EnvelopeCredit, Length: wire.MaxMessage})
	}
	eventually(t, e, "the credit is here", func() bool { return e.peers[1].sends.credit == wire.MaxMessage })
	message := make([]byte, gatherBelow-1)
	sends := make([]Request, 64<<20/len(message))
	for i := range sends {
		e.Isend(&sends[i], everyone{}, 0, 1, 5, message, Standard, false)
	}
	e.mu.Lock()
	copied, lent := 0, 0
	for _, s := range e.peers[1].out.link.queue {
		copied += len(s.copied)
		if s.r != nil {
			lent++
		}
	}
	e.mu.Unlock()
	if copied > maxBatches*batchSize+len(sends)*wire.EnvelopeLen || lent == 0 || len(e.peers[1].sends.pending) > 0 {
		t.Errorf("%d bytes are copied, %d messages are not", copied, lent)
	}
	go io.Copy(io.Discard, peer) // ends with the socket
	for i := range sends {
		if _, err := wait(t, &sends[i]); err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
	}
}
