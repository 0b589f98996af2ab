package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// TestPathThatCarriesNoHandshake: a path that connects and then carries nothing, or only the first
// bytes, does not block a link for which there is a relay, and is reported as failed; the relay is
// reported as connected.
func TestPathThatCarriesNoHandshake(t *testing.T) {
	for _, carries := range []int{1, 63, 200} {
		for _, seal := range []bool{false, true} {
			if carries == 200 && !seal {
				continue // the whole handshake is shorter
			}
			t.Run(fmt.Sprintf("%d bytes, sealed %v", carries, seal), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { carriesNoHandshake(t, carries, seal) })
			})
		}
	}
}

func carriesNoHandshake(t *testing.T, carries int, seal bool) {
	r := newRoads(t)
	r.seal = seal
	r.swallows[overlay.Direct] = carries
	a, b := couple(t, r, 0)
	if a.Path.Technique != overlay.Relay || b.Path.Technique != overlay.Relay {
		t.Errorf("the link is over %v and %v", a.Path, b.Path)
	}
	r.block(overlay.Direct, errors.New("looks for better paths are of no interest here"))
	pump(t, a, b, 1<<20)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.outcomes[overlay.Direct]; !errors.Is(err, errTrickle) {
		t.Errorf("of the path that carried next to nothing was said: %v", err)
	}
	if err, told := r.outcomes[overlay.Relay]; !told || err != nil {
		t.Errorf("of the relay was said: %v, %v", told, err)
	}
}

// TestSlowDial: dials that take all of their time leave the handshake time of its own, and nothing is
// reported against the path.
func TestSlowDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoads(t)
		slow := new(atomic.Bool)
		a, b := couple(t, r, 0, func(_ uint32, c overlay.Connector) overlay.Connector { return lateDials{c, slow} })
		slow.Store(true)
		r.cut()
		pump(t, a, b, 1<<20)
		r.mu.Lock()
		defer r.mu.Unlock()
		if err, told := r.outcomes[overlay.Direct]; !told || err != nil {
			t.Errorf("reported of the path: %v, %v", told, err)
		}
	})
}

// lateDials is a connector whose dials, once slow is set, connect at their deadline, to a peer that
// is a round trip away.
type lateDials struct {
	overlay.Connector
	slow *atomic.Bool
}

func (l lateDials) Dial(ctx context.Context, peer overlay.ProcessName, ways overlay.Ways) (overlay.Carrier, error) {
	if _, bounded := ctx.Deadline(); l.slow.Load() && bounded {
		<-ctx.Done()
		c, err := l.Connector.Dial(ctx, peer, ways)
		if err == nil {
			c.Conn = &farConn{Conn: c.Conn}
		}
		return c, err
	}
	return l.Connector.Dial(ctx, peer, ways)
}

// farConn is a connection on which the first bytes take a round trip to arrive.
type farConn struct {
	net.Conn
	once sync.Once
}

func (f *farConn) Read(b []byte) (int, error) {
	f.once.Do(func() { <-time.After(100 * time.Millisecond) })
	return f.Conn.Read(b)
}

// TestProofIsLost: the dialler takes its carrier for the link when it has sent its proof. If that
// never arrives, so that the other end has no link, the two still get one.
func TestProofIsLost(t *testing.T) {
	for broken := 1; broken <= 3; broken++ {
		t.Run(fmt.Sprint(broken, " carriers"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRoads(t)
				id := identity(t, 1)
				hello := len(wire.Append(nil, &wire.Hello{Job: id.Process.Job, From: 1}))
				for range broken {
					r.breaks = append(r.breaks, hello)
				}
				a, b := couple(t, r, 0)
				pump(t, a, b, 1<<20)
			})
		})
	}
}

// TestProofIsLate: the dialler's proof is delayed, so that it dials once more for its link; when
// the proof arrives after all, the link has both carriers and is unchanged.
func TestProofIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoads(t)
		r.holds = []int{len(wire.Append(nil, &wire.Hello{Job: identity(t, 1).Process.Job, From: 1}))}
		links, meshes := meshesOf(t, r, 0)
		released := sync.OnceFunc(func() { close(r.release) })
		defer released()
		if err := meshes[1].Connect(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		b := linked(links[1])
		if _, err := b.Conn.Write([]byte{7}); err != nil { // never acknowledged
			t.Fatal(err)
		}
		a := linked(links[0])
		one := make([]byte, 1)
		if _, err := io.ReadFull(a.Conn, one); err != nil || one[0] != 7 {
			t.Fatal(one, err)
		}
		released()
		pump(t, a, b, 1<<20)
		r.cut()
		pump(t, a, b, 1<<20) // the link is known, and gets another carrier
	})
}

// TestOnlyOneEndHasALink: the dialler has a link on which nothing arrives and does not know that
// the other end, which then dials itself, has none.
func TestOnlyOneEndHasALink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoads(t)
		defer close(r.release)
		r.halves = []int{len(wire.Append(nil, &wire.Hello{Job: identity(t, 1).Process.Job, From: 1}))}
		links, meshes := meshesOf(t, r, 0)
		if err := meshes[1].Connect(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if err := meshes[0].Connect(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		pump(t, linked(links[0]), linked(links[1]), 1<<20)
	})
}

// TestProofIsNotSent: the dialler's connection breaks when it is about to send its proof, after its
// pair has chosen this link.
func TestProofIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoads(t)
		a, b := couple(t, r, 0, func(rank uint32, c overlay.Connector) overlay.Connector {
			if rank == 1 {
				return &mutes{Connector: c}
			}
			return c
		})
		pump(t, a, b, 1<<20)
	})
}

// TestProofIsNotSentOnANode: the same between processes of one node, where only the end of the other process ends a connection.
func TestProofIsNotSentOnANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, meshes := meshesOf(t, newRoads(t), 0, func(rank uint32, c overlay.Connector) overlay.Connector {
			return &mutes{Connector: onANode{c}}
		})
		if err := meshes[1].Connect(t.Context(), 0); !errors.Is(err, overlay.ErrEnded) {
			t.Error(err)
		}
	})
}

// onANode is a connector that takes all processes for ones of this node.
type onANode struct{ overlay.Connector }

func (o onANode) Dial(ctx context.Context, peer overlay.ProcessName, ways overlay.Ways) (overlay.Carrier, error) {
	c, err := o.Connector.Dial(ctx, peer, ways)
	c.Path.Technique = 0
	return c, err
}

// mutes is a connector whose first connection breaks after one write.
type mutes struct {
	overlay.Connector
	dials int
}

func (m *mutes) Dial(ctx context.Context, peer overlay.ProcessName, ways overlay.Ways) (overlay.Carrier, error) {
	c, err := m.Connector.Dial(ctx, peer, ways)
	if m.dials++; err == nil && m.dials == 1 {
		c.Conn = &mute{Conn: c.Conn}
	}
	return c, err
}

type mute struct {
	net.Conn
	writes int
}

func (m *mute) Write(b []byte) (int, error) {
	if m.writes++; m.writes > 1 {
		return 0, io.ErrClosedPipe
	}
	return m.Conn.Write(b)
}

// A dial that goes over to another carrier while the pair holds it is asked about that one: the pair
// does not choose the carrier that was given up.
func TestHeldCarrierIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, meshes := meshesOf(t, newRoads(t), 0)
		m := meshes[1]
		m.mu.Lock()
		a := m.attemptFor(0)
		a.pair.wanted, a.pair.dialling, a.pair.granting = true, true, 5
		m.mu.Unlock()
		first, giveUp := context.WithCancel(t.Context())
		told := make(chan error, 1)
		go func() { told <- m.ready(first, a, 1) }()
		for !m.isHeld(a) {
			runtime.Gosched()
		}
		giveUp()
		if err := <-told; !errors.Is(err, overlay.ErrDuplicate) {
			t.Error(err)
		}
		m.mu.Lock()
		m.step(a, event{kind: evGrantFailed, id: 5})
		if a.phase != idle || !a.dialling {
			t.Errorf("after the carrier was given up: %+v", a.pair)
		}
		m.mu.Unlock()
		if err := m.ready(t.Context(), a, 1); err != nil || a.phase != up {
			t.Errorf("the next carrier: %v, %+v", err, a.pair)
		}
	})
}
