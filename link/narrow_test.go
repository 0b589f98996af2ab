package link

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// setNarrow makes large packets vanish on all roads, or pass again.
func (r *roads) setNarrow(narrow bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hole = narrow
}

// TestLargePacketsVanishFromTheStart: where connections carry nothing after the first full-sized
// packet, the handshake detects it and not the stream, and the link is established with small
// packets.
func TestLargePacketsVanishFromTheStart(t *testing.T) {
	plainAndSealed(t, func(t *testing.T, r *roads) {
		r.setNarrow(true)
		a, b := couple(t, r, 0)
		if !a.Path.Small {
			t.Errorf("the link is on %v", a.Path)
		}
		pump(t, a, b, 4<<20)
	})
}

// TestLargePacketsVanishUnderWay: the stream continues in small packets, whether the link has a
// relay in addition or only relays, and in large ones when they pass again.
func TestLargePacketsVanishUnderWay(t *testing.T) {
	for name, technique := range map[string]overlay.Technique{"direct": overlay.Direct, "relay": overlay.Relay} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRoads(t)
				if technique == overlay.Relay {
					r.block(overlay.Direct, overlay.ErrRefused)
				}
				a, b := couple(t, r, 0)
				pump(t, a, b, 1<<20)
				r.setNarrow(true)
				pump(t, a, b, 4<<20)
				dialler := a
				if !a.Dialled {
					dialler = b
				}
				if used := usedPaths(dialler); len(used) == 0 || !used[0].Small {
					t.Errorf("the link goes by %v", used)
				}
				r.setNarrow(false)
				for end := time.Now().Add(time.Minute); ; {
					if used := usedPaths(dialler); len(used) == 1 && !used[0].Small && used[0].Technique == technique {
						break
					} else if time.Now().After(end) {
						t.Fatalf("large packets pass again, and the link still goes by %v", used)
					}
					pump(t, a, b, 1<<10)
				}
			})
		})
	}
}

// usedPaths returns the paths on which an end sends.
func usedPaths(l *Link) (paths []overlay.Path) {
	for _, c := range l.Carriers() {
		if c.Used {
			paths = append(paths, c.Path)
		}
	}
	return paths
}

// TestDiallerGivesUpFirst: where large packets vanish and there is no relay, the dialler reports
// that nothing arrived, which makes its helper try small packets, also if its helper handed the
// carrier over later than the peer's helper did.
func TestDiallerGivesUpFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		low := &swallower{accepts: make(chan overlay.Carrier, 8), outcomes: make(chan error, 8)}
		high := &swallower{accepts: make(chan overlay.Carrier, 8)}
		low.peer = high
		a, b := startEnd(identity(t, 0), 2, low), startEnd(identity(t, 1), 2, high)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			a.mesh.Connect(ctx, 1)
		}()
		if err := <-low.outcomes; !stalled(err) {
			t.Errorf("reported of the path: %v", err)
		}
		cancel()
		<-ended
		a.close(t)
		b.close(t)
	})
}

// swallower is a process's connector whose only path carries nothing but the end of a connection.
type swallower struct {
	peer     *swallower
	accepts  chan overlay.Carrier
	outcomes chan error // of dials
}

// slowHandover is how long after the peer the dialler gets its carrier: a race of techniques waits
// that long for a better one.
const slowHandover = 500 * time.Millisecond

func (s *swallower) Dial(ctx context.Context, _ overlay.ProcessName, ways overlay.Ways) (overlay.Carrier, error) {
	if ways.Techniques() == overlay.RelayOnly {
		return overlay.Carrier{}, overlay.ErrNoPath
	}
	near, far := net.Pipe()
	path := overlay.Path{Technique: overlay.Direct}
	s.peer.accepts <- overlay.Carrier{Conn: swallowing{far}, Path: path}
	select {
	case <-time.After(slowHandover):
		return overlay.Carrier{Conn: swallowing{near}, Path: path, Outcome: func(err error) { s.outcomes <- err }}, nil
	case <-ctx.Done():
		near.Close()
		return overlay.Carrier{}, ctx.Err()
	}
}

func (s *swallower) Accept(ctx context.Context) (overlay.Carrier, error) {
	select {
	case c := <-s.accepts:
		return c, nil
	case <-ctx.Done():
		return overlay.Carrier{}, ctx.Err()
	}
}

func (s *swallower) Close() error { return nil }

// swallowing is a connection on which nothing that is written arrives. Its errors are of the type
// that a socket's have.
type swallowing struct{ net.Conn }

func (c swallowing) Write(b []byte) (int, error) { return len(b), nil }

func (c swallowing) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = &net.OpError{Op: "read", Net: "pipe", Err: err}
	}
	return n, err
}

// TestWaysBackAndUp tests waysBack and waysUp as tables.
func TestWaysBackAndUp(t *testing.T) {
	const small, full = overlay.SmallPackets, overlay.FullPackets
	for _, c := range []struct {
		what      string
		got, want []overlay.Ways
	}{
		{"a carrier that was reset", waysBack(false, false), []overlay.Ways{overlay.AllWays}},
		{"a silent one", waysBack(true, false), []overlay.Ways{overlay.AllWays, overlay.RelayOnly | small}},
		{"a silent relay", waysBack(true, true), []overlay.Ways{overlay.AllWays, overlay.AllWays | small}},
		{"from a relay", quality{class: overlay.Relay}.waysUp(), []overlay.Ways{overlay.DirectOnly}},
		{"from a relay in small packets", quality{class: overlay.Relay, small: true}.waysUp(), []overlay.Ways{overlay.DirectOnly, overlay.AllWays | full}},
		{"from a direct path in small packets", quality{class: overlay.Direct, small: true}.waysUp(), []overlay.Ways{overlay.AllWays | full}},
	} {
		if len(c.got) != len(c.want) {
			t.Fatalf("%s: %v, want %v", c.what, c.got, c.want)
		}
		for i := range c.got {
			if c.got[i] != c.want[i] {
				t.Errorf("%s: %v, want %v", c.what, c.got, c.want)
			}
		}
	}
}
