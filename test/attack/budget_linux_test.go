//go:build system

package attack

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/yamux"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/ipc/local"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/launch/nodeservice"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
	"github.com/isthmus-grid/isthmus/wire"
)

// budgeted is a world in which members of the grid, and outside sources, request more than their
// share.
type budgeted struct {
	*attacked
	idle map[string]taken
	slow time.Duration // the slowest link of others before any attack
}

// taken is a daemon's use of resources.
type taken struct{ kib, descriptors, goroutines int }

var scrapePorts = map[string]string{"broker": "9441", "frontal": "9442", "proxy": "9443", "helper": "9444"}

func newBudgeted(t *testing.T) *budgeted {
	b := &budgeted{attacked: &attacked{trails: t.TempDir()}, idle: map[string]taken{}}
	settings := map[string]map[string]any{}
	for kind, port := range scrapePorts {
		settings[kind] = map[string]any{"audit": map[string]any{"folder": filepath.Join(b.trails, kind)}, "metrics_listen": "127.0.0.1:" + port}
	}
	settings["helper"]["limits"] = map[string]any{"door_bytes": "32MiB", "door_bytes_per_user": "16MiB"}
	const sites = "  - {name: hidden, preset: no-route/egress-443, nodes: 3}\n  - {name: closed, preset: stateful, nodes: 4}\n"
	b.world = newWorld(t, sites, grid.Config{Settings: settings})
	for range 3 {
		b.slow = max(b.slow, b.link(t, "hidden/n3", "closed/n4"))
	}
	for _, d := range b.Daemons() {
		b.idle[d.Name] = b.usage(t, d.Name)
	}
	return b
}

// link joins two ranks and links them, and returns how long that took.
func (b *budgeted) link(t *testing.T, from, to string) time.Duration {
	t.Helper()
	start := time.Now()
	w := b.sub(t)
	j := w.LinkPair(from, to)
	took := time.Since(start)
	j.End(t)
	return took
}

// served links others, through both the frontal and the proxy, during an attack: within 10 s, for busy
// machines, or three times what that took before.
func (b *budgeted) served(t *testing.T, from, to string) {
	t.Helper()
	bound := max(10*time.Second, 3*b.slow) // on a machine at rest it is 0.12 s, at a load of 20 it was 1.2 s
	took := b.link(t, from, to)
	t.Logf("others joined and linked after %v", took.Round(time.Millisecond))
	if took > bound {
		t.Errorf("joining and linking %s and %s took %v, at most %v is allowed", from, to, took, bound)
	}
}

func (b *budgeted) usage(t *testing.T, daemon string) taken {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.Daemon(daemon).PID()))
	if err != nil {
		t.Fatal(err)
	}
	var u taken
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	if _, err := fmt.Sscan(rest, &u.kib); err != nil {
		t.Fatal(err)
	}
	if u.descriptors, err = b.Daemon(daemon).Descriptors(); err != nil {
		t.Fatal(err)
	}
	kind, _, _ := strings.Cut(daemon, " ")
	w := b.sub(t)
	u.goroutines, _ = strconv.Atoi(w.Scrape(daemon, scrapePorts[kind])["go_goroutines"])
	return u
}

// guarded are the daemons whose memory is checked.
var guarded = []string{"broker", "frontal hidden"}

// begin resets the daemons' peak memory.
func (b *budgeted) begin(t *testing.T) {
	t.Helper()
	for _, d := range guarded {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", b.Daemon(d).PID()), []byte("5"), 0); err != nil {
			t.Fatal(err)
		}
	}
}

// bounded checks the peak memory of a site's frontal and of the broker since begin.
func (b *budgeted) bounded(t *testing.T) {
	t.Helper()
	for _, d := range guarded {
		idle, most := b.idle[d].kib, b.memory(t, d)
		t.Logf("%s: %d MiB idle, %d MiB at most", d, idle>>10, most>>10)
		if most > max(2*idle, idle+64<<10) {
			t.Errorf("%s had %d MiB, and %d MiB idle", d, most>>10, idle>>10)
		}
	}
}

// counted checks that a daemon's metrics report that a limit was reached.
func (b *budgeted) counted(t *testing.T, daemon, limit string) {
	t.Helper()
	kind, _, _ := strings.Cut(daemon, " ")
	w := b.sub(t)
	if n := w.Scrape(daemon, scrapePorts[kind])[`isthmus_limit_refused_total{limit="`+limit+`"}`]; n == "" || n == "0" {
		t.Errorf("%s counts %q refusals over %s", daemon, n, limit)
	}
}

// hostile is an enrolled node whose helper is not ours. It has its own certificate and runs at
// hidden/n1.
var hostile = control.Identity{Role: control.RoleHelper, Site: "hidden", Name: "n9"}

// mux opens a control session of the hostile node, on which anything can be written.
func (b *budgeted) mux(t *testing.T) *yamux.Session {
	t.Helper()
	files, err := b.Issue(hostile, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := b.Lab.Host("hidden/n1").Dial(b.Ctx, "tcp", netip.AddrPortFrom(b.Daemon("frontal hidden").Host.Addr(), 7440).String())
	if err != nil {
		t.Fatal(err)
	}
	c := tls.Client(raw, &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true, NextProtos: []string{"isthmus-control"}})
	if _, err := c.Write(wire.Append(nil, &wire.ControlHello{Oldest: control.OldestVersion, Newest: control.NewestVersion})); err != nil {
		t.Fatal(err)
	}
	if frame, err := wire.Read(c); err != nil || frame.Type() != wire.TypeControlHello {
		t.Fatalf("%v, %v", frame, err)
	}
	cfg := yamux.DefaultConfig()
	cfg.LogOutput = io.Discard
	m, err := yamux.Client(c, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close(); raw.Close() })
	return m
}

// calls is an HTTP/2 connection on a new stream of a session, for calls that no
// gRPC client makes.
type calls struct {
	*http2.Framer
	stream net.Conn
	last   uint32
}

func newCalls(t *testing.T, m *yamux.Session) *calls {
	t.Helper()
	s, err := m.Open()
	if err != nil {
		t.Fatal(err)
	}
	return callsOn(s)
}

// callsOn is newCalls on a connection.
func callsOn(s net.Conn) *calls {
	io.WriteString(s, http2.ClientPreface)
	c := &calls{http2.NewFramer(s, s), s, 0}
	c.WriteSettings()
	go func() { // ends with the stream
		for {
			f, err := c.ReadFrame()
			if err != nil && !errors.As(err, new(http2.StreamError)) {
				return
			}
			_ = f
		}
	}()
	return c
}

// begin writes the header of a call.
func (c *calls) begin(method string) (id uint32, err error) {
	if c.last += 2; c.last == 2 {
		c.last = 1
	}
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "x"}, {"content-type", "application/grpc"}, {"te", "trailers"}} {
		enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	return c.last, c.WriteHeaders(http2.HeadersFrameParam{StreamID: c.last, BlockFragment: block.Bytes(), EndHeaders: true})
}

// unfinished writes a message of 1 MiB, about the longest that a frontal accepts, without its last byte.
func (c *calls) unfinished(method string) error {
	id, err := c.begin(method)
	if err != nil {
		return err
	}
	const size = 1 << 20
	head := []byte{0, 0, size >> 16 & 0xff, size >> 8 & 0xff, size & 0xff}
	piece := make([]byte, 16<<10)
	if err := c.WriteData(id, false, head); err != nil {
		return err
	}
	for left := size - 1; left > 0; left -= len(piece) {
		if err := c.WriteData(id, false, piece[:min(len(piece), left)]); err != nil {
			return err
		}
	}
	return nil
}

// The resources of members and strangers are bounded, for each of them: beyond the bound they are
// refused with a reason and in the audit log, and others are not affected.
func TestBudgets(t *testing.T) {
	b := newBudgeted(t)

	t.Run("unfinished messages", func(t *testing.T) {
		b.begin(t)
		var over atomic.Bool
		var attack sync.WaitGroup
		attack.Go(func() {
			defer over.Store(true)
			for range 5 { // the connection is re-established
				c := newCalls(t, b.mux(t))
				for range 200 {
					if c.unfinished(controlpb.Directory_Resolve_FullMethodName) != nil {
						break
					}
				}
				c.stream.Close()
			}
		})
		for first := true; first || !over.Load(); first = false {
			b.served(t, "hidden/n3", "closed/n4")
		}
		attack.Wait()
		b.bounded(t)
		b.audited(t, "frontal", "the unfinished messages", refusedFor("budget", "limits.peer_bytes"))
		b.counted(t, "frontal hidden", "peer_bytes")
	})
	t.Run("calls without a request", func(t *testing.T) {
		b.begin(t)
		m := b.mux(t)
		c := newCalls(t, m)
		for range 20_000 {
			if _, err := c.begin(controlpb.Directory_Resolve_FullMethodName); err != nil {
				break
			}
		}
		select {
		case <-m.CloseChan():
		case <-b.Ctx.Done():
			t.Error("the session goes on")
		}
		b.served(t, "hidden/n3", "closed/n4")
		b.bounded(t)
		b.audited(t, "frontal", "the calls", refusedFor("budget", "limits.peer_calls"))
		b.counted(t, "frontal hidden", "peer_calls")
	})
	t.Run("streams", func(t *testing.T) {
		m := b.mux(t)
		go func() { // ends with the session
			for {
				s, err := m.Open()
				if err != nil {
					return
				}
				io.WriteString(s, http2.ClientPreface) // those that are opened too quickly are reset
			}
		}()
		select {
		case <-m.CloseChan():
		case <-b.Ctx.Done():
			t.Error("the session goes on")
		}
		b.audited(t, "frontal", "the streams", refusedFor("budget", "limits.peer_streams"))
		b.counted(t, "frontal hidden", "peer_streams")
	})
	t.Run("sessions", func(t *testing.T) {
		var err error
		for i := 0; err == nil && i < 100; i++ {
			_, err = b.session(t, hostile, "frontal hidden", "hidden/n1", 7440)
		}
		if !errors.Is(err, overlay.ErrForbidden) || !strings.Contains(err.Error(), "limits.peer_sessions") {
			t.Errorf("told %v", err)
		}
		b.served(t, "hidden/n3", "closed/n4")
		b.audited(t, "frontal", "the sessions", refusedFor("session", "limits.peer_sessions"))
		b.counted(t, "frontal hidden", "peer_sessions")
	})
	t.Run("waits", b.waits)
	t.Run("registrations", b.registrations)
	for _, port := range b.ports(t) {
		t.Run("half-open at "+port.name, func(t *testing.T) { b.halfOpen(t, port) })
	}
	t.Run("silent at the helper's socket", func(t *testing.T) {
		b.silent(t, "", "silent-processes", "half_open_per_source", "silent_processes_per_user")
	})
	t.Run("silent at the helper's door", func(t *testing.T) {
		b.silent(t, nodeservice.DoorSuffix, "door", "door_per_user", "door_per_user")
	})
	t.Run("unfinished messages at the helper's door", b.unfinished)
	t.Run("dials of one account", func(t *testing.T) {
		b.requests(t, func(n uint32) wire.Frame { return &wire.LocalDial{Request: n, Rank: n + 1, Budget: 10 * time.Minute} })
	})
	t.Run("lookups of one account", func(t *testing.T) {
		b.requests(t, func(n uint32) wire.Frame {
			return &wire.LocalLookup{Request: n, Name: fmt.Sprint("nothing-", n), Budget: 10 * time.Minute}
		})
	})

	b.released(t)
}

// session is attacked.as, but may fail.
func (b *budgeted) session(t *testing.T, id control.Identity, daemon, from string, port uint16) (*control.Session, error) {
	t.Helper()
	files, err := b.Issue(id, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	e, cfg := b.Visitor(t, files, daemon, from, port)
	s, err := e.Dial(b.Ctx, cfg)
	if err == nil {
		t.Cleanup(func() { s.Close() })
	}
	return s, err
}

// over reports whether a session has ended.
func over(s *control.Session) bool {
	select {
	case <-s.Done():
		return true
	default:
		return false
	}
}

// Requests that take some hundred times their bytes in memory, in messages of several lengths, and reports about
// sites that are invented take no more of a daemon's than its budgets, whether a node sends them or the frontal
// of a site. The daemons are new: what others have had is not given back to the system at once.
func TestMessagesOfMuchMemory(t *testing.T) {
	b := newBudgeted(t)
	for _, attacker := range []struct {
		id           control.Identity
		daemon, from string
		port         uint16
		methods      []string
	}{
		{hostile, "frontal hidden", "hidden/n1", 7440, []string{
			controlpb.Directory_Register_FullMethodName, controlpb.Directory_Publish_FullMethodName, controlpb.Directory_Resolve_FullMethodName,
			controlpb.Directory_Withdraw_FullMethodName, controlpb.Nodes_Account_FullMethodName,
		}},
		{control.Identity{Role: control.RoleFrontal, Site: "third"}, "broker", "public/stranger", 443, []string{
			controlpb.Directory_Register_FullMethodName, controlpb.Directory_Publish_FullMethodName, controlpb.Directory_Resolve_FullMethodName,
			controlpb.Sites_Hosts_FullMethodName, controlpb.Traffic_Report_FullMethodName,
		}},
	} {
		t.Run(attacker.id.String(), func(t *testing.T) {
			files, err := b.Issue(attacker.id, time.Now().Add(time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			b.begin(t)
			ctx, cancel := context.WithCancel(b.Ctx)
			var attack sync.WaitGroup
			defer attack.Wait()
			defer cancel()
			// again calls until the end, on a session that is opened anew when it has been ended.
			again := func(call func(*control.Session)) {
				e, cfg := b.Visitor(t, files, attacker.daemon, attacker.from, attacker.port)
				attack.Go(func() {
					for ctx.Err() == nil {
						s, err := e.Dial(ctx, cfg)
						if err != nil {
							continue // the sessions of before are not closed yet
						}
						for ctx.Err() == nil && !over(s) {
							call(s)
						}
						s.Close()
					}
				})
			}
			for _, method := range attacker.methods {
				for _, n := range []int{1_900_000, 30_000} {
					again(func(s *control.Session) {
						element := []byte{10, 0} // of the first field
						if method == controlpb.Traffic_Report_FullMethodName {
							element[0] = 0x12 // of the second
						}
						request := &controlpb.AccountRequest{} // it carries what it does not know as it is
						request.ProtoReflect().SetUnknown(bytes.Repeat(element, n))
						if err := s.Conn().Invoke(ctx, method, request, &controlpb.AccountResponse{}); err == nil {
							t.Errorf("%s with %d empty elements is answered", method, n)
						}
					})
				}
			}
			invented := 0
			again(func(s *control.Session) {
				invented++
				controlpb.NewDirectoryClient(s.Conn()).Report(ctx, &controlpb.ReportRequest{
					Target: &controlpb.Process{Job: "x"}, TargetSite: fmt.Sprint("made-up-", invented), Technique: uint32(overlay.Direct), Plan: 1,
					Fault: &controlpb.Fault{Code: 5, Text: strings.Repeat("x", 60<<10)},
				})
			})
			for range 3 {
				b.served(t, "hidden/n3", "closed/n4")
			}
			b.bounded(t)
		})
	}
	for _, daemon := range []string{"frontal", "broker"} {
		b.audited(t, daemon, "the messages", refusedFor("budget", "would take more than"))
	}
	b.released(t)
}

// waits asks for 20,000 processes that never start.
func (b *budgeted) waits(t *testing.T) {
	b.begin(t)
	s := b.as(t, hostile, "frontal hidden", "hidden/n1", 7440)
	job := labtest.NewKey(t, "never").ID()
	ctx, cancel := context.WithCancel(b.Ctx)
	defer cancel()
	var told atomic.Value
	var refused, ended atomic.Int64
	var all sync.WaitGroup
	room := make(chan struct{}, 640) // below limits.peer_calls, which has a test of its own
	for rank := range uint32(20_000) {
		all.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			r, err := controlpb.NewDirectoryClient(s.Conn()).Resolve(ctx, &controlpb.ResolveRequest{
				Questions: []*controlpb.Question{{Process: control.ProcessToPB(overlay.ProcessName{Job: job, Rank: rank})}}, WaitMs: 60_000,
			})
			if err = control.FromStatus(err); err == nil {
				err = control.FaultErr(r.Answers[0].Fault)
			}
			if errors.Is(err, overlay.ErrOverloaded) {
				refused.Add(1)
				told.Store(err.Error())
			}
			ended.Add(1)
		})
	}
	b.Until("most waits to be refused", func() bool { return ended.Load() > 18_000 })
	for range 3 {
		b.served(t, "hidden/n3", "closed/n4")
	}
	b.bounded(t)
	if refused.Load() == 0 || !strings.Contains(told.Load().(string), "(limits.") || !strings.Contains(told.Load().(string), "n9") {
		t.Errorf("%d refused, told %v", refused.Load(), told.Load())
	}
	b.audited(t, "frontal", "the waits", refusedFor("waits", "limits.waiting_per_node"))
	b.counted(t, "frontal hidden", "waiting_per_node")
	cancel()
	all.Wait()
}

// registrations fills the frontal's table from one node.
func (b *budgeted) registrations(t *testing.T) {
	s := b.as(t, hostile, "frontal hidden", "hidden/n1", 7440)
	d := controlpb.NewDirectoryClient(s.Conn())
	key := labtest.NewKey(t, "crowd")
	var points []*controlpb.AccessPoint
	var names []*controlpb.Withdrawal
	for rank := range uint32(5000) {
		p := overlay.AccessPoint{Process: overlay.ProcessName{Job: key.ID(), Rank: rank}, Generation: 1, Node: hostile.Node()}
		p.Proof = string(key.Auth().Prove(p.Process, p.Generation, p.Node))
		points = append(points, control.RegistrationToPB(p))
		names = append(names, &controlpb.Withdrawal{Process: control.ProcessToPB(p.Process), Generation: 1})
	}
	const inOneCall = 200
	var faults []*controlpb.Fault
	for some := range slices.Chunk(points, inOneCall) {
		resp, err := d.Register(b.Ctx, &controlpb.RegisterRequest{Points: some})
		if err != nil {
			t.Fatal(err)
		}
		faults = append(faults, resp.Faults...)
	}
	if len(faults) != 5000-4096 || !strings.Contains(faults[0].Text, "the limit of 4096 registered processes for n9 is reached (limits.processes_per_node)") {
		t.Fatalf("%d refused: %.300v", len(faults), faults)
	}
	b.served(t, "hidden/n3", "closed/n4")
	b.audited(t, "frontal", "the registrations", refusedFor("access-point", "limits.processes_per_node"))
	b.counted(t, "frontal hidden", "processes_per_node")
	for some := range slices.Chunk(names[:4096], inOneCall) {
		if _, err := d.Withdraw(b.Ctx, &controlpb.WithdrawRequest{Processes: some}); err != nil {
			t.Error(err)
		}
	}
}

// port is one that a daemon listens on.
type port struct {
	name, daemon, addr string
	attackers          []string // hosts, each a source
	first              string   // bytes that each connection sends; "" is silence
	kind, rule, limit  string   // of the audit log, its record, and the metric
	serve              func(t *testing.T)
}

// ports returns all listening ports, with a check that another source is served meanwhile.
func (b *budgeted) ports(t *testing.T) []port {
	at := func(daemon string, port uint16) string {
		return netip.AddrPortFrom(b.Daemon(daemon).Host.Addr(), port).String()
	}
	link := func(from, to string) func(t *testing.T) {
		return func(t *testing.T) { b.served(t, from, to) }
	}
	session := func(id control.Identity, daemon, from string, port uint16) func(t *testing.T) {
		return func(t *testing.T) {
			start := time.Now()
			s, err := b.session(t, id, daemon, from, port)
			if took := time.Since(start); err != nil || took > max(10*time.Second, 3*b.slow) {
				t.Errorf("a session of another source: %v after %v", err, took)
				return
			}
			s.Close()
		}
	}
	public := []string{"public/stranger", "public/p2"}
	hidden := []string{"hidden/n1", "hidden/n2"}
	closed := []string{"closed/n2", "closed/n3"}
	return []port{
		{"the broker's control port", "broker", at("broker", 443), public, "\x16\x03\x01\x02", "broker", "half-open", "half_open_control_per_source", session(asAdmin, "broker", "public/p3", 443)},
		{"the broker's control port, silent", "broker", at("broker", 443), public, "", "broker", "half-open", "half_open_control_per_source", session(asAdmin, "broker", "public/p3", 443)},
		{"the frontal's control port", "frontal hidden", at("frontal hidden", 7440), hidden, "\x16\x03\x01\x02", "frontal", "session", "half_open_control_per_source",
			session(control.Identity{Role: control.RoleHelper, Site: "hidden", Name: "n3"}, "frontal hidden", "hidden/n3", 7440)},
		{"the frontal's data port", "frontal hidden", at("frontal hidden", 7441), hidden, "", "frontal", "data-overloaded", "half_open_data_per_source", link("hidden/n3", "closed/n4")},
		{"the proxy", "proxy p1", at("proxy p1", 443), public, "", "proxy", "too-many-handshakes", "handshakes_per_source", link("hidden/n3", "closed/n4")},
		{"a helper's data port", "helper closed/n1", b.listening("helper closed/n1").String(), closed, "", "helper", "too-many-intros", "half_open_data_per_source", link("closed/n4", "closed/n1")},
	}
}

// halfOpen opens as many connections as there are places from each of two sources, and more, and
// holds them.
func (b *budgeted) halfOpen(t *testing.T, p port) {
	b.begin(t)
	var mu sync.Mutex
	var held []net.Conn
	defer func() {
		for _, c := range held {
			c.Close()
		}
	}()
	for _, from := range p.attackers {
		var attack sync.WaitGroup
		for range 10 {
			attack.Go(func() {
				for range 100 {
					c, err := b.Lab.Host(from).Dial(b.Ctx, "tcp", p.addr)
					if err != nil {
						t.Errorf("%s: %v", from, err)
						return
					}
					io.WriteString(c, p.first)
					mu.Lock()
					held = append(held, c)
					mu.Unlock()
				}
			})
		}
		attack.Wait()
	}
	for range 3 {
		p.serve(t)
	}
	b.bounded(t)
	b.audited(t, p.kind, "the refusal", refusedFor(p.rule, "_per_source)"))
	b.counted(t, p.daemon, p.limit)
}

// silent makes one account open connections to a helper's socket, or the one with that suffix, and
// send nothing.
func (b *budgeted) silent(t *testing.T, suffix, rule, setting, metric string) {
	if !labtest.IsRoot(t) {
		t.Skip("this process cannot become another user")
	}
	socket := b.Socket("closed/n4") + suffix
	const most = 4200
	held := make(chan net.Conn, most)
	defer func() {
		for range len(held) {
			(<-held).Close()
		}
	}()
	var attack sync.WaitGroup
	for range 8 {
		attack.Go(func() {
			for range most / 8 {
				c, err := dialAs(t, socket)
				if err != nil {
					t.Error(err)
					return
				}
				held <- c
			}
		})
	}
	attack.Wait()
	b.served(t, "hidden/n3", "closed/n4")
	b.audited(t, "helper", "the silent connections", refusedFor(rule, fmt.Sprintf("for uid %d is reached (limits.%s)", labtest.Nobody, setting)))
	b.counted(t, "helper closed/n4", metric)
}

// unfinished makes one account begin messages at a helper's socket, on many connections, and finish
// none.
func (b *budgeted) unfinished(t *testing.T) {
	if !labtest.IsRoot(t) {
		t.Skip("this process cannot become another user")
	}
	const helper = "helper closed/n4"
	idle := b.usage(t, helper).kib
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", b.Daemon(helper).PID()), []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
	var held []net.Conn
	defer func() {
		for _, c := range held {
			c.Close()
		}
	}()
	for range 8 {
		raw, err := dialAs(t, b.Socket("closed/n4")+nodeservice.DoorSuffix)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, raw)
		c := callsOn(raw)
		for range 200 {
			if c.unfinished(nodepb.NodeService_Converse_FullMethodName) != nil {
				break
			}
		}
	}
	conn, err := nodeservice.Connect(b.Socket("closed/n4"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := nodepb.NewNodeServiceClient(conn).Ping(b.Ctx, &nodepb.PingRequest{}); err != nil {
		t.Errorf("a call of another account: %v", err)
	}
	b.served(t, "hidden/n3", "closed/n4")
	most := b.memory(t, helper)
	t.Logf("%s: %d MiB idle, %d MiB at most", helper, idle>>10, most>>10)
	if most > idle+64<<10 {
		t.Errorf("%s had %d MiB, and %d MiB idle", helper, most>>10, idle>>10)
	}
	b.audited(t, "helper", "the unfinished messages", refusedFor("budget", fmt.Sprintf("for uid %d is reached (limits.door_bytes_per_user)", labtest.Nobody)))
	b.counted(t, helper, "door_bytes_per_user")
}

// requests makes a process of one account send a helper as many requests as possible at a time,
// which are never satisfied: there is room for others' processes, and the session with the frontal
// survives.
func (b *budgeted) requests(t *testing.T, request func(n uint32) wire.Frame) {
	if !labtest.IsRoot(t) {
		t.Skip("this process cannot become another user")
	}
	raw, err := dialAs(t, b.Socket("closed/n4"))
	if err != nil {
		t.Fatal(err)
	}
	c := local.NewConn(raw.(*net.UnixConn))
	defer c.Close()
	key := labtest.NewKey(t, "greedy")
	process := overlay.ProcessName{Job: key.ID()}
	c.Send(&wire.LocalHello{Key: key.Auth().Public(), Job: process.Job}, nil)
	hear := func() wire.Frame {
		t.Helper()
		f, file, err := c.Receive()
		if file != nil {
			file.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	place := hear().(*wire.LocalPlace)
	proof := key.Auth().Prove(process, place.Generation, place.Node)
	c.Send(&wire.LocalProof{Signature: [64]byte(proof[32:])}, nil)
	if f, ok := hear().(*wire.LocalWelcome); !ok {
		t.Fatalf("told %v", f)
	}
	// The frontal may refuse some before the helper does: it lets a node wait for fewer names.
	refused := make(chan struct{})
	go func() { // ends with the connection
		over := sync.OnceFunc(func() { close(refused) })
		for {
			f, _, err := c.Receive()
			if err != nil {
				return
			}
			if f, ok := f.(*wire.LocalFailed); ok && f.Code == wire.CodeOverloaded && strings.Contains(f.Text, "(limits.open_per_user)") {
				over()
			}
		}
	}()
	for n := range uint32(4096) {
		if err := c.Send(request(n), nil); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-refused:
	case <-b.Ctx.Done():
		t.Error("no request was refused because of limits.open_per_user")
	}
	for range 3 {
		b.served(t, "hidden/n3", "closed/n4")
		b.served(t, "closed/n4", "hidden/n3")
	}
	b.audited(t, "helper", "what is over the budget", refusedFor("requests", fmt.Sprintf("for uid %d is reached (limits.open_per_user)", labtest.Nobody)))
	b.counted(t, "helper closed/n4", "open_per_user")
	if n := b.sub(t).Scrape("frontal closed", scrapePorts["frontal"])[`isthmus_limit_refused_total{limit="peer_calls"}`]; n != "0" {
		t.Errorf("the helper went over its own budget at the frontal %q times", n)
	}
}

// released waits until the daemons use the same resources as before, and the guarded ones 16 MiB of memory more at most.
func (b *budgeted) released(t *testing.T) {
	for _, d := range b.Daemons() {
		idle, now := b.idle[d.Name], taken{}
		b.Until(d.Name+" to give back what it had taken", func() bool {
			now = b.usage(t, d.Name)
			return now.descriptors <= idle.descriptors+10 && now.goroutines <= idle.goroutines+idle.goroutines/5+20
		}, func() string { return fmt.Sprintf("%+v, idle %+v", now, idle) })
	}
	start := time.Now()
	end := start.Add(30 * time.Second)
	for _, d := range guarded {
		idle, now := b.idle[d].kib, b.usage(t, d).kib
		for ; now > idle+16<<10 && time.Now().Before(end); now = b.usage(t, d).kib {
			time.Sleep(250 * time.Millisecond) // to ask takes some itself
		}
		t.Logf("%s: %d MiB idle, %d MiB after the end and %v", d, idle>>10, now>>10, time.Since(start).Round(time.Second/10))
		if now > idle+16<<10 {
			t.Errorf("%s keeps %d MiB after the end, and had %d MiB idle", d, now>>10, idle>>10)
		}
	}
}

// Silent connections on which certificates may be requested do not block other requests, and end
// soon.
func TestSilentEnrolments(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(labtest.Program(t, ""), append([]string{"ca"}, args...)...)
		cmd.Dir = dir
		stdout, stderr, status := labtest.Run(t, cmd)
		if status != 0 {
			t.Fatalf("ca %q: status %d: %s", args, status, stderr)
		}
		return strings.TrimSpace(stdout)
	}
	must("init", "tg")
	must("issue", "broker", "b1")
	must("issuer")
	settings := "listen: 127.0.0.1:0\nstun_listen: \"\"\nallow_loopback: true\naudit: {folder: " + at("audit") + "}\n" +
		"tls: {cert: broker-b1.pem, key: broker-b1.key, ca: ca.pem, revoked: revoked.pem}\n" +
		"enrol: {cert: issuer.pem, key: issuer.key}\nstore: used.db\n"
	if err := os.WriteFile(at("broker.yaml"), []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	broker := labtest.StartDaemon(t, exec.Command(labtest.Program(t, "-broker"), "--config", at("broker.yaml")))
	var silent []*tls.Conn
	for range 70 {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
		raw, err := d.Dial("tcp", broker)
		if err != nil {
			t.Fatal(err)
		}
		defer raw.Close()
		c := tls.Client(raw, &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, NextProtos: []string{control.EnrolALPN}})
		if err := c.Handshake(); err != nil {
			t.Fatal(err)
		}
		silent = append(silent, c)
	}
	token := must("token", "proxy", "p1")
	start := time.Now()
	must("enroll", "--broker", broker, "--token", token, "--out", "p1")
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("enrolling beside silent ones took %v", took)
	}
	labtest.AwaitAudit(t, t.Context(), at("audit"), "the silent ones", refusedFor("enrolment", "no request for a certificate came within"))
	for _, c := range silent {
		c.SetDeadline(time.Now().Add(30 * time.Second))
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("a silent connection is kept")
		}
	}
}
