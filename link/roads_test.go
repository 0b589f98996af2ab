package link

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/link/internal/memnet"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// The rig for tests of links: meshes in a testing/synctest bubble, connected in memory. Paths that are
// slow, silent or blocked are values, and a machine that is busy with other things changes nothing.

// delay is what each of the two connections of a road adds to the way of a byte.
const delay = time.Millisecond

// roads connects the processes of a job by connections in memory on which faults can be injected.
type roads struct {
	t       *testing.T
	seal    bool // all connections are to be encrypted
	node    bool // all processes are on one node
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
	socket       net.Conn                             // what carriers show as their socket; nil: they have none
	carriers     int                                  // of each link; see Config
	hasAddress   func(rank uint32, a netip.Addr) bool // of both meshes; nil: the system's
	rates        []float64                            // of the next connections, in bytes per second; that of one that ends is available again
}

// road is one connection, with a relaying process in the middle.
type road struct {
	technique overlay.Technique
	a, b      *memnet.Conn // the ends in the middle
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
	o := memnet.Options{Delay: delay}
	switch {
	case e.smallBuffers:
		o.Buffer = 16 << 10
	case len(e.rates) > 0:
		o.Buffer = 64 << 10
	}
	a, ma := memnet.Pair(o)
	if len(e.forged) > 0 {
		code := e.forged[0]
		e.forged = e.forged[1:]
		e.busy.Go(func() { forge(ma, code) })
		return overlay.Carrier{Conn: a, Path: overlay.Path{Technique: technique}, Seal: e.seal}, nil
	}
	mb, b := memnet.Pair(o)
	w := &road{technique: technique, a: ma, b: mb, small: small, swallows: e.swallows[technique]}
	path := overlay.Path{Technique: technique, Small: small}
	if e.node {
		path = overlay.Path{}
	}
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
	e.open[w] = struct{}{}
	e.made++
	for _, d := range [][2]*memnet.Conn{{w.a, w.b}, {w.b, w.a}} {
		e.busy.Go(func() { w.carry(d[0], d[1], e.roads); w.close(); e.forget(w) })
	}
	e.ends[peer.Rank].accept <- overlay.Carrier{Conn: e.shown(b), Path: path, Seal: e.seal}
	outcome := func(err error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.outcomes[technique] = err
	}
	return overlay.Carrier{Conn: e.shown(a), Path: path, Seal: e.seal, Outcome: outcome}, nil
}

// shown returns a connection that shows the socket of the roads, if they have one.
func (r *roads) shown(c *memnet.Conn) net.Conn {
	if r.socket == nil {
		return c
	}
	return withSocket{c, r.socket}
}

type withSocket struct {
	*memnet.Conn
	socket net.Conn
}

func (c withSocket) NetConn() net.Conn { return c.socket }

// forge answers a dialler in place of its peer, and refuses it.
func forge(c *memnet.Conn, code wire.Code) {
	defer c.Close()
	h, err := receive[*wire.Hello](c, "hello")
	if err != nil {
		return
	}
	h.From, h.Dialled, h.Link, h.Again = h.To, false, wire.ID{}, false
	c.Write(wire.Append(nil, h))
	c.Write(wire.Append(nil, &wire.Refuse{Code: code, By: "your peer", Text: "go away"}))
	c.CloseWrite()
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

func (w *road) carry(from, to *memnet.Conn, r *roads) {
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
			if now := time.Now(); due.Before(now) {
				due = now
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
	w.a.Reset()
	w.b.Reset()
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

// widest ends the roads with a limit: a mesh that leaves writes its last word with the stream locked,
// and in a bubble whoever waits for that lock would keep time from passing.
func (r *roads) widest() {
	r.all(func(w *road) {
		if w.rate > 0 || r.narrow[w.technique] > 0 {
			w.close()
		}
	})
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
	return linked(links[0]), linked(links[1])
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
		t.Cleanup(func() {
			r.widest()
			cancel()
			served.Wait()
		})
	}
	return links, meshes
}

// linked returns the link that was handed up, or is next.
func linked(links <-chan *Link) *Link { return <-links }

// pump sends n random bytes each way at once, in pieces of all sizes, and checks that they arrive
// unchanged.
func pump(t *testing.T, a, b *Link, n int) {
	t.Helper()
	for _, l := range []*Link{a, b} {
		l.Conn.SetDeadline(time.Now().Add(time.Hour)) // in a bubble, where tickers go on for ever, nothing else ends a wait in vain
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

// plainAndSealed runs a test over plain connections and over encrypted ones.
func plainAndSealed(t *testing.T, test func(*testing.T, *roads)) {
	for name, seal := range map[string]bool{"plain": false, "sealed": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRoads(t)
				r.seal = seal
				test(t, r)
			})
		})
	}
}
