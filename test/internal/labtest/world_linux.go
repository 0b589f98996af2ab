package labtest

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

	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/lab/probe"
	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Sites of the tests, all 4 ms from each other. Public has the broker, three proxies and a host
// without a daemon.
const (
	SitePublic = "  - {name: public, preset: public, nodes: [broker, p1, p2, p3, stranger]}\n"
	SiteOpen   = "  - {name: open, preset: open, nodes: 2}\n"
	SiteClosed = "  - {name: closed, preset: stateful, nodes: 2}\n"
	SiteShut   = "  - {name: shut, preset: egress-443, nodes: 1}\n"
	SiteRange  = "  - {name: range, preset: port-range, nodes: 2}\n"
	SiteHidden = "  - {name: hidden, preset: no-route/egress-443, nodes: 1}\n"
)

// Way is a pair of nodes, the path that joins them, and the sites it takes.
type Way struct {
	Path     string // overlay.Path.String, without the proxy's name
	From, To string
	Sites    string
}

// Ways lists each path that a link may take.
var Ways = []Way{
	{"direct", "closed/n1", "open/n1", SiteClosed + SiteOpen},
	{"port-range", "closed/n1", "range/n1", SiteClosed + SiteRange},
	{"reversed", "open/n1", "closed/n1", SiteOpen + SiteClosed},
	{"relay", "closed/n1", "shut/n1", SiteClosed + SiteShut},
	{"relay, via asker's gateway", "hidden/n1", "closed/n1", SiteHidden + SiteClosed},
	{"direct", "closed/n1", "closed/n2", SiteClosed},
	{"same node", "closed/n1", "closed/n1", SiteClosed},
}

// FixedProfile is the profile of a site whose links all use one technique, so that a test knows it
// in advance, however busy the machine is: techniques race, and under load a relay may win although
// a direct path is better.
func FixedProfile(site string, p overlay.SiteProfile) overlay.SiteProfile {
	p = NoTraversalProfile(site, p)
	if site == "open" || site == "range" {
		p.Forbidden = append(p.Forbidden, overlay.Relay)
	}
	return p
}

// NoTraversalProfile omits the techniques that open a path through closed firewalls.
func NoTraversalProfile(_ string, p overlay.SiteProfile) overlay.SiteProfile {
	p.Forbidden = []overlay.Technique{overlay.SimultaneousOpen, overlay.Traversing, overlay.HolePunching}
	return p
}

// Patience is the default timeout of every test below test/, see PatienceFor. Only a test that hangs
// reaches it.
const Patience = 4 * time.Minute

// World is a lab and a whole Isthmus in it, for one test.
type World struct {
	*grid.Grid
	T   *testing.T
	Ctx context.Context // ends with the test and after its timeout
}

// NewWorld builds the sites and starts the daemons, and makes everything end with the test. Without
// proxies in cfg it has one, p1; without profiles it uses FixedProfile.
func NewWorld(t *testing.T, sites string, cfg grid.Config) *World {
	t.Helper()
	return NewWorldOver(t, "{rtt: 4ms}", sites, cfg)
}

// Sub returns the same world for a part of the test.
func (w *World) Sub(t *testing.T) *World { return &World{w.Grid, t, w.Ctx} }

// NewWorldOver is NewWorld with a WAN in the format of the lab's files.
func NewWorldOver(t *testing.T, wan, sites string, cfg grid.Config) *World {
	t.Helper()
	NeedLab(t)
	program := Program(t, "")
	patience := PatienceFor(t, Patience)
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience, fmt.Errorf("%s: not done after %v", t.Name(), patience))
	t.Cleanup(cancel)
	spec, err := lab.Parse(t.Name(), []byte("wan: "+wan+"\nsites:\n"+SitePublic+sites))
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
		cfg.Profile = FixedProfile
	}
	if cfg.Binary == nil {
		cfg.Binary = func(daemon string) []string { return []string{program, daemon} }
	}
	g, err := grid.Start(ctx, l, cfg)
	if err != nil {
		t.Fatal(err)
	}
	w := &World{g, t, ctx}
	t.Cleanup(w.End)
	return w
}

// End stops the daemons: each must still be running, or have been stopped by the test, and end when
// told to. None may have panicked, or had a data race.
func (w *World) End() {
	logs := map[string]string{}
	for _, d := range w.Daemons() {
		logs[d.Name] = d.Log()
	}
	if err := w.Close(); err != nil {
		w.T.Error(err)
	}
	for name, log := range logs {
		for _, bad := range []string{"panic:", "DATA RACE", "fatal error:"} {
			if strings.Contains(log, bad) {
				w.T.Errorf("%s wrote %q:\n%s", name, bad, log)
			}
		}
		if w.T.Failed() {
			w.T.Logf("%s wrote:\n%s", name, log)
		}
	}
}

// Until waits for a condition without an event. still, if given, describes what was missing at the
// timeout.
func (w *World) Until(what string, ok func() bool, still ...func() string) {
	w.T.Helper()
	for !ok() {
		select {
		case <-w.Ctx.Done():
			for _, s := range still {
				what += "; still " + s()
			}
			w.T.Fatalf("waited for %s: %v", what, context.Cause(w.Ctx))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// AwaitLog waits until a daemon has logged all the words in one line.
func (w *World) AwaitLog(daemon string, words ...string) {
	w.T.Helper()
	w.Until(fmt.Sprintf("%s to write %q", daemon, words), func() bool {
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

// Figure returns the figure at the keys in a daemon's status.
func (w *World) Figure(daemon string, keys ...string) any {
	w.T.Helper()
	st, err := w.Status(w.Ctx, daemon)
	if err != nil {
		w.T.Fatal(err)
	}
	var v any = st
	for _, k := range keys {
		m, ok := v.(map[string]any)
		if !ok {
			w.T.Fatalf("status of %s: no %q in %v", daemon, keys, st)
		}
		v = m[k]
	}
	return v
}

// NewKey makes the key of a job.
func NewKey(t *testing.T, name string) jobkey.Key {
	t.Helper()
	key, err := jobkey.New(name)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// Member is a rank of a job, in this process, with a mesh like mpilib's.
type Member struct {
	*probe.Rank
	Mesh  *link.Mesh
	Links chan *link.Link // new links that were not taken
	stop  context.CancelFunc
	Done  chan error // the result of the mesh
}

// Join joins a rank at a node; it leaves with the test, or by End.
func (w *World) Join(key jobkey.Key, node string, rank, size uint32) *Member {
	w.T.Helper()
	return w.JoinFor(key, node, rank, size, nil)
}

// JoinFor is Join for a rank that shows a grant.
func (w *World) JoinFor(key jobkey.Key, node string, rank, size uint32, grant []byte) *Member {
	w.T.Helper()
	r, err := probe.JoinFor(w.Ctx, w.Grid, node, key, rank, grant)
	if err != nil {
		w.T.Fatal(err)
	}
	return w.Serve(r, size)
}

// Serve gives a joined rank a mesh.
func (w *World) Serve(r *probe.Rank, size uint32) *Member {
	m := &Member{Rank: r, Links: make(chan *link.Link, size), Done: make(chan error, 1)}
	m.Mesh = link.NewMesh(link.Config{Self: r.Identity, Size: size, Connector: r.Connector(), Up: func(l *link.Link) { m.Links <- l }})
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	go func() { m.Done <- m.Mesh.Serve(ctx) }() // End waits for it
	w.T.Cleanup(func() { m.End(w.T) })
	return m
}

// End removes the member and closes the links that were not taken.
func (m *Member) End(t *testing.T) {
	if m.stop == nil {
		return
	}
	m.stop()
	m.stop = nil
	select {
	case err := <-m.Done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Errorf("the mesh of %v does not end", m.Identity.Process)
	}
	m.Leave()
	for {
		select {
		case l := <-m.Links:
			l.Conn.Close()
		default:
			return
		}
	}
}

// NextLink returns the member's next link.
func (w *World) NextLink(m *Member) *link.Link {
	w.T.Helper()
	select {
	case l := <-m.Links:
		w.T.Cleanup(func() { l.Conn.Close() })
		return l
	case <-w.Ctx.Done():
		w.T.Fatalf("%v waited for a link: %v", m.Identity.Process, context.Cause(w.Ctx))
		return nil
	}
}

// Pair is two members and the link between them.
type Pair struct {
	A, B      *Member
	Near, Far *link.Link // A's end and B's
}

// JoinPair joins two ranks of a new job, without linking them.
func (w *World) JoinPair(from, to string) *Pair {
	w.T.Helper()
	key := NewKey(w.T, "pair")
	return &Pair{A: w.Join(key, from, 0, 2), B: w.Join(key, to, 1, 2)}
}

// Connect links the two, the first dialling.
func (w *World) Connect(j *Pair) {
	w.T.Helper()
	if err := j.A.Mesh.Connect(w.Ctx, 1); err != nil {
		w.T.Fatal(err)
	}
	j.Near, j.Far = w.NextLink(j.A), w.NextLink(j.B)
}

// Exchange sends data in both directions and checks it.
func (w *World) Exchange(j *Pair) {
	w.T.Helper()
	if err := probe.Exchange(w.Ctx, j.Near, j.Far, 100_000); err != nil {
		w.T.Errorf("%v: %v", j.Near.Path, err)
	}
}

// End closes the link and removes both members.
func (j *Pair) End(t *testing.T) {
	var both sync.WaitGroup // each waits for the other
	both.Go(func() { j.Near.Conn.Close() })
	both.Go(func() { j.Far.Conn.Close() })
	both.Wait()
	j.A.End(t)
	j.B.End(t)
}

// LinkPair is JoinPair, Connect and Exchange.
func (w *World) LinkPair(from, to string) *Pair {
	w.T.Helper()
	j := w.JoinPair(from, to)
	w.Connect(j)
	w.Exchange(j)
	return j
}

// PathOf returns a link's path without the name of its proxy.
func PathOf(l *link.Link) string {
	p := l.Path
	p.Proxy = ""
	return p.String()
}

// Flow keeps a link busy: a number goes to and fro, and each round is counted.
type Flow struct {
	Pair   *Pair
	rounds atomic.Uint64
	mu     sync.Mutex
	err    error
	ended  chan struct{}
}

// StartFlow starts one; it ends when the link does.
func (w *World) StartFlow(j *Pair) *Flow {
	f := &Flow{Pair: j, ended: make(chan struct{})}
	var ends sync.WaitGroup
	ends.Go(func() { f.note(f.ask()) })
	ends.Go(func() { f.note(f.answer()) })
	go func() { // ends with both
		ends.Wait()
		close(f.ended)
	}()
	w.T.Cleanup(func() {
		j.Near.Conn.Close()
		j.Far.Conn.Close()
		<-f.ended
	})
	return f
}

func (f *Flow) note(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = errors.Join(f.err, err)
}

// Err returns the first error so far.
func (f *Flow) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

func (f *Flow) ask() error {
	got := make([]byte, 8)
	for i := uint64(1); ; i++ {
		b := fmt.Appendf(nil, "%08d", i%1e8)
		if _, err := f.Pair.Near.Conn.Write(b); err != nil {
			return fmt.Errorf("near end: %w", f.Pair.Near.Explain(err))
		}
		if _, err := io.ReadFull(f.Pair.Near.Conn, got); err != nil {
			return fmt.Errorf("near end: %w", f.Pair.Near.Explain(err))
		}
		if string(got) != string(b) {
			return fmt.Errorf("sent %q, got %q back", b, got)
		}
		f.rounds.Add(1)
	}
}

func (f *Flow) answer() error {
	b := make([]byte, 8)
	for {
		if _, err := io.ReadFull(f.Pair.Far.Conn, b); err != nil {
			return fmt.Errorf("far end: %w", f.Pair.Far.Explain(err))
		}
		if _, err := f.Pair.Far.Conn.Write(b); err != nil {
			return fmt.Errorf("far end: %w", f.Pair.Far.Explain(err))
		}
	}
}

// AwaitFlows waits until every flow has made more rounds.
func (w *World) AwaitFlows(when string, flows []*Flow) {
	w.T.Helper()
	for _, f := range flows {
		had := f.rounds.Load()
		w.Until(fmt.Sprintf("bytes to flow by %v %s", f.Pair.Near.Path, when), func() bool {
			if err := f.Err(); err != nil {
				w.T.Fatalf("%s the link by %v broke: %v", when, f.Pair.Near.Path, err)
			}
			return f.rounds.Load() >= had+3
		})
	}
}
