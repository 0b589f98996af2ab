//go:build system

package simopen

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/nat/simopen/gridtest"
	"github.com/isthmus-grid/isthmus/overlay"
)

// TestSkew lets ends start apart from each other. For silent sites that does not matter; those that
// answer with a reset need attempts that cross.
func TestSkew(t *testing.T) {
	g := newGrid(t, "open", "syn-drop", "syn-reset", "stateful", "stateful-reject", "stateful-strict", "nat", "nat-answers", "nat-random")
	const seed = 7
	r := rand.New(rand.NewPCG(seed, seed))
	upTo := func(d time.Duration) func() time.Duration {
		return func() time.Duration { return time.Duration(r.Int64N(int64(d))) }
	}
	exactly := func(d time.Duration) func() time.Duration { return func() time.Duration { return d } }
	for _, tc := range []struct {
		a, b string
		runs int
		skew func() time.Duration
	}{
		{"nat", "nat", 10, upTo(30 * ms)},
		{"stateful-strict", "stateful-strict", 10, upTo(30 * ms)},
		{"nat-random", "nat-random", 10, upTo(30 * ms)},
		{"stateful", "open", 10, upTo(30 * ms)},
		{"stateful", "stateful", 3, exactly(500 * ms)}, // longer than Patience
		{"nat", "nat", 3, exactly(-500 * ms)},
		{"syn-drop", "stateful", 5, exactly(70 * ms)}, // the SYN that should pass a hole arrives too early
		{"stateful", "stateful-reject", 10, exactly(15 * ms)},
		{"stateful-reject", "stateful-reject", 10, upTo(30 * ms)},
		{"stateful-reject", "stateful-reject", 10, exactly(60 * ms)}, // off the grid by half a step: without jitter no retry crosses
		{"nat-answers", "nat-answers", 10, exactly(60 * ms)},
		{"syn-reset", "stateful", 10, upTo(30 * ms)},
	} {
		var mu sync.Mutex
		var took []time.Duration
		jobs := make([]func(), tc.runs)
		for i := range jobs {
			skew := tc.skew()
			jobs[i] = func() {
				m, err := g.try(tc.a, tc.b, overlay.Ports{}, skew, Options{Bound: 10 * time.Second, Retries: 1000})
				m, err = g.again(m, err, tc.a, tc.b, overlay.Ports{}, skew, Options{Bound: 10 * time.Second, Retries: 1000})
				defer m.close()
				if err == nil {
					err = m.err()
				}
				mu.Lock()
				defer mu.Unlock()
				if took = append(took, m.took); err != nil {
					t.Errorf("%s, %s, skew %v (seed %d): %v", tc.a, tc.b, skew, seed, err)
				}
			}
		}
		gridtest.Limited(3, jobs)
		t.Logf("%s, %s: %s", tc.a, tc.b, gridtest.Times(took))
	}
}

// TestLimitedEgress: sites that let out only port 443 meet peers that dial from it; sites that let
// out nothing never do.
func TestLimitedEgress(t *testing.T) {
	g := newGrid(t, "egress-443", "stateful", "no-udp", "nat")
	port443 := overlay.Ports{First: 443, Last: 443}
	for _, pair := range [][2]string{
		{"egress-443", "egress-443"}, {"egress-443", "stateful"}, {"no-udp", "egress-443"}, {"no-udp", "stateful"}, {"nat", "egress-443"},
	} {
		m, err := g.try(pair[0], pair[1], port443, 0, Options{})
		if err == nil {
			err = errors.Join(m.agree, m.err())
		}
		if err != nil {
			t.Errorf("%v: %v", pair, err)
		}
		m.close()
	}
	m, err := g.try("egress-443", "stateful", overlay.Ports{First: 5000, Last: 6000}, 0, Options{Bound: 1200 * ms})
	defer m.close()
	if err != nil || m.agree == nil || m.err() == nil {
		t.Errorf("from another port than 443: %v, %v, %v", err, m.agree, m.err())
	}
}

// A node that may only reach an HTTP proxy reaches no reflector.
func TestNoEgress(t *testing.T) {
	g := newGrid(t, "http-proxy")
	if e, err := g.prepare("a", "http-proxy", overlay.Ports{}); !errors.Is(err, overlay.ErrTimeout) || !strings.Contains(err.Error(), "no reflector answered") {
		t.Errorf("%+v, %v", e, err)
	}
}

// TestErrors: the error texts when it does not work.
func TestErrors(t *testing.T) {
	g := newGrid(t, "nat-symmetric", "stateful", "stateful-reject")
	at := time.Now()
	for _, tc := range []struct {
		preset string
		remote string // the lab's, or an address from which no peer dials
		class  error
		text   string
	}{
		{"nat-symmetric", "b-stateful/n1", ErrUnpredictable, "use hole punching or a relay"},
		{"stateful", "b-stateful/n1", overlay.ErrTimeout, "nothing answered 3 tries; either the peer did not dial"},
		{"stateful", "b-stateful-reject/n1", overlay.ErrRefused, "tries were answered by a reset"},
		{"stateful", "", overlay.ErrTimeout, "no SYN arrived from that address"},
	} {
		e, err := g.prepare("a", tc.preset, overlay.Ports{})
		if err != nil {
			t.Fatal(err)
		}
		remote := netip.AddrPortFrom(e.host.Addr(), 0)
		if tc.remote != "" {
			remote = netip.AddrPortFrom(g.Host(tc.remote).Addr(), 4444)
		}
		err = e.host.Do(func() error {
			_, err := e.port.Open(t.Context(), remote, at, Options{Retries: 2, Patience: 100 * ms, Bound: time.Since(at) + time.Second})
			return err
		})
		if !errors.Is(err, tc.class) || !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%s: %v; want %q", tc.preset, err, tc.text)
		}
		e.port.Close()
	}
}
