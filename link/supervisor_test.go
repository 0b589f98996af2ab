package link

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/link/internal/leak"
	"github.com/isthmus-grid/isthmus/link/stream"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// roads connects the processes of a job by TCP connections on which faults can be injected.
type roads struct {
	t       *testing.T
	seal    bool // all connections are to be encrypted
	mu      sync.Mutex
	ends    map[uint32]*roadEnd
	open    map[*road]struct{}
	blocked map[overlay.Technique]error // errors of dials
	dials   map[overlay.Technique]int
	made    int         // connections, by any technique
	forged  []wire.Code // for the next dials: an attacker refuses in the peer's name
	busy    sync.WaitGroup

	breaks   []int // for the next connections: the bytes from the dialler after which they break
	holds    []int // the same, after which everything from the dialler is held until release is closed
	halves   []int // the same, after which only the dialled end sees a break
	release  chan struct{}
	swallows map[overlay.Technique]int   // bytes that new connections of a technique carry before they carry nothing
	outcomes map[overlay.Technique]error // last reported to the ends; includes nil errors

	hole         bool                                 // connections without small packets carry nothing after the first large one
	narrow       map[overlay.Technique]float64        // bytes per second each way and connection that a technique carries from now on
	smallBuffers bool                                 // new connections buffer little
	carriers     int                                  // of each link; see Config
	hasAddress   func(rank uint32, a netip.Addr) bool // of both meshes; nil: the system's
	rates        []float64                            // of the next connections, in bytes per second; that of one that ends is available again
}

// road is one connection, with a relaying process in the middle.
type road struct {
	technique overlay.Technique
	a, b      *net.TCPConn // the ends in the middle
	rate      float64      // bytes per second each way; 0: no limit
	mu        sync.Mutex
	muted     bool
	small     bool // its packets are
	swallows  int  // if positive, the bytes each way after which it is muted
	breaks    int  // if positive, the bytes from the dialler after which it breaks
	holds     int  // if positive, the bytes from the dialler after which everything from it is held
	halves    int  // if positive, the bytes from the dialler after which only the dialled end sees a break
	release   <-chan struct{}
}

// roadEnd is a process's overlay.Connector.
type roadEnd struct {
	*roads
	rank   uint32
	accept chan overlay.Carrier
	closed chan struct{}
}

func newRoads(t *testing.T) *roads {
	leak.Check(t)
	r := &roads{
		t: t, ends: map[uint32]*roadEnd{}, open: map[*road]struct{}{},
		blocked: map[overlay.Technique]error{}, dials: map[overlay.Technique]int{},
		release: make(chan struct{}), swallows: map[overlay.Technique]int{}, outcomes: map[overlay.Technique]error{},
	}
	t.Cleanup(func() { r.cut(); r.busy.Wait() })
	return r
}

func (r *roads) end(rank uint32) *roadEnd {
	e := &roadEnd{roads: r, rank: rank, accept: make(chan overlay.Carrier, 64), closed: make(chan struct{})}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ends[rank] = e
	return e
}

// Dial takes the direct road if it may and can, and the relay otherwise.
func (e *roadEnd) Dial(_ context.Context, peer overlay.ProcessName, ways overlay.Ways) (overlay.Carrier, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	technique, small := overlay.Direct, ways&overlay.SmallPackets != 0
	if w := ways.Techniques(); w == overlay.RelayOnly || w == overlay.AllWays && e.blocked[overlay.Direct] != nil {
		technique = overlay.Relay
	}
	if !small { // those are dialled in parallel
		e.dials[technique]++
	}
	if err := e.blocked[technique]; err != nil {
		return overlay.Carrier{}, err
	}
	a, ma := tcpPair(e.t)
	if len(e.forged) > 0 {
		code := e.forged[0]
		e.forged = e.forged[1:]
		e.busy.Go(func() { forge(ma, code) })
		return overlay.Carrier{Conn: a, Path: overlay.Path{Technique: technique}, Seal: e.seal}, nil
	}
	mb, b := tcpPair(e.t)
	w := &road{technique: technique, a: ma.(*net.TCPConn), b: mb.(*net.TCPConn), small: small, swallows: e.swallows[technique]}
	path := overlay.Path{Technique: technique, Small: small}
	w.release = e.release
	if len(e.halves) > 0 {
		w.halves, e.halves = e.halves[0], e.halves[1:]
	}
	if len(e.holds) > 0 {
		w.holds, e.holds = e.holds[0], e.holds[1:]
	}
	if len(e.breaks) > 0 {
		w.breaks, e.breaks = e.breaks[0], e.breaks[1:]
	}
	if len(e.rates) > 0 {
		w.rate, e.rates = e.rates[0], e.rates[1:]
		path.Reason = reason(w.rate)
	}
	if w.rate > 0 || e.smallBuffers {
		for _, c := range []net.Conn{a, w.a, w.b, b} {
			size := 64 << 10
			if e.smallBuffers {
				size = 16 << 10
			}
			c.(*net.TCPConn).SetReadBuffer(size)
			c.(*net.TCPConn).SetWriteBuffer(size)
		}
	}
	e.open[w] = struct{}{}
	e.made++
	for _, d := range [][2]*net.TCPConn{{w.a, w.b}, {w.b, w.a}} {
		e.busy.Go(func() { w.carry(d[0], d[1], e.roads); w.close(); e.forget(w) })
	}
	e.ends[peer.Rank].accept <- overlay.Carrier{Conn: b, Path: path, Seal: e.seal}
	outcome := func(err error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.outcomes[technique] = err
	}
	return overlay.Carrier{Conn: a, Path: path, Seal: e.seal, Outcome: outcome}, nil
}

// forge answers a dialler in place of its peer, and refuses it.
func forge(c net.Conn, code wire.Code) {
	defer c.Close()
	h, err := receive[*wire.Hello](c, "hello")
	if err != nil {
		return
	}
	h.From, h.Dialled, h.Link, h.Again = h.To, false, wire.ID{}, false
	c.Write(wire.Append(nil, h))
	c.Write(wire.Append(nil, &wire.Refuse{Code: code, By: "your peer", Text: "go away"}))
	c.(*net.TCPConn).CloseWrite()
	io.Copy(io.Discard, c)
}

func (r *roads) forget(w *road) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, is := r.open[w]; is && w.rate > 0 {
		r.rates = append(r.rates, w.rate)
	}
	delete(r.open, w)
}

// reason marks the paths of roads of a rate: concurrent dials reach the link in any order.
func reason(rate float64) string { return fmt.Sprintf("carries %.0f bytes/s", rate) }

func (e *roadEnd) Accept(ctx context.Context) (overlay.Carrier, error) {
	select {
	case c := <-e.accept:
		return c, nil
	case <-ctx.Done():
		return overlay.Carrier{}, ctx.Err()
	case <-e.closed:
		return overlay.Carrier{}, net.ErrClosed
	}
}

func (e *roadEnd) Close() error { close(e.closed); return nil }

// lateness is how far behind its rate a road may be, for lack of a processor, and still catch up;
// it does not count as slower.
const lateness = 200 * time.Millisecond

// narrows makes all connections of a technique carry that many bytes per second, each way; 0 is no
// limit.
func (r *roads) narrows(technique overlay.Technique, rate float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.narrow == nil {
		r.narrow = map[overlay.Technique]float64{}
	}
	r.narrow[technique] = rate
}

func (r *roads) rate(w *road) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rate := r.narrow[w.technique]; rate > 0 {
		return rate
	}
	return w.rate
}

func (w *road) carry(from, to *net.TCPConn, r *roads) {
	buf := make([]byte, 32<<10)
	var due time.Time // when what was forwarded so far has left
	for passed := 0; ; {
		piece := buf
		if rate := r.rate(w); rate > 0 {
			piece = buf[:min(max(int(rate/20), 1), len(buf))] // a slow road carries a little at a time, not much at once now and then
		}
		n, err := from.Read(piece)
		if err != nil {
			if from == w.b && w.halves > 0 {
				<-w.release
			}
			return
		}
		if from == w.a && w.halves > 0 && passed+n > w.halves {
			w.b.Close()
			<-w.release
			return
		}
		passed += n
		if beyond := passed - w.swallows; w.swallows > 0 && beyond > 0 {
			if n -= beyond; n <= 0 {
				continue
			}
		}
		if from == w.a && w.holds > 0 && passed > w.holds {
			<-w.release
		}
		if from == w.a && w.breaks > 0 && passed > w.breaks {
			return
		}
		r.mu.Lock()
		vanishes := r.hole && !w.small && n > overlay.SmallPacket
		r.mu.Unlock()
		w.mu.Lock()
		w.muted = w.muted || vanishes
		muted := w.muted
		w.mu.Unlock()
		if muted {
			continue
		}
		if rate := r.rate(w); rate > 0 {
			if since := time.Now().Add(-lateness); due.Before(since) {
				due = since
			}
			due = due.Add(time.Duration(float64(n) / rate * float64(time.Second)))
			time.Sleep(time.Until(due)) // the road is that slow
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (w *road) close() {
	w.a.SetLinger(0)
	w.b.SetLinger(0)
	w.a.Close()
	w.b.Close()
}

// cut resets every connection, and mute makes the existing connections of some techniques carry
// nothing any more.
func (r *roads) cut() { r.all((*road).close) }

func (r *roads) mute(techniques ...overlay.Technique) {
	r.all(func(w *road) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.muted = w.muted || slices.Contains(techniques, w.technique)
	})
}

func (r *roads) all(do func(*road)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for w := range r.open {
		do(w)
	}
}

// block makes every dial of a technique fail; nil unblocks it.
func (r *roads) block(technique overlay.Technique, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.blocked[technique] = err
}

// count returns how many connections of a technique were dialled.
func (r *roads) count(technique overlay.Technique) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dials[technique]
}

// total returns how many connections were made, including those with small packets.
func (r *roads) total() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.made
}

// couple links ranks 0 and 1 and returns both links.
func couple(t *testing.T, r *roads, patience time.Duration, around ...func(rank uint32, c overlay.Connector) overlay.Connector) (a, b *Link) {
	t.Helper()
	links, meshes := meshesOf(t, r, patience, around...)
	if err := meshes[1].Connect(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	return linked(t, links[0]), linked(t, links[1])
}

// meshesOf serves the meshes of ranks 0 and 1, and returns the channels of their links. around
// replaces a connector.
func meshesOf(t *testing.T, r *roads, patience time.Duration, around ...func(rank uint32, c overlay.Connector) overlay.Connector) (links [2]chan *Link, meshes [2]*Mesh) {
	t.Helper()
	for i := range links {
		links[i] = make(chan *Link, 4)
		connector := overlay.Connector(r.end(uint32(i)))
		for _, f := range around {
			connector = f(uint32(i), connector)
		}
		m := NewMesh(Config{Self: identity(t, uint32(i)), Size: 2, Connector: connector, Patience: patience, Carriers: r.carriers, Up: func(l *Link) { links[i] <- l }})
		if r.hasAddress != nil {
			m.hasAddress = func(a netip.Addr) bool { return r.hasAddress(uint32(i), a) }
		}
		meshes[i] = m
		ctx, cancel := context.WithCancel(context.Background())
		var served sync.WaitGroup
		served.Go(func() { m.Serve(ctx) })
		t.Cleanup(func() { cancel(); served.Wait() })
	}
	return links, meshes
}

// linked waits for a link to be handed up.
func linked(t *testing.T, links <-chan *Link) (l *Link) {
	t.Helper()
	select {
	case l = <-links:
	case <-time.After(30 * time.Second):
		t.Fatal("no link was handed up")
	}
	return l
}

// pump sends n random bytes each way at once, in pieces of all sizes, and checks that they arrive
// unchanged.
func pump(t *testing.T, a, b *Link, n int) {
	t.Helper()
	for _, l := range []*Link{a, b} {
		l.Conn.SetDeadline(time.Now().Add(3 * time.Minute)) // a bound, never reached
		defer l.Conn.SetDeadline(time.Time{})
	}
	var both sync.WaitGroup
	for i, d := range [][2]*Link{{a, b}, {b, a}} {
		sent, got := sha256.New(), sha256.New()
		var pair sync.WaitGroup
		pair.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 1))
			source := rand.NewChaCha8([32]byte{byte(i)})
			buf := make([]byte, 300<<10)
			for left := n; left > 0; {
				piece := buf[:min(left, 1+rng.IntN(1<<(1+rng.IntN(18))))]
				source.Read(piece)
				sent.Write(piece)
				if _, err := d[0].Conn.Write(piece); err != nil {
					t.Errorf("direction %d, %d bytes before the end: %v", i, left, err)
					return
				}
				left -= len(piece)
			}
		})
		pair.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 2))
			buf := make([]byte, 300<<10)
			for left := n; left > 0; {
				k, err := d[1].Conn.Read(buf[:min(left, 1+rng.IntN(len(buf)))])
				if err != nil {
					t.Errorf("direction %d, %d bytes before the end: %v", i, left, err)
					return
				}
				got.Write(buf[:k])
				left -= k
			}
		})
		both.Go(func() {
			pair.Wait()
			if !t.Failed() && string(sent.Sum(nil)) != string(got.Sum(nil)) {
				t.Errorf("direction %d: the bytes arrived changed", i)
			}
		})
	}
	both.Wait()
}

// TestLinkSurvivesResets: connections are reset again and again, and every byte
// arrives once and in order.
func TestLinkSurvivesResets(t *testing.T) { plainAndSealed(t, linkSurvivesResets) }

// plainAndSealed runs a test over plain connections and over encrypted ones.
func plainAndSealed(t *testing.T, test func(*testing.T, *roads)) {
	for name, seal := range map[string]bool{"plain": false, "sealed": true} {
		t.Run(name, func(t *testing.T) {
			r := newRoads(t)
			r.seal = seal
			test(t, r)
		})
	}
}

func linkSurvivesResets(t *testing.T, r *roads) {
	a, b := couple(t, r, 0)
	if (a.Path.Cipher != "") != r.seal {
		t.Fatalf("cipher %q", a.Path.Cipher)
	}
	stop := make(chan struct{})
	var cutting sync.WaitGroup
	cutting.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond): // enough for some data to get through
				r.cut()
			}
		}
	})
	for r.count(overlay.Direct) < 10 && !t.Failed() {
		pump(t, a, b, 4<<20)
	}
	close(stop)
	cutting.Wait()
	pump(t, a, b, 1<<20)
}

// TestLinkSurvivesSilence: a path that drops everything is left for another one, long before TCP
// itself would notice.
func TestLinkSurvivesSilence(t *testing.T) { plainAndSealed(t, linkSurvivesSilence) }

func linkSurvivesSilence(t *testing.T, r *roads) {
	a, b := couple(t, r, 0)
	pump(t, a, b, 1<<20)
	for i := range 3 {
		r.mute(overlay.Direct, overlay.Relay)
		pump(t, a, b, 1<<20)
		// It may continue over the standby relay that was dialled after the previous loss.
		if n := r.total(); n < i+2 {
			t.Fatalf("%d connections were made, data went on after %d losses", n, i+1)
		}
	}
}

// TestLostLinkSaysWhy: a link that cannot be restored ends in time, and its error names every
// attempt.
func TestLostLinkSaysWhy(t *testing.T) {
	r := newRoads(t)
	a, b := couple(t, r, 700*time.Millisecond)
	for _, technique := range []overlay.Technique{overlay.Direct, overlay.Relay} {
		r.block(technique, fmt.Errorf("the bridge is up: %w", overlay.ErrUnreachable))
	}
	r.cut()
	for _, l := range []*Link{a, b} {
		_, err := l.Conn.Read(make([]byte, 1))
		if err == nil || !strings.Contains(err.Error(), "not restored") || !errors.Is(err, overlay.ErrUnreachable) && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("rank %d: %v", l.Peer.Rank, err)
		}
		if _, again := l.Conn.Write([]byte("x")); again == nil {
			t.Error("a lost link takes data")
		}
	}
}

// TestCloseOfALink: what was written before arrives, then the end; and the other end learns that
// its data is not read any more.
func TestCloseOfALink(t *testing.T) { plainAndSealed(t, closeOfALink) }

func closeOfALink(t *testing.T, r *roads) {
	a, b := couple(t, r, 0)
	sent := make([]byte, 3<<20)
	rand.NewChaCha8([32]byte{}).Read(sent)
	var writing sync.WaitGroup
	writing.Go(func() {
		a.Conn.Write(sent)
		a.Conn.Close()
	})
	b.Conn.SetReadDeadline(time.Now().Add(time.Minute))
	got, err := io.ReadAll(b.Conn)
	if err != nil || string(got) != string(sent) {
		t.Fatalf("%d of %d bytes, %v", len(got), len(sent), err)
	}
	writing.Wait()
	for until := time.Now().Add(30 * time.Second); ; {
		if _, err := b.Conn.Write(sent); errors.Is(err, net.ErrClosed) {
			break
		} else if err != nil || time.Now().After(until) {
			t.Fatalf("writing to a closed link: %v", err)
		}
	}
	if _, err := a.Conn.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("reading a closed link: %v", err)
	}
	if err := a.Conn.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closing it again: %v", err)
	}
}

// TestLinkDeadlines: a deadline ends a wait, and the link continues.
func TestLinkDeadlines(t *testing.T) {
	r := newRoads(t)
	a, b := couple(t, r, 0)
	a.Conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if _, err := a.Conn.Read(make([]byte, 1)); err == nil || !isTimeout(err) {
		t.Errorf("read: %v", err)
	}
	a.Conn.SetReadDeadline(time.Time{})
	var wrote int
	end := time.Now().Add(30 * time.Second)
	for err := error(nil); err == nil || wrote < stream.Window && time.Now().Before(end); {
		a.Conn.SetWriteDeadline(time.Now().Add(time.Second))
		var n int
		n, err = a.Conn.Write(make([]byte, 1<<20)) // not read: a window fits
		if wrote += n; err != nil && !isTimeout(err) {
			t.Errorf("write: %v", err)
		}
	}
	if wrote < stream.Window {
		t.Errorf("only %d bytes were taken", wrote)
	}
	a.Conn.SetWriteDeadline(time.Time{})
	if _, err := io.ReadFull(b.Conn, make([]byte, wrote)); err != nil {
		t.Fatal(err)
	}
	pump(t, a, b, 1<<20)
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}
