package traverse

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/lab"
	"github.com/isthmus-grid/isthmus/internal/simopen"
	"github.com/isthmus-grid/isthmus/internal/simopen/gridtest"
	"github.com/isthmus-grid/isthmus/overlay"
)

func TestMain(m *testing.M) {
	lab.Main()
	m.Run()
}

const (
	ms     = time.Millisecond
	oneWay = 10 * ms // between any two sites of the labs
)

// A grid is a lab with an Engine on every node.
type grid struct {
	*gridtest.Grid
	t       *testing.T
	engines map[*lab.Host]*Engine
}

func newGrid(t *testing.T, presets ...string) *grid {
	t.Helper()
	g := &grid{gridtest.Up(t, oneWay, simopen.Answer, presets...), t, make(map[*lab.Host]*Engine)}
	for _, p := range presets {
		for _, side := range []string{"a", "b"} {
			h := g.Node(side, p)
			g.engines[h] = engine(t, h)
		}
	}
	return g
}

// engine runs an Engine on a host until the test ends.
func engine(t *testing.T, h *lab.Host) *Engine {
	t.Helper()
	var e *Engine
	if err := h.Do(func() (err error) { e, err = Open(); return err }); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- e.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		e.Close()
	})
	return e
}

// A place is a port of a host, and where the others see it.
type place struct {
	host    *lab.Host
	port    *simopen.Port
	outside netip.AddrPort
}

// place takes a port of a host. With observe it finds out its mapping, as a
// helper behind a NAT must.
func (g *grid) place(h *lab.Host, observe bool) (*place, error) {
	p := &place{host: h}
	return p, h.Do(func() (err error) {
		if p.port, err = simopen.Prepare(g.t.Context(), h.Addr(), overlay.Ports{}); err != nil || !observe {
			return err
		}
		m, err := p.port.Observe(g.t.Context(), g.Vantages)
		p.outside = m.Outside
		return errors.Join(err, m.Failed)
	})
}

// An attempt is one traversing connection.
type attempt struct {
	level  Level
	bound  time.Duration
	source netip.AddrPort // the client in the carried SYN; invalid: its observed mapping
	target netip.AddrPort // where the client dials; invalid: the listener's observed mapping
}

// run makes the attempt between two nodes, with the SYN carried in the time that a
// broker half way takes, and exchanges data.
func (g *grid) run(a, b *lab.Host, try attempt) (time.Duration, error) {
	client, err := g.place(a, !try.source.IsValid())
	if err != nil {
		return 0, err
	}
	defer client.port.Close()
	server, err := g.place(b, !try.target.IsValid())
	if err != nil {
		return 0, err
	}
	defer server.port.Close()
	if try.source.IsValid() {
		client.outside = netip.AddrPortFrom(try.source.Addr(), client.port.Local().Port())
	}
	if try.target.IsValid() {
		server.outside = netip.AddrPortFrom(try.target.Addr(), server.port.Local().Port())
	}
	ctx, cancel := context.WithTimeout(g.t.Context(), try.bound)
	defer cancel()
	var accepted *net.TCPConn
	var acceptErr error
	var accepting sync.WaitGroup
	accepting.Go(func() { accepted, acceptErr = server.port.Accept(ctx, netip.AddrPortFrom(client.outside.Addr(), 0)) })
	begin := time.Now()
	conn, err := g.connect(ctx, client, server, try.level)
	if err != nil {
		cancel()
	}
	accepting.Wait()
	took := time.Since(begin)
	if conn != nil {
		defer conn.Close()
	}
	if accepted != nil {
		defer accepted.Close()
	}
	if err := errors.Join(err, acceptErr); err != nil {
		return took, err
	}
	return took, gridtest.Exchange(conn, accepted)
}

func (g *grid) connect(ctx context.Context, client, server *place, level Level) (conn *net.TCPConn, err error) {
	r := Request{
		Level: level, Local: client.port.Local(), Remote: server.outside,
		Dial: func(ctx context.Context) (*net.TCPConn, error) { return client.port.Dial(ctx, server.outside) },
		Carry: func(ctx context.Context, syn []byte) error {
			if err := pass(ctx, oneWay); err != nil {
				return err
			}
			err := server.host.Do(func() error {
				_, err := g.engines[server.host].Inject(ctx, Injection{Level: level, SYN: syn, Source: client.outside, Target: server.port.Local()})
				return err
			})
			return errors.Join(err, pass(ctx, oneWay))
		},
	}
	err = client.host.Do(func() (err error) {
		conn, err = g.engines[client.host].Connect(ctx, r)
		return err
	})
	return conn, err
}

// pass lets the time of a delivery pass.
func pass(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestExplore(t *testing.T) {
	g := newGrid(t, gridtest.All...)
	res := map[string]string{}
	var mu sync.Mutex
	var jobs []func()
	for _, l := range Levels() {
		for _, a := range gridtest.All {
			for _, b := range gridtest.All {
				jobs = append(jobs, func() {
					took, err := g.run(g.Node("a", a), g.Node("b", b), attempt{level: l, bound: 1500 * ms})
					mu.Lock()
					defer mu.Unlock()
					s := "."
					if err == nil {
						s = fmt.Sprint(took.Milliseconds())
					}
					res[fmt.Sprint(l, a, b)] = s
				})
			}
		}
	}
	begin := time.Now()
	gridtest.Limited(10, jobs)
	for _, l := range Levels() {
		fmt.Printf("%-20v", l)
		for _, b := range gridtest.All {
			fmt.Printf("%9.9s", b)
		}
		fmt.Println()
		for _, a := range gridtest.All {
			fmt.Printf("%-20v", a)
			for _, b := range gridtest.All {
				fmt.Printf("%9s", res[fmt.Sprint(l, a, b)])
			}
			fmt.Println()
		}
	}
	t.Log(time.Since(begin))
}
