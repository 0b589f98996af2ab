//go:build system

package paths

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// onlyPunching leaves hole punching and the relay to two sites behind stateful firewalls.
var onlyPunching = []string{"simultaneous-open", "traversing", "reversed"}

// newMeasured returns a world of sites a and b of a preset, with the given number of nodes, whose
// profiles are measured except for the forbidden techniques.
func newMeasured(t *testing.T, preset string, nodes int, forbidden ...string) *world {
	t.Helper()
	labtest.NeedLab(t)
	program := labtest.Program(t, "")
	ctx, cancel := context.WithTimeoutCause(context.Background(), labtest.Patience, fmt.Errorf("%s: not done after %v", t.Name(), labtest.Patience))
	t.Cleanup(cancel)
	text := fmt.Sprintf("wan: {rtt: 20ms, rate: 100Mbit}\nsites:\n%s  - {name: a, preset: %s, nodes: %d}\n  - {name: b, preset: %s, nodes: %d}\n", labtest.SitePublic, preset, nodes, preset, nodes)
	spec, err := lab.Parse(t.Name(), []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	l, err := lab.Up(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	settings := map[string]map[string]any{}
	for _, site := range []string{"a", "b"} {
		settings["frontal "+site] = map[string]any{"profile": map[string]any{"forbidden": forbidden}}
	}
	g, err := grid.Start(ctx, l, grid.Config{
		Broker: "public/broker", Proxies: []string{"public/p1"}, Settings: settings,
		Binary: func(daemon string) []string { return []string{program, daemon} },
	})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{&labtest.World{Grid: g, T: t, Ctx: ctx}}
	t.Cleanup(w.End)
	s, done, err := g.Admin(ctx, "broker")
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	awaitMeasured(t, s)
	return w
}

// A stream sends on a link as much as it takes, and checks what arrives.
type streamed struct {
	arrived atomic.Uint64
	stop    func() error // ends it, and returns its error
}

// stream starts one from the near end to the far one.
func (w *world) stream(j *labtest.Pair) *streamed {
	s := new(streamed)
	var ends sync.WaitGroup
	over := make(chan struct{})
	sent, got := sha256.New(), sha256.New()
	var sendErr, readErr error
	ends.Go(func() {
		piece := make([]byte, 64<<10)
		for i := uint64(0); ; i++ {
			select {
			case <-over:
				sendErr = j.Near.Conn.CloseWrite()
				return
			default:
			}
			copy(piece, fmt.Sprint(i))
			sent.Write(piece)
			if _, sendErr = j.Near.Conn.Write(piece); sendErr != nil {
				return
			}
		}
	})
	ends.Go(func() {
		buf := make([]byte, 64<<10)
		for {
			n, err := j.Far.Conn.Read(buf)
			got.Write(buf[:n])
			s.arrived.Add(uint64(n))
			if err != nil {
				if err != io.EOF {
					readErr = err
				}
				return
			}
		}
	})
	s.stop = sync.OnceValue(func() error {
		close(over)
		ends.Wait()
		if err := errors.Join(sendErr, readErr); err != nil {
			return err
		}
		if string(sent.Sum(nil)) != string(got.Sum(nil)) {
			return errors.New("what arrived is not what was sent")
		}
		return nil
	})
	w.T.Cleanup(func() { s.stop() })
	return s
}

// carriedBy returns the technique by which the near end sends.
func carriedBy(j *labtest.Pair) overlay.Technique {
	p, _ := j.Near.Current()
	return p.Technique
}

// punchingIsPoor reports whether a reason says that hole punching was given up: for what
// it carried, or because it fell silent again and again, which it does too where so little
// passes.
func punchingIsPoor(reason string) bool {
	return strings.Contains(reason, "hole-punching carried ") || strings.Contains(reason, "hole-punching fell silent ")
}

// Two sites punch holes, and then their datagrams are policed to a trickle: the link moves to the
// relay with what that carries, stays there, reports the reason, and the next link of the sites
// begins there.
func TestPolicedAfterTheLinkCameUp(t *testing.T) {
	t.Parallel() // most of it is waiting
	w := newMeasured(t, "stateful", 1, onlyPunching...)
	j := w.LinkPair("a/n1", "b/n1")
	w.Until("the link to be punched", func() bool { return carriedBy(j) == overlay.HolePunching })
	s := w.stream(j)
	w.Until("bytes to flow", func() bool { return s.arrived.Load() > 4<<20 })
	flow := lab.Everything(w.Lab.Host("a/n1").Addr(), w.Lab.Host("b/n1").Addr())
	if _, err := w.Lab.Host("a/gw").Police(flow, 40_000); err != nil {
		t.Fatal(err)
	}
	at := s.arrived.Load()
	w.Until("the link to move to the relay", func() bool { return carriedBy(j) == overlay.Relay })
	w.Until("the path to say why", func() bool {
		p, _ := j.Near.Current()
		return punchingIsPoor(p.Reason)
	})
	p, _ := j.Near.Current()
	t.Logf("%v: %s", p, p.Reason)
	w.Until("more than the policed path carries in patience", func() bool { return s.arrived.Load() > at+12<<20 })
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if by := carriedBy(j); by != overlay.Relay {
			t.Fatalf("it went back to %v", by)
		}
	}
	if err := s.stop(); err != nil {
		t.Error(err)
	}
	next := w.JoinPair("a/n1", "b/n1")
	w.Connect(next)
	w.Exchange(next)
	if p := next.Near.Path; p.Technique != overlay.Relay || !punchingIsPoor(p.Reason) {
		t.Errorf("the next link is by %v: %s", p, p.Reason)
	}
}

// Sites whose datagrams are policed from the start, or blocked after a while, are connected by a
// technique that carries data, and stay so.
func TestPoorUDP(t *testing.T) {
	t.Parallel() // most of it is waiting
	for _, preset := range []string{"policed-udp", "udp-dies"} {
		t.Run(preset, func(t *testing.T) {
			t.Parallel()
			w := newMeasured(t, preset, 1, onlyPunching...)
			j := w.LinkPair("a/n1", "b/n1")
			s := w.stream(j)
			w.Until("bytes to flow", func() bool { return s.arrived.Load() > 4<<20 })
			had := s.arrived.Load()
			// Whatever is tried meanwhile: most of it uses a path that carries data.
			w.idle(j, 30*time.Second)
			if moved := s.arrived.Load() - had; moved < 6<<20 {
				t.Errorf("%d bytes in 30 s", moved)
			}
			if err := s.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A firewall that forgets idle connections after 20 s sees none idle for so long: a link that was
// not used for 45 s continues on the same carriers.
func TestIdleFor20Seconds(t *testing.T) {
	t.Parallel() // most of it is waiting
	w := newMeasured(t, "idle-20s", 1)
	j := w.LinkPair("a/n1", "b/n1")
	before := settledCarriers(t, j)
	w.idle(j, 45*time.Second)
	w.Exchange(j)
	if after := carriersOf(j); after != before {
		t.Errorf("a carrier was lost while nothing passed: %v", j.Near.Carriers())
	}
}

// Although a site may open only five connections per second, an all-to-all of eight ranks is
// connected.
func TestFewSYNs(t *testing.T) {
	t.Parallel() // most of it is waiting
	const size = 8
	w := newMeasured(t, "syn-rate-5", size/2)
	key := labtest.NewKey(t, "few")
	var members [size]*labtest.Member
	for i := range members {
		members[i] = w.Join(key, fmt.Sprintf("%s/n%d", []string{"a", "b"}[i%2], 1+i/2), uint32(i), size)
	}
	var all sync.WaitGroup
	for i, m := range members {
		for peer := range uint32(size) {
			if peer != uint32(i) {
				all.Go(func() {
					if err := m.Mesh.Connect(w.Ctx, peer); err != nil {
						t.Errorf("%d to %d: %v", i, peer, err)
					}
				})
			}
		}
	}
	all.Wait()
}
