package test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/grid"
	"github.com/isthmus-grid/isthmus/internal/jobkey"
	"github.com/isthmus-grid/isthmus/internal/lab"
	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/link/probe"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Sites that tests put together, all 4 ms from each other. Public has the
// broker, three proxies and a host that belongs to nobody.
const (
	sitePublic = "  - {name: public, preset: public, nodes: [broker, p1, p2, p3, stranger]}\n"
	siteOpen   = "  - {name: open, preset: open, nodes: 2}\n"
	siteClosed = "  - {name: closed, preset: stateful, nodes: 2}\n"
	siteShut   = "  - {name: shut, preset: egress-443, nodes: 1}\n"
	siteRange  = "  - {name: range, preset: port-range, nodes: 2}\n"
	siteHidden = "  - {name: hidden, preset: no-route/egress-443, nodes: 1}\n"
)

// way is a pair of nodes, the path that joins them, and the sites it takes.
type way struct {
	path     string // overlay.Path.String, the proxy's name left out
	from, to string
	sites    string
}

// ways has each path that a link may take.
var ways = []way{
	{"direct", "closed/n1", "open/n1", siteClosed + siteOpen},
	{"port-range", "closed/n1", "range/n1", siteClosed + siteRange},
	{"reversed", "open/n1", "closed/n1", siteOpen + siteClosed},
	{"relay", "closed/n1", "shut/n1", siteClosed + siteShut},
	{"relay, via asker's gateway", "hidden/n1", "closed/n1", siteHidden + siteClosed},
	{"direct", "closed/n1", "closed/n2", siteClosed},
	{"same node", "closed/n1", "closed/n1", siteClosed},
}

// settled is the profile of a site whose links are all made in one way, so that
// a test knows beforehand which, however busy the machine is: techniques race,
// and under load a relay may be first where a direct way is better.
func settled(site string, p overlay.SiteProfile) overlay.SiteProfile {
	p = plain(site, p)
	if site == "open" || site == "range" {
		p.Forbidden = append(p.Forbidden, overlay.Relay)
	}
	return p
}

// plain leaves the techniques out that open a way where none is.
func plain(_ string, p overlay.SiteProfile) overlay.SiteProfile {
	p.Forbidden = []overlay.Technique{overlay.SimultaneousOpen, overlay.Traversing, overlay.HolePunching}
	return p
}

// patience bounds every test of this package that says nothing else.
// It is only ever reached by what hangs: a busy machine stretches seconds to a minute.
const patience = 4 * time.Minute

// world is a lab and a whole Isthmus in it, for one test.
type world struct {
	*grid.Grid
	t   *testing.T
	ctx context.Context // ends with the test and after its patience
}

// newWorld builds the sites and starts the daemons, and sees to it that all
// ends with the test. Without proxies in cfg it has one, p1; without profiles
// they are settled.
func newWorld(t *testing.T, sites string, cfg grid.Config) *world {
	t.Helper()
	return newWorldOver(t, "{rtt: 4ms}", sites, cfg)
}

// sub is the same world for a part of the test.
func (w *world) sub(t *testing.T) *world { return &world{w.Grid, t, w.ctx} }

// newWorldOver is newWorld with a WAN as the lab's files have it.
func newWorldOver(t *testing.T, wan, sites string, cfg grid.Config) *world {
	t.Helper()
	needLab(t)
	program := isthmus(t, "")
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience, fmt.Errorf("%s: not done after %v", t.Name(), patience))
	t.Cleanup(cancel)
	spec, err := lab.Parse(t.Name(), []byte("wan: "+wan+"\nsites:\n"+sitePublic+sites))
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
	cfg.Broker = "public/broker"
	if cfg.Proxies == nil {
		cfg.Proxies = []string{"public/p1"}
	}
	if cfg.Profile == nil {
		cfg.Profile = settled
	}
	if cfg.Binary == nil {
		cfg.Binary = func(daemon string) []string { return []string{program, daemon} }
	}
	g, err := grid.Start(ctx, l, cfg)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{g, t, ctx}
	t.Cleanup(w.end)
	return w
}

// end stops the daemons: each must still run, or be stopped by the test, and
// end as it is told. None may have panicked, or met a data race.
func (w *world) end() {
	logs := map[string]string{}
	for _, d := range w.Daemons() {
		logs[d.Name] = d.Log()
	}
	if err := w.Close(); err != nil {
		w.t.Error(err)
	}
	for name, log := range logs {
		for _, bad := range []string{"panic:", "DATA RACE", "fatal error:"} {
			if strings.Contains(log, bad) {
				w.t.Errorf("%s wrote %q:\n%s", name, bad, log)
			}
		}
		if w.t.Failed() {
			w.t.Logf("%s wrote:\n%s", name, log)
		}
	}
}

// until waits for what nothing announces. What still describes, if given, is
// what was still amiss when the time was over.
func (w *world) until(what string, ok func() bool, still ...func() string) {
	w.t.Helper()
	for !ok() {
		select {
		case <-w.ctx.Done():
			for _, s := range still {
				what += "; still " + s()
			}
			w.t.Fatalf("waited for %s: %v", what, context.Cause(w.ctx))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// logged waits until a daemon has written all the words, in one line.
func (w *world) logged(daemon string, words ...string) {
	w.t.Helper()
	w.until(fmt.Sprintf("%s to write %q", daemon, words), func() bool {
		for line := range strings.Lines(w.Daemon(daemon).Log()) {
			found := true
			for _, word := range words {
				found = found && strings.Contains(line, word)
			}
			if found {
				return true
			}
		}
		return false
	})
}

// status returns a daemon's figure at the keys.
func (w *world) status(daemon string, keys ...string) any {
	w.t.Helper()
	st, err := w.Status(w.ctx, daemon)
	if err != nil {
		w.t.Fatal(err)
	}
	var v any = st
	for _, k := range keys {
		m, ok := v.(map[string]any)
		if !ok {
			w.t.Fatalf("status of %s: no %q in %v", daemon, keys, st)
		}
		v = m[k]
	}
	return v
}

func newKey(t *testing.T, name string) jobkey.Key {
	t.Helper()
	key, err := jobkey.New(name)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// member is a rank of a job, in this process, with a mesh as mpilib has one.
type member struct {
	*probe.Rank
	mesh  *link.Mesh
	links chan *link.Link
	stop  context.CancelFunc
	done  chan error
}

// member joins a rank at a node; it leaves with the test, or by leave.
func (w *world) member(key jobkey.Key, node string, rank, size uint32) *member {
	w.t.Helper()
	return w.memberFor(key, node, rank, size, nil)
}

// memberFor is member of a rank that shows a grant.
func (w *world) memberFor(key jobkey.Key, node string, rank, size uint32, grant []byte) *member {
	w.t.Helper()
	r, err := probe.JoinFor(w.ctx, w.Grid, node, key, rank, grant)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.served(r, size)
}

// served gives a rank that has joined a mesh.
func (w *world) served(r *probe.Rank, size uint32) *member {
	m := &member{Rank: r, links: make(chan *link.Link, size), done: make(chan error, 1)}
	m.mesh = link.NewMesh(link.Config{Self: r.Identity, Size: size, Connector: r.Connector(), Up: func(l *link.Link) { m.links <- l }})
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	go func() { m.done <- m.mesh.Serve(ctx) }() // leave waits for it
	w.t.Cleanup(func() { m.leave(w.t) })
	return m
}

// leave takes the member out and closes the links that nobody took.
func (m *member) leave(t *testing.T) {
	if m.stop == nil {
		return
	}
	m.stop()
	m.stop = nil
	select {
	case err := <-m.done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Errorf("the mesh of %v does not end", m.Identity.Process)
	}
	m.Leave()
	for {
		select {
		case l := <-m.links:
			l.Conn.Close()
		default:
			return
		}
	}
}

// next returns the member's next link.
func (w *world) next(m *member) *link.Link {
	w.t.Helper()
	select {
	case l := <-m.links:
		w.t.Cleanup(func() { l.Conn.Close() })
		return l
	case <-w.ctx.Done():
		w.t.Fatalf("%v waited for a link: %v", m.Identity.Process, context.Cause(w.ctx))
		return nil
	}
}

// joint is two members and the link between them.
type joint struct {
	a, b      *member
	near, far *link.Link
}

// members joins two ranks of a new job, not linked yet.
func (w *world) members(from, to string) *joint {
	w.t.Helper()
	key := newKey(w.t, "pair")
	return &joint{a: w.member(key, from, 0, 2), b: w.member(key, to, 1, 2)}
}

// connect links the two, the first dialling.
func (w *world) connect(j *joint) {
	w.t.Helper()
	if err := j.a.mesh.Connect(w.ctx, 1); err != nil {
		w.t.Fatal(err)
	}
	j.near, j.far = w.next(j.a), w.next(j.b)
}

// exchange sends data both ways and checks it.
func (w *world) exchange(j *joint) {
	w.t.Helper()
	if err := probe.Exchange(w.ctx, j.near, j.far, 100_000); err != nil {
		w.t.Errorf("%v: %v", j.near.Path, err)
	}
}

// end closes the link and takes both members out.
func (j *joint) end(t *testing.T) {
	var both sync.WaitGroup // either waits for the other's
	both.Go(func() { j.near.Conn.Close() })
	both.Go(func() { j.far.Conn.Close() })
	both.Wait()
	j.a.leave(t)
	j.b.leave(t)
}

// linked is members, connect and exchange.
func (w *world) linked(from, to string) *joint {
	w.t.Helper()
	j := w.members(from, to)
	w.connect(j)
	w.exchange(j)
	return j
}

// pathOf is a link's path without the name of its proxy.
func pathOf(l *link.Link) string {
	p := l.Path
	p.Proxy = ""
	return p.String()
}

// flow keeps a link busy: a number goes to and fro, and each round is counted.
type flow struct {
	joint  *joint
	rounds atomic.Uint64
	mu     sync.Mutex
	err    error
	ended  chan struct{}
}

// flow starts one; it ends when the link does.
func (w *world) flow(j *joint) *flow {
	f := &flow{joint: j, ended: make(chan struct{})}
	var ends sync.WaitGroup
	ends.Go(func() { f.note(f.ask()) })
	ends.Go(func() { f.note(f.answer()) })
	go func() { // ends with both
		ends.Wait()
		close(f.ended)
	}()
	w.t.Cleanup(func() {
		j.near.Conn.Close()
		j.far.Conn.Close()
		<-f.ended
	})
	return f
}

func (f *flow) note(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = errors.Join(f.err, err)
}

func (f *flow) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

func (f *flow) ask() error {
	got := make([]byte, 8)
	for i := uint64(1); ; i++ {
		b := fmt.Appendf(nil, "%08d", i%1e8)
		if _, err := f.joint.near.Conn.Write(b); err != nil {
			return fmt.Errorf("near end: %w", f.joint.near.Explain(err))
		}
		if _, err := io.ReadFull(f.joint.near.Conn, got); err != nil {
			return fmt.Errorf("near end: %w", f.joint.near.Explain(err))
		}
		if string(got) != string(b) {
			return fmt.Errorf("sent %q, got %q back", b, got)
		}
		f.rounds.Add(1)
	}
}

func (f *flow) answer() error {
	b := make([]byte, 8)
	for {
		if _, err := io.ReadFull(f.joint.far.Conn, b); err != nil {
			return fmt.Errorf("far end: %w", f.joint.far.Explain(err))
		}
		if _, err := f.joint.far.Conn.Write(b); err != nil {
			return fmt.Errorf("far end: %w", f.joint.far.Explain(err))
		}
	}
}

// flowing waits until every flow has made more rounds than it had.
func (w *world) flowing(when string, flows []*flow) {
	w.t.Helper()
	for _, f := range flows {
		had := f.rounds.Load()
		w.until(fmt.Sprintf("bytes to flow by %v %s", f.joint.near.Path, when), func() bool {
			if err := f.failure(); err != nil {
				w.t.Fatalf("%s the link by %v broke: %v", when, f.joint.near.Path, err)
			}
			return f.rounds.Load() >= had+3
		})
	}
}
