package simopen

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/lab"
	"github.com/isthmus-grid/isthmus/internal/lab/wan"
	"github.com/isthmus-grid/isthmus/overlay"
)

func TestMain(m *testing.M) {
	lab.Main()
	m.Run()
}

// oneWay is the delay between any two sites of the labs.
const oneWay = 10 * ms

// A grid is a lab with a node behind each preset, twice (sites a-PRESET and
// b-PRESET), and two vantage points.
type grid struct {
	*lab.Lab
	t        *testing.T
	vantages []netip.AddrPort
}

func newGrid(t *testing.T, presets ...string) *grid {
	t.Helper()
	spec := lab.Spec{
		WAN:   lab.WAN{Default: wan.Shape{Delay: oneWay}},
		Sites: []lab.Site{{Name: "v", Preset: lab.Public, Nodes: lab.Nodes(2)}},
	}
	for _, p := range presets {
		spec.Sites = append(spec.Sites,
			lab.Site{Name: "a-" + p, Preset: p, Nodes: lab.Nodes(1)},
			lab.Site{Name: "b-" + p, Preset: p, Nodes: lab.Nodes(1)})
	}
	l, err := lab.Up(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	g := &grid{Lab: l, t: t}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, name := range []string{"v/n1", "v/n2"} {
		g.vantages = append(g.vantages, vantage(t, l.Host(name)))
	}
	return g
}

// vantage serves a vantage point on port 443, the only one that every site that
// lets out anything can dial.
func vantage(t *testing.T, h *lab.Host) netip.AddrPort {
	ln, err := h.Listen("tcp", ":443")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if err := Answer(t.Context(), c); err == nil {
					io.Copy(io.Discard, c) // until the asker closes
				}
			}()
		}
	}()
	return netip.AddrPortFrom(h.Addr(), 443)
}

// An endpoint is a prepared and observed port of a host.
type endpoint struct {
	End
	host *lab.Host
	port *Port
}

// prepare readies a port of a site's node.
func (g *grid) prepare(site, preset string, ports overlay.Ports) (*endpoint, error) {
	e := &endpoint{host: g.Host(site + "-" + preset + "/n1")}
	profile, err := lab.Profile(preset)
	if err != nil {
		return nil, err
	}
	e.Profile, e.Profile.Site = profile, overlay.SiteID(site)
	ctx, cancel := context.WithTimeout(g.t.Context(), 5*time.Second)
	defer cancel()
	err = e.host.Do(func() (err error) {
		if e.port, err = Prepare(ctx, e.host.Addr(), ports); err != nil {
			return err
		}
		e.Mapping, err = e.port.Observe(ctx, g.vantages)
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

// A meeting is an attempt of two endpoints.
type meeting struct {
	a, b         *endpoint
	agree        error // of Agree
	connA, connB *net.TCPConn
	errA, errB   error
	took         time.Duration // from the earlier of the agreed instants until both ends had the connection
}

func (m *meeting) close() {
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

// meet prepares both ends and lets them open; B fires skew after the instant
// agreed on. Pairs for which there is no agreement are tried all the same.
func (g *grid) meet(a, b string, ports overlay.Ports, skew time.Duration, o Options) (*meeting, error) {
	m := new(meeting)
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

// err says why the meeting did not bring a working connection, or returns nil.
func (m *meeting) err() error {
	if m.errA != nil || m.errB != nil {
		return errors.Join(m.errA, m.errB)
	}
	return exchange(m.connA, m.connB)
}

// exchange moves 200 kB both ways at once.
func exchange(a, b *net.TCPConn) error {
	const size = 200_000
	errs := make([]error, 4)
	var all sync.WaitGroup
	for i, c := range []*net.TCPConn{a, b} {
		c.SetDeadline(time.Now().Add(10 * time.Second))
		all.Go(func() {
			_, errs[2*i] = c.Write(bytes.Repeat([]byte{byte('a' + i)}, size))
			c.CloseWrite()
		})
		all.Go(func() {
			got, err := io.ReadAll(c)
			if want := bytes.Repeat([]byte{byte('b' - i)}, size); err == nil && !bytes.Equal(got, want) {
				err = fmt.Errorf("%d bytes came, or wrong ones", len(got))
			}
			errs[2*i+1] = err
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// limited runs jobs, a few at a time.
func limited(n int, jobs []func()) {
	tokens := make(chan struct{}, n)
	var all sync.WaitGroup
	for _, job := range jobs {
		tokens <- struct{}{}
		all.Go(func() {
			defer func() { <-tokens }()
			job()
		})
	}
	all.Wait()
}

// kinds are the gateways that let nodes dial anywhere, in three groups that
// behave alike: those that a SYN can reach, those that refuse it by its flags,
// those that want to have seen one go out; and the symmetric NAT.
var (
	reachable = []string{"open", "nat-fullcone", "nat-1to1"}
	byFlags   = []string{"syn-drop", "syn-reset"}
	tracking  = []string{
		"stateful", "stateful-reject", "stateful-strict", "stateful-strict-new", "stateful-noloose",
		"port-range", "nat", "nat-answers", "nat-random",
	}
	kinds = slices.Concat(reachable, byFlags, tracking, []string{"nat-symmetric"})
)

// possible says which pairs can meet.
func possible(a, b string) bool {
	in := slices.Contains[[]string]
	switch {
	case in(reachable, a) || in(reachable, b):
		return true
	case a == "nat-symmetric" || b == "nat-symmetric":
		return false
	}
	return !in(byFlags, a) || !in(byFlags, b)
}

// TestEveryPair tries all 15 x 15 pairs at 10 ms one way, the impossible ones as
// well: they must fail for good, and Agree must know beforehand.
func TestEveryPair(t *testing.T) {
	g := newGrid(t, kinds...)
	begin := time.Now()
	var mu sync.Mutex
	var took []time.Duration
	var jobs []func()
	for _, a := range kinds {
		for _, b := range kinds {
			jobs = append(jobs, func() {
				o := Options{}
				if !possible(a, b) {
					o.Bound = 1200 * ms // more than a retransmission of the kernel's
				}
				m, err := g.meet(a, b, overlay.Ports{}, 0, o)
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
	limited(8, jobs)
	slices.Sort(took)
	if n := len(took); n > 0 {
		t.Logf("%d pairs in %v; %d met, after the first instant by p50 %v, p90 %v, max %v",
			len(jobs), time.Since(begin).Round(ms), n, took[n/2].Round(ms), took[n*9/10].Round(ms), took[n-1].Round(ms))
	}
}
