//go:build system

package coordinate

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/nat/coordinate/coordinatepb"
	"github.com/isthmus-grid/isthmus/internal/nat/punch"
	"github.com/isthmus-grid/isthmus/lab/wan"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// mustPunch makes one traversal by hole punching; the connections stay open.
func (w *world) mustPunch(what, a, b string, offers int) met {
	w.t.Helper()
	m, err := w.traverse(overlay.HolePunching, a, b, 0)
	if err == nil {
		err = swap(m.asker, m.target)
	}
	if err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
	if m.offers != offers {
		w.t.Errorf("%s: %d offers, want %d", what, m.offers, offers)
	}
	w.t.Cleanup(m.abort)
	return m
}

func (m met) abort() {
	m.asker.(*punch.Conn).Abort()
	m.target.(*punch.Conn).Abort()
}

// id names the tunnel of a traversal's connection.
func (m met) id() [punch.TokenLen]byte { return m.asker.(*punch.Conn).Tunnel().ID() }

// byStream reports whether the last offer was for a stream.
func (m met) byStream() bool {
	var o coordinatepb.PunchOffer
	return unmarshal(m.last, &o) == nil && len(o.Tunnel) > 0
}

// TestTunnels: two hosts that have a tunnel open streams in it, whichever asks, for as long as both
// keep it.
func TestTunnels(t *testing.T) {
	w := newWorld(t, "syn-drop", "nat")
	const a, b = "a-nat", "b-syn-drop"
	first := w.mustPunch("first", a, b, 1)
	if first.byStream() {
		t.Fatal("the first traversal went by a stream")
	}
	second := w.mustPunch("second", a, b, 1)
	back := w.mustPunch("from the other end", b, a, 1)
	first.abort()
	third := w.mustPunch("after the first link's end", a, b, 1)
	for _, m := range []met{second, back, third} {
		if !m.byStream() || m.id() != first.id() {
			t.Errorf("a traversal went by another tunnel: %x, not %x", m.id(), first.id())
		}
		m.abort()
	}
	if m := w.mustPunch("after the last link's end", a, b, 1); m.id() != first.id() {
		t.Error("the tunnel was not kept")
	}

	// A target that has lost the tunnel reports that, and the asker makes another.
	sb, _ := w.side(b)
	sb.PortPool.mu.Lock()
	sb.PortPool.removeTunnel(first.id())
	sb.PortPool.mu.Unlock()
	if m := w.mustPunch("lost at the target", a, b, 2); m.id() == first.id() {
		t.Error("the lost tunnel is used")
	}
	if m := w.mustPunch("after that", a, b, 1); m.id() == first.id() || !m.byStream() {
		t.Error("the new tunnel is not used")
	}
}

// TestDeadTunnel: a tunnel whose path has died without either end noticing costs an offer.
func TestDeadTunnel(t *testing.T) {
	w := newWorld(t, "syn-drop")
	const a, b = "a-syn-drop", "b-syn-drop"
	shape := func(s wan.Shape) {
		for _, way := range [][2]string{{a, b}, {b, a}} {
			if err := w.SetWAN(way[0], way[1], s); err != nil {
				t.Fatal(err)
			}
		}
	}
	open := wan.Shape{Delay: 5 * time.Millisecond}
	first := w.mustPunch("first", a, b, 1)
	shape(wan.Shape{Delay: open.Delay, Loss: 1})
	w.carry = func(offer int, b []byte) {
		if offer == 2 {
			shape(open)
		}
	}
	if m := w.mustPunch("on a dead path", a, b, 2); m.id() == first.id() {
		t.Error("the dead tunnel is used")
	}
}

// TestWhoMayUseTunnels: an offer that names neither a tunnel to its sender nor a token that the
// sender's stream presents gets no stream.
func TestWhoMayUseTunnels(t *testing.T) {
	w := newWorld(t, "syn-drop")
	const a, b = "a-syn-drop", "b-syn-drop"
	id := w.mustPunch("first", a, b, 1).id()
	sb, hb := w.side(b)
	token := make([]byte, punch.TokenLen)
	for name, tc := range map[string]struct {
		peer  string
		offer *coordinatepb.PunchOffer
		class error
	}{
		"another peer":       {"somebody", &coordinatepb.PunchOffer{Tunnel: id[:], Token: token}, overlay.ErrStale},
		"another tunnel":     {a, &coordinatepb.PunchOffer{Tunnel: token, Token: token}, overlay.ErrStale},
		"a token not shown":  {a, &coordinatepb.PunchOffer{Tunnel: id[:], Token: token}, overlay.ErrStale},
		"half a tunnel":      {a, &coordinatepb.PunchOffer{Tunnel: id[:8], Token: token}, wire.ErrMalformed},
		"no token":           {a, &coordinatepb.PunchOffer{Tunnel: id[:]}, wire.ErrMalformed},
		"a token and a half": {a, &coordinatepb.PunchOffer{Tunnel: id[:], Token: append(token, 1)}, wire.ErrMalformed},
	} {
		var c net.Conn
		err := hb.Do(func() (err error) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			c, err = sb.Answer(ctx, overlay.HolePunching, tc.peer, marshal(tc.offer), func([]byte) error {
				t.Errorf("%s: the offer was accepted", name)
				return nil
			})
			return err
		})
		if !errors.Is(err, tc.class) || c != nil {
			t.Errorf("%s: %v, %v, want %v", name, c, err, tc.class)
		}
	}
	// Without a port pool there are no tunnels.
	if _, err := (*PortPool)(nil).tunnelFrom(a, id[:]); !errors.Is(err, overlay.ErrStale) {
		t.Errorf("no port pool: %v", err)
	}
}

// waitFor waits for a tunnel's end.
func waitFor(t *testing.T, end *punch.Tunnel) {
	t.Helper()
	select {
	case <-end.Done():
	case <-time.After(time.Minute):
		t.Fatal("the tunnel does not end")
	}
}

// TestPortPoolReleasesTunnels: with the port pool, tunnels without streams end, and the others with
// their streams.
func TestPortPoolReleasesTunnels(t *testing.T) {
	w := newWorld(t, "syn-drop", "stateful")
	idle := w.mustPunch("idle", "a-syn-drop", "b-syn-drop", 1)
	used := w.mustPunch("used", "a-stateful", "b-stateful", 1)
	idle.abort()
	if ended(idle.asker.(*punch.Conn).Tunnel()) {
		t.Fatal("the tunnel was not kept")
	}
	for _, s := range w.sides {
		s.PortPool.close()
	}
	for _, c := range []net.Conn{idle.asker, idle.target} {
		waitFor(t, c.(*punch.Conn).Tunnel())
	}
	if err := swap(used.asker, used.target); err != nil {
		t.Errorf("a link whose port pool has ended: %v", err)
	}
	used.abort()
	for _, c := range []net.Conn{used.asker, used.target} {
		waitFor(t, c.(*punch.Conn).Tunnel())
	}
	w.mustPunch("without a port pool", "a-syn-drop", "b-syn-drop", 1).abort()
	if m := w.mustPunch("again", "a-syn-drop", "b-syn-drop", 1); m.byStream() {
		t.Error("a port pool that has ended keeps tunnels")
	}
}

// TestFullPortPool: a tunnel for which a port pool has no room ends with its streams, and the pool
// makes room when tunnels have ended.
func TestFullPortPool(t *testing.T) {
	w := newWorld(t, "syn-drop")
	const a, b = "a-syn-drop", "b-syn-drop"
	sa, _ := w.side(a)
	first := w.mustPunch("first", a, b, 1)
	tunnelOf := first.asker.(*punch.Conn).Tunnel()
	sa.PortPool.mu.Lock()
	clear(sa.PortPool.newest)
	for i := range maxTunnels {
		sa.PortPool.tunnels[[punch.TokenLen]byte{byte(i), byte(i >> 8), 1}] = tunnel{tunnelOf, "another"}
	}
	sa.PortPool.mu.Unlock()
	m := w.mustPunch("with a full port pool", a, b, 1)
	m.abort()
	waitFor(t, m.asker.(*punch.Conn).Tunnel())
	if ended(tunnelOf) {
		t.Fatal("the first tunnel was not kept")
	}
	tunnelOf.Keep(0)
	first.abort()
	waitFor(t, tunnelOf)
	sa.PortPool.expire(time.Now())
	sa.PortPool.mu.Lock()
	defer sa.PortPool.mu.Unlock()
	if len(sa.PortPool.tunnels) > 0 {
		t.Errorf("%d tunnels that have ended are still held", len(sa.PortPool.tunnels))
	}
}
