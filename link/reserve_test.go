package link

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/link/internal/memnet"
	"github.com/isthmus-grid/isthmus/overlay"
)

// warehouse keeps a relay ready for the two ends of a link, as two helpers do, each at a site of
// its own.
type warehouse struct {
	mu     sync.Mutex
	asked  [2]int
	kept   [2]*memnet.Conn
	lacks  int // the end that never has its relay; none: -1
	taken  [2]int
	inUse  []*memnet.Conn
	tested *testing.T
}

// stored is the connector of one end.
type stored struct {
	overlay.Connector
	*warehouse
	rank uint32
	site func(rank uint32) overlay.SiteID
}

func (s stored) there(c overlay.Carrier, err error) (overlay.Carrier, error) {
	c.Here.Site, c.Path.Peer.Site = s.site(s.rank), s.site(1-s.rank)
	return c, err
}

func (s stored) Accept(ctx context.Context) (overlay.Carrier, error) {
	return s.there(s.Connector.Accept(ctx))
}

func (s stored) Dial(ctx context.Context, peer overlay.ProcessName, ways overlay.Ways) (overlay.Carrier, error) {
	if ways != overlay.Reserved {
		return s.there(s.Connector.Dial(ctx, peer, ways))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.kept[s.rank]
	if c == nil || s.lacks == int(s.rank) {
		return overlay.Carrier{}, fmt.Errorf("%w: none is kept", overlay.ErrNoRelay)
	}
	s.kept[s.rank] = nil
	s.taken[s.rank]++
	s.inUse = append(s.inUse, c)
	return s.there(overlay.Carrier{Conn: c, Path: overlay.Path{Technique: overlay.Relay, Reason: "kept"}}, nil)
}

// Reserve implements overlay.Reserver.
func (s stored) Reserve(peer overlay.ProcessName, life overlay.Generation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if peer.Rank != 1-s.rank || life == 0 {
		s.tested.Errorf("rank %d wants a relay to %v in generation %d", s.rank, peer, life)
	}
	s.asked[s.rank]++
	if s.kept[s.rank] == nil {
		s.drop()
		s.kept[0], s.kept[1] = memnet.Pair(memnet.Options{Delay: delay})
	}
}

func (w *warehouse) drop() {
	for i, c := range w.kept {
		if c != nil {
			c.Close()
		}
		w.kept[i] = nil
	}
}

// cut ends the relays that were taken.
func (w *warehouse) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.inUse {
		c.Reset()
	}
	w.inUse = nil
}

// wait waits until a condition on the warehouse holds.
func (w *warehouse) wait(what string, is func() bool) {
	w.tested.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		w.mu.Lock()
		so := is()
		w.mu.Unlock()
		if so {
			return
		}
		if time.Now().After(end) {
			w.tested.Fatalf("waited for %s: asked %v, taken %v", what, w.asked, w.taken)
		}
	}
}

// reserved links two ends that keep a relay ready.
func reserved(t *testing.T, r *roads, site func(rank uint32) overlay.SiteID) (w *warehouse, a, b *Link) {
	w = &warehouse{lacks: -1, tested: t}
	a, b = couple(t, r, 0, func(rank uint32, c overlay.Connector) overlay.Connector {
		return stored{c, w, rank, site}
	})
	t.Cleanup(func() { w.mu.Lock(); defer w.mu.Unlock(); w.drop() })
	return w, a, b
}

func siteOf(rank uint32) overlay.SiteID { return overlay.SiteID(fmt.Sprint("site", rank)) }

// TestReserve: a link all of whose paths fall silent while no daemon can be asked for another
// continues over the relay that is kept for it, and gets another one afterwards.
func TestReserve(t *testing.T) { plainAndSealed(t, linkHasReserve) }

func linkHasReserve(t *testing.T, r *roads) {
	w, a, b := reserved(t, r, siteOf)
	pump(t, a, b, 1<<20)
	for round := range 2 {
		w.wait("a relay to be kept", func() bool { return w.kept[0] != nil && w.kept[1] != nil })
		r.block(overlay.Direct, errors.New("nobody can be asked"))
		r.block(overlay.Relay, errors.New("nobody can be asked"))
		r.mute(overlay.Direct, overlay.Relay)
		w.cut() // before the ends can have taken what is kept
		r.cut()
		pump(t, a, b, 1<<20)
		w.wait("both ends to take it", func() bool { return w.taken == [2]int{round + 1, round + 1} })
		if path, _ := a.Current(); path.Reason != "kept" {
			t.Errorf("the link goes on by %v, %s", path, path.Reason)
		}
		r.block(overlay.Direct, nil)
		r.block(overlay.Relay, nil)
	}
}

// TestReserveOfOneEnd: it blocks nothing if the other end does not dial its reserve, and the relay
// that was used in vain is replaced.
func TestReserveOfOneEnd(t *testing.T) {
	for lacks := range 2 {
		t.Run(fmt.Sprint("rank ", lacks, " has none"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRoads(t)
				w, a, b := reserved(t, r, siteOf)
				pump(t, a, b, 1<<20)
				w.wait("a relay to be kept", func() bool { w.lacks = lacks; return w.kept[1-lacks] != nil })
				r.cut()
				pump(t, a, b, 1<<20)
				w.wait("the relay to be taken", func() bool { return w.taken[1-lacks] == 1 })
				if path, _ := a.Current(); path.Reason == "kept" {
					t.Errorf("the link goes on by %v, of which it has one end", path)
				}
				w.wait("another relay to be kept", func() bool { return w.kept[1-lacks] != nil })
			})
		})
	}
}

// TestNoReserveWithinASite: processes of one site use no reserves.
func TestNoReserveWithinASite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoads(t)
		w, a, b := reserved(t, r, func(uint32) overlay.SiteID { return "site" })
		for range 3 {
			pump(t, a, b, 1<<20)
			time.Sleep(reserveAfter / 2)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.asked != [2]int{} {
			t.Errorf("asked for %v", w.asked)
		}
	})
}
