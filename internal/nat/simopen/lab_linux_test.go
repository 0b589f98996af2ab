//go:build system

package simopen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/nat/simopen/gridtest"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/overlay"
)

func TestMain(m *testing.M) {
	lab.Main()
	m.Run()
}

// oneWay is the delay between any two sites of the labs.
const oneWay = 10 * ms

// A grid is a lab for a test.
type grid struct {
	*gridtest.Grid
	t *testing.T
}

func newGrid(t *testing.T, presets ...string) *grid {
	t.Helper()
	return &grid{gridtest.Up(t, oneWay, Answer, presets...), t}
}

// An endpoint is a prepared and observed port of a host.
type endpoint struct {
	End
	host *lab.Host
	port *Port
}

// prepare prepares and observes a port of a site's node.
func (g *grid) prepare(site, preset string, ports overlay.Ports) (*endpoint, error) {
	e := &endpoint{host: g.Node(site, preset)}
	profile, err := lab.Profile(preset)
	if err != nil {
		return nil, err
	}
	e.Profile, e.Profile.Site = profile, overlay.SiteID(site)
	ctx, cancel := context.WithTimeout(g.t.Context(), 30*time.Second)
	defer cancel()
	err = e.host.Do(func() (err error) {
		if e.port, err = Prepare(ctx, e.host.Addr(), ports); err != nil {
			return err
		}
		e.Mapping, err = e.port.Observe(ctx, g.Reflectors)
		return errors.Join(err, e.Mapping.Failed)
	})
	if err != nil {
		if e.port != nil {
			e.port.Close()
		}
		return nil, fmt.Errorf("%s: %w", e.host.Name(), err)
	}
	var clock Clock
	clock.Add(e.Mapping.Samples[0])
	e.Clock, _ = clock.Estimate(time.Now())
	return e, nil
}

// trial is an attempt of two endpoints.
type trial struct {
	a, b         *endpoint
	agree        error // of Agree
	connA, connB *net.TCPConn
	errA, errB   error
	check        sync.Once // of the connection, which ends it
	result       error
	took         time.Duration // from the earlier of the agreed instants until both ends had the connection
}

func (m *trial) close() {
	for _, c := range []*net.TCPConn{m.connA, m.connB} {
		if c != nil {
			c.Close()
		}
	}
	for _, e := range []*endpoint{m.a, m.b} {
		if e != nil {
			e.port.Close()
		}
	}
}

// try prepares both ends and lets them open; B starts skew after the agreed instant. Pairs without
// an agreement are tried anyway.
func (g *grid) try(a, b string, ports overlay.Ports, skew time.Duration, o Options) (*trial, error) {
	m := new(trial)
	var err error
	if m.a, err = g.prepare("a", a, ports); err != nil {
		return m, err
	}
	if m.b, err = g.prepare("b", b, ports); err != nil {
		return m, err
	}
	ag, err := Agree(time.Now(), m.a.End, m.b.End)
	if m.agree = err; err != nil {
		at := time.Now().Add(20 * ms)
		ag.A = Start{At: at, Remote: m.b.Mapping.Outside, AnyPort: true, Patience: 140 * ms}
		ag.B = Start{At: at, Remote: m.a.Mapping.Outside, AnyPort: true, Patience: 140 * ms}
	}
	ag.B.At = ag.B.At.Add(skew)
	first := ag.A.At
	if ag.B.At.Before(first) {
		first = ag.B.At
	}
	var both sync.WaitGroup
	both.Go(func() { m.connA, m.errA = m.a.open(g.t.Context(), ag.A, o) })
	both.Go(func() { m.connB, m.errB = m.b.open(g.t.Context(), ag.B, o) })
	both.Wait()
	m.took = time.Since(first)
	return m, nil
}

func (e *endpoint) open(ctx context.Context, s Start, o Options) (conn *net.TCPConn, err error) {
	o.AnyPort = s.AnyPort
	if o.Patience == 0 {
		o.Patience = s.Patience
	}
	err = e.host.Do(func() (err error) {
		conn, err = e.port.Open(ctx, s.Remote, s.At, o)
		return err
	})
	return conn, err
}

// err returns why the trial did not yield a working connection, or nil.
func (m *trial) err() error {
	m.check.Do(func() {
		if m.result = errors.Join(m.errA, m.errB); m.result == nil {
			m.result = gridtest.Exchange(m.connA, m.connB)
		}
	})
	return m.result
}

// again makes a new agreement, up to twice, for two ends that should meet and did not: users of the
// package do so, too. An overloaded machine wakes an end so late that its instant is past, and
// where a site answers with resets, one late end fails the attempt.
func (g *grid) again(m *trial, err error, a, b string, ports overlay.Ports, skew time.Duration, o Options) (*trial, error) {
	for range 2 {
		if err == nil && m.err() == nil {
			break
		}
		g.t.Logf("%s, %s: once more after: %v", a, b, errors.Join(err, m.result))
		m.close()
		m, err = g.try(a, b, ports, skew, o)
	}
	return m, err
}

// possible reports which pairs can meet.
func possible(a, b string) bool {
	in := slices.Contains[[]string]
	switch {
	case in(gridtest.Reachable, a) || in(gridtest.Reachable, b):
		return true
	case a == "nat-symmetric" || b == "nat-symmetric":
		return false
	}
	return !in(gridtest.ByFlags, a) || !in(gridtest.ByFlags, b)
}

// TestEveryPair tries all 15 x 15 pairs at 10 ms one way, including the impossible ones: they must
// fail for good, and Agree must know beforehand.
func TestEveryPair(t *testing.T) {
	g := newGrid(t, gridtest.All...)
	begin := time.Now()
	var mu sync.Mutex
	var took []time.Duration
	var jobs []func()
	for _, a := range gridtest.All {
		for _, b := range gridtest.All {
			jobs = append(jobs, func() {
				o := Options{}
				if !possible(a, b) {
					o.Bound = 1200 * ms // more than a retransmission of the kernel's
				}
				m, err := g.try(a, b, overlay.Ports{}, 0, o)
				if possible(a, b) {
					m, err = g.again(m, err, a, b, overlay.Ports{}, 0, o)
				}
				defer m.close()
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err != nil:
					t.Errorf("%s, %s: %v", a, b, err)
				case possible(a, b) != (m.agree == nil):
					t.Errorf("%s, %s: possible is %v, Agree says %v", a, b, possible(a, b), m.agree)
				case possible(a, b) != (m.err() == nil):
					t.Errorf("%s, %s: possible is %v, but: %v", a, b, possible(a, b), m.err())
				case possible(a, b):
					took = append(took, m.took)
				}
			})
		}
	}
	gridtest.Limited(8, jobs)
	t.Logf("%d pairs in %v; %d met, after the first instant by %s", len(jobs), time.Since(begin).Round(ms), len(took), gridtest.Times(took))
}
