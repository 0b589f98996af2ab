//go:build system

package attack

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
	"github.com/isthmus-grid/isthmus/wire"
)

// attacked is a world whose daemons all keep audit logs, and a job that continues during all
// attacks: its link passes a gateway and a proxy.
type attacked struct {
	*world
	trails string // folder of the audit logs, one folder for each kind of daemon
	beside *labtest.Flow
}

func newAttacked(t *testing.T) *attacked {
	a := &attacked{trails: t.TempDir()}
	settings := func(kind string, more map[string]any) map[string]any {
		all := map[string]any{"audit": map[string]any{"folder": filepath.Join(a.trails, kind)}}
		for k, v := range more {
			all[k] = v
		}
		return all
	}
	a.world = newWorld(t, labtest.SiteClosed+labtest.SiteHidden, grid.Config{
		Proxies: []string{"public/p1", "public/p2"},
		Settings: map[string]map[string]any{
			"broker":  settings("broker", nil),
			"proxy":   settings("proxy", map[string]any{"limits": map[string]any{"handshakes": 32}}),
			"frontal": settings("frontal", map[string]any{"deny": []string{"192.0.2.0/24"}}),
			"helper":  settings("helper", map[string]any{"deny": []string{"198.18.0.0/15"}}),
		},
	})
	a.beside = a.StartFlow(a.LinkPair("hidden/n1", "closed/n1"))
	return a
}

// unharmed checks the job after an attack.
func (a *attacked) unharmed(t *testing.T) {
	t.Helper()
	w := a.sub(t)
	w.AwaitFlows("after the attack", []*labtest.Flow{a.beside})
}

// audited waits for a record in the audit logs of a kind of daemon, and returns it.
func (a *attacked) audited(t *testing.T, kind, what string, is func(*audit.Record) bool) audit.Record {
	t.Helper()
	return labtest.AwaitAudit(t, a.Ctx, filepath.Join(a.trails, kind), what, is)
}

// refusedFor matches a refusal under a rule whose reason contains the words.
func refusedFor(rule, words string) func(*audit.Record) bool {
	return func(r *audit.Record) bool {
		return r.Event == audit.Refusal && r.Rule == rule && strings.Contains(r.Reason, words)
	}
}

// as opens a control session with the stolen certificate of another daemon, beside the session of
// that daemon itself.
func (a *attacked) as(t *testing.T, id control.Identity, daemon, from string, port uint16) *control.Session {
	t.Helper()
	files, err := a.Issue(id, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	return a.Visit(t, files, daemon, from, port)
}

// assigned asks the broker for a relay from rank 0 of the job to rank 1, as the asker's frontal
// would, and returns its assignment.
func (a *attacked) assigned(t *testing.T, frontal *control.Session) *controlpb.Assignment {
	t.Helper()
	event, err := a.signal(t, frontal, func(*controlpb.SignalRequest) {})
	if err != nil || event.GetRelay() == nil {
		t.Fatalf("%v, %v", event, err)
	}
	return event.GetRelay()
}

// signal returns the broker's first answer.
func (a *attacked) signal(t *testing.T, frontal *control.Session, change func(*controlpb.SignalRequest)) (*controlpb.SignalEvent, error) {
	t.Helper()
	asker, target := a.beside.Pair.A.Identity, a.beside.Pair.B.Identity
	link := make([]byte, 16)
	rand.Read(link)
	req := &controlpb.SignalRequest{
		Link: link, Technique: uint32(overlay.Relay), Asker: control.ProcessToPB(asker.Process), Target: control.ProcessToPB(target.Process),
		TargetGeneration: uint64(target.Generation),
	}
	change(req)
	ctx, cancel := context.WithCancel(a.Ctx)
	t.Cleanup(cancel) // the target's side needs its time
	stream, err := controlpb.NewDirectoryClient(frontal.Conn()).Signal(ctx, req)
	if err != nil {
		return nil, err
	}
	event, err := stream.Recv()
	return event, control.FromStatus(err)
}

// showTicket shows a ticket at a proxy from a host outside the grid.
func (a *attacked) showTicket(t *testing.T, proxy string, ticket []byte) net.Conn {
	t.Helper()
	c, err := a.Lab.Host("public/stranger").Dial(a.Ctx, "tcp", netip.AddrPortFrom(a.Daemon("proxy "+proxy).Host.Addr(), 443).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := c.Write(ticket); err != nil {
		t.Fatal(err)
	}
	return c
}

// Attacks by outsiders and by members: each is refused, each refusal is in an audit log, and a
// concurrent job is not affected. See docs/threat-model.md.
func TestAttacks(t *testing.T) {
	a := newAttacked(t)
	lorises := a.slowly(t)
	hidden := a.as(t, control.Identity{Role: control.RoleFrontal, Site: "hidden"}, "broker", "public/stranger", 443)

	t.Run("ticket for another proxy", func(t *testing.T) {
		relay := a.assigned(t, hidden)
		other := map[string]string{"p1": "p2", "p2": "p1"}[relay.Proxy]
		w := a.sub(t)
		if r := w.refusal(a.showTicket(t, other, relay.Ticket)); !strings.Contains(r.Text, "the ticket is for proxy "+relay.Proxy) {
			t.Errorf("told %+v", r)
		}
		r := a.audited(t, "proxy", "a foreign ticket", refusedFor("ticket-foreign", "the ticket is for proxy"))
		if r.Job != "" || r.Relay != other {
			t.Errorf("a claim that nobody proved is in the record: %+v", r)
		}
		a.unharmed(t)
	})
	t.Run("stolen ticket", func(t *testing.T) {
		// The thief is joined with the target, which requires a proof that only the job's key
		// gives; and the ticket is used up.
		relay := a.assigned(t, hidden)
		job := string(a.beside.Pair.A.Identity.Process.Job)
		thief := a.showTicket(t, relay.Proxy, relay.Ticket)
		thief.Write(wire.Append(nil, &wire.Proof{}))
		if _, err := io.Copy(io.Discard, thief); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("the target goes on with the thief")
		}
		thief.Close()
		a.audited(t, "proxy", "the thief's link", func(r *audit.Record) bool {
			return r.Event == audit.LinkEnd && r.Job == job && strings.Contains(r.Peer, a.Lab.Host("public/stranger").Addr().String()) && r.Sent < 1000
		})
		w := a.sub(t)
		if r := w.refusal(a.showTicket(t, relay.Proxy, relay.Ticket)); r.Text != "the ticket was used before" {
			t.Errorf("told %+v", r)
		}
		r := a.audited(t, "proxy", "the replay", refusedFor("ticket-used", "used before"))
		if r.Job != job {
			t.Errorf("the record does not name the job: %+v", r)
		}
		a.unharmed(t)
	})
	t.Run("cross-job dial", func(t *testing.T) {
		stranger := labtest.NewKey(t, "stranger").ID()
		_, err := a.signal(t, hidden, func(r *controlpb.SignalRequest) { r.Asker.Job = string(stranger) })
		if !errors.Is(err, overlay.ErrForbidden) || !strings.Contains(err.Error(), "a process of another job") {
			t.Errorf("told %v", err)
		}
		a.audited(t, "broker", "the dial across jobs", func(r *audit.Record) bool {
			return r.Event == audit.Decision && r.Effect == audit.Refused && r.Rule == "forbidden" && r.Job == string(stranger) && r.Peer == "frontal hidden"
		})
		a.unharmed(t)
	})
	t.Run("another site's process", func(t *testing.T) {
		_, err := a.signal(t, hidden, func(r *controlpb.SignalRequest) { // the target's side asks in the asker's name
			r.Asker, r.Target = r.Target, r.Asker
		})
		if !errors.Is(err, overlay.ErrForbidden) || !strings.Contains(err.Error(), "is a process of closed, not of hidden") {
			t.Errorf("told %v", err)
		}
		a.audited(t, "broker", "a dial in another site's name", func(r *audit.Record) bool {
			return r.Effect == audit.Refused && strings.Contains(r.Reason, "is a process of closed, not of hidden")
		})
	})
	t.Run("access points that nobody may dial", func(t *testing.T) {
		key := labtest.NewKey(t, "poison")
		for addr, want := range map[string]string{
			"127.0.0.1:22":                "is a loopback address",
			"[::1]:22":                    "is a loopback address",
			"[::ffff:127.0.0.1]:22":       "is a loopback address",
			"169.254.169.254:80":          "is link-local",
			"[::ffff:169.254.169.254]:80": "is link-local",
			"[fe80::1]:80":                "is link-local",
			"[64:ff9b::7f00:1]:22":        "stands for an IPv4 address",
			"[64:ff9b:1::7f00:1]:22":      "stands for an IPv4 address",
			"[::7f00:1]:22":               "stands for an IPv4 address",
			"[2002:7f00:1::]:22":          "stands for an IPv4 address",
			"0.0.0.0:22":                  "is no host's address",
			"0.1.2.3:22":                  "is no host's address",
			"224.0.0.1:22":                "is not one host's address",
		} {
			p := overlay.AccessPoint{Process: overlay.ProcessName{Job: key.ID()}, Generation: 1, Node: overlay.NodeID{Site: "hidden", Name: "n1"}, Public: netip.MustParseAddrPort(addr)}
			p.Proof = string(key.Auth().Prove(p.Process, p.Generation, p.Node))
			if err := a.registers(t, controlpb.NewDirectoryClient(hidden.Conn()), p); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v; want %q", addr, err, want)
				continue
			}
			a.audited(t, "broker", addr, refusedFor("access-point", want))
		}
		a.unharmed(t)
	})
	t.Run("a proxy at a loopback address", func(t *testing.T) {
		proxy := a.as(t, asProxy, "broker", "public/stranger", 443)
		_, err := controlpb.NewRelaysClient(proxy.Conn()).Offer(a.Ctx, &controlpb.OfferRequest{Name: "px", Addresses: []string{"127.0.0.1:443"}, TicketKey: make([]byte, 32), Capacity: 1})
		if err := control.FromStatus(err); !errors.Is(err, overlay.ErrForbidden) {
			t.Errorf("told %v", err)
		}
		a.audited(t, "broker", "the offer", refusedFor("offer", "is a loopback address"))
	})
	t.Run("a gateway as a way to other hosts", func(t *testing.T) {
		helper := a.as(t, control.Identity{Role: control.RoleHelper, Site: "hidden", Name: "n1"}, "frontal hidden", "hidden/n1", 7440)
		pair := a.beside.Pair
		for addr, want := range map[string]string{
			"127.0.0.1:22":             "a loopback address",
			"[::ffff:127.0.0.1]:22":    "a loopback address",
			"169.254.169.254:80":       "a link-local address",
			"[64:ff9b::a9fe:a9fe]:80":  "a translated IPv4 address",
			"192.0.2.7:22":             "which this host's settings deny",
			"localhost:22":             "is not an address:port", // no name is ever resolved
			"127.0.0.1.example.org:80": "is not an address:port",
			"x\n{\"seq\":1,\"event\":\"decision\",\"user\":\"root\"}": "is not an address:port",
			a.Daemon("broker").Host.Addr().String() + ":22":           "the broker did not name",
		} {
			_, err := controlpb.NewNodesClient(helper.Conn()).Carry(a.Ctx, &controlpb.CarryRequest{
				Asker: control.ProcessToPB(pair.A.Identity.Process), Target: control.ProcessToPB(pair.B.Identity.Process), Addresses: []string{addr},
			})
			if err := control.FromStatus(err); err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, overlay.ErrForbidden) {
				t.Errorf("%s: %v; want %q", addr, err, want)
				continue
			}
			a.audited(t, "frontal", addr, refusedFor("carry", want))
		}
		a.unharmed(t)
	})
	rogue := a.rogue(t)
	t.Run("node service of another node", func(t *testing.T) { a.stolenServices(t, rogue) })
	t.Run("process of another site", func(t *testing.T) { a.stolenNames(t, rogue) })
	t.Run("false addresses", func(t *testing.T) { a.falseAddresses(t, rogue) })
	t.Run("generations", func(t *testing.T) { a.generations(t) })
	t.Run("a length of 1 GiB", func(t *testing.T) { a.gibibyte(t) })
	t.Run("helper's socket by another user", func(t *testing.T) { a.otherUser(t) })
	t.Run("flood of half-open links", func(t *testing.T) { a.flood(t) })
	t.Run("slow-loris", func(t *testing.T) {
		lorises.Wait()
		a.audited(t, "proxy", "a connection without a ticket", refusedFor("no-ticket", "no ticket within"))
		a.audited(t, "helper", "a connection without an intro", refusedFor("intro", ""))
		a.audited(t, "frontal", "a connection without an intro", refusedFor("data-timeout", "no intro arrived"))
		a.audited(t, "frontal", "a session without an end of its hand-shake", refusedFor("session", ""))
		a.audited(t, "broker", "a session without an end of its hand-shake", refusedFor("session", ""))
		a.unharmed(t)
	})

	for _, d := range a.Daemons() {
		if !d.Running() {
			t.Errorf("%s is gone", d.Name)
		}
	}
	last := a.LinkPair("hidden/n1", "closed/n1") // as before
	last.End(t)
	job := string(last.A.Identity.Process.Job)
	for _, kind := range []string{"proxy", "frontal"} {
		a.audited(t, kind, "the last link's end", func(r *audit.Record) bool { return r.Event == audit.LinkEnd && r.Job == job })
	}
	if lost := a.Figure("broker", "audit", "lost"); lost != 0.0 {
		t.Errorf("the broker's audit log lost %v records", lost)
	}
	// The gateway and the proxy both counted the traffic, and the audit reports it once.
	who, stderr, status := labtest.Run(t, exec.Command(labtest.Program(t, ""), "audit", "query", "--sum", "bytes", "--by", "user,sites", "--job", job, "--over", "200kB",
		filepath.Join(a.trails, "broker"), filepath.Join(a.trails, "proxy"), filepath.Join(a.trails, "frontal")))
	if rows := strings.Split(strings.TrimSpace(who), "\n"); status != 0 || len(rows) != 2 || !strings.Contains(rows[1], "@hidden") || !strings.Contains(rows[1], "closed hidden") {
		t.Errorf("status %d\n%s%s", status, who, stderr)
	}
	whole, stderr, status := labtest.Run(t, exec.Command(labtest.Program(t, ""), "audit", "verify",
		filepath.Join(a.trails, "broker"), filepath.Join(a.trails, "proxy"), filepath.Join(a.trails, "frontal"), filepath.Join(a.trails, "helper")))
	if status != 0 || strings.Count(whole, ": whole, ") != 1+2+2+3 {
		t.Errorf("status %d\n%s%s", status, whole, stderr)
	}
}

// slowly connects to every port that a daemon listens on and sends almost nothing, a byte at
// intervals. All connections are finally closed.
func (a *attacked) slowly(t *testing.T) *sync.WaitGroup {
	t.Helper()
	at := func(daemon string, port uint16) string {
		return netip.AddrPortFrom(a.Daemon(daemon).Host.Addr(), port).String()
	}
	lorises := new(sync.WaitGroup)
	for _, port := range []struct{ name, from, at, says string }{
		{"broker", "public/stranger", at("broker", 443), "\x16\x03\x01\x02"},
		{"broker, a frame", "public/stranger", at("broker", 443), "IS\x01"},
		{"broker's STUN over TCP", "public/stranger", at("broker", 3478), "IS\x01"},
		{"proxy", "public/stranger", at("proxy p1", 443), "IS\x01\x05"},
		{"proxy's STUN over TCP", "public/stranger", at("proxy p1", 3478), "IS\x01"},
		{"frontal", "hidden/n1", at("frontal hidden", 7440), "\x16\x03\x01\x02"},
		{"frontal's data port", "hidden/n1", at("frontal hidden", 7441), "IS\x01\x01"},
		{"helper", "closed/n2", a.listening("helper closed/n1").String(), "IS\x01\x01"},
	} {
		c, err := a.Lab.Host(port.from).Dial(a.Ctx, "tcp", port.at)
		if err != nil {
			t.Fatalf("%s: %v", port.name, err)
		}
		lorises.Go(func() {
			defer c.Close()
			for said := 0; ; said++ {
				if said < len(port.says) {
					c.Write([]byte{port.says[said]})
				}
				c.SetReadDeadline(time.Now().Add(500 * time.Millisecond)) // the attacker's interval
				if _, err := io.Copy(io.Discard, c); !errors.Is(err, os.ErrDeadlineExceeded) {
					return // it was closed
				}
				if a.Ctx.Err() != nil {
					t.Errorf("%s keeps a connection that says nothing", port.name)
					return
				}
			}
		})
	}
	return lorises
}

// flood opens more connections at a proxy than may show their tickets at once.
func (a *attacked) flood(t *testing.T) {
	at := netip.AddrPortFrom(a.Daemon("proxy p1").Host.Addr(), 443).String()
	stranger := a.Lab.Host("public/stranger")
	for range 200 {
		c, err := stranger.Dial(a.Ctx, "tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	a.audited(t, "proxy", "too many hand-shakes", refusedFor("too-many-handshakes", ""))
	a.unharmed(t)
}

// gibibyte claims excessive lengths at the multiplexer of a control session: a frame's own length
// has only 16 bits.
func (a *attacked) gibibyte(t *testing.T) {
	before := a.memory(t, "broker")
	admin, err := a.Issue(asAdmin, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	const streams = 4
	for range streams {
		c := a.controlConn(t, admin)
		// yamux: version 0, type data, flags SYN, stream 1, a length of 1 GiB.
		head := []byte{0, 0, 0, 1, 0, 0, 0, 1}
		head = binary.BigEndian.AppendUint32(head, 1<<30)
		if _, err := c.Write(append(head, make([]byte, 1<<10)...)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("the broker waits for the gibibyte")
		}
	}
	if grown := a.memory(t, "broker") - before; grown > 256<<10 {
		t.Errorf("the broker's memory grew by %d KiB", grown)
	}
	a.audited(t, "broker", "the end of the session", func(r *audit.Record) bool {
		return r.Event == audit.Session && r.Reason == "ended" && strings.HasPrefix(r.Peer, "admin ax ")
	})
	a.unharmed(t)
}

// memory returns a daemon's peak memory, in KiB.
func (a *attacked) memory(t *testing.T, daemon string) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.Daemon(daemon).PID()))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	var kib int
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatal(err)
	}
	return kib
}

// otherUser presents another job's id at a helper's socket, as another user of the node; and tries
// a socket that is for its owner only.
func (a *attacked) otherUser(t *testing.T) {
	if !labtest.IsRoot(t) {
		t.Log("this process cannot become another user: only the other job's id is tried")
	}
	socket := a.Socket("closed/n1")
	c, err := dialAs(t, socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	theirs := labtest.NewKey(t, "theirs")
	hello := wire.Append(nil, &wire.LocalHello{Job: a.beside.Pair.B.Identity.Process.Job, Rank: 1, Generation: 99, Key: theirs.Auth().Public()})
	c.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := c.Write(hello); err != nil {
		t.Fatal(err)
	}
	w := a.sub(t)
	if r := w.refusal(c); r.Code != wire.CodeForbidden || !strings.Contains(r.Text, "does not hold the key of job") {
		t.Errorf("told %+v", r)
	}
	r := a.audited(t, "helper", "the other user", refusedFor("process", "does not hold the key of job"))
	if labtest.IsRoot(t) && !strings.HasPrefix(r.Peer, fmt.Sprintf("uid %d pid", labtest.Nobody)) {
		t.Errorf("the record is of %q", r.Peer)
	}
	a.unharmed(t)
	if !labtest.IsRoot(t) {
		return
	}
	if err := os.Chmod(socket, 0o600); err != nil { // as with public: false
		t.Fatal(err)
	}
	defer os.Chmod(socket, 0o666)
	if c, err := dialAs(t, socket); err == nil {
		c.Close()
		t.Error("another user reaches the socket of a helper that is not public")
	} else if !errors.Is(err, os.ErrPermission) {
		t.Error(err)
	}
}

// dialAs connects to a Unix socket as nobody, if this process may change its user: the connecting
// user counts, not the writing one.
func dialAs(t *testing.T, socket string) (net.Conn, error) {
	t.Helper()
	folder, err := os.Open(filepath.Dir(socket))
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	if err := folder.Chmod(0o711); err != nil { // the path through its parents does not matter here
		t.Fatal(err)
	}
	path := fmt.Sprintf("/proc/self/fd/%d/%s", folder.Fd(), filepath.Base(socket))
	type result struct {
		c   net.Conn
		err error
	}
	done := make(chan result)
	go func() { // its thread ends with it: it is not unlocked
		runtime.LockOSThread()
		if labtest.IsRoot(t) {
			if _, _, no := syscall.RawSyscall(syscall.SYS_SETRESUID, ^uintptr(0), labtest.Nobody, ^uintptr(0)); no != 0 {
				done <- result{nil, no}
				return
			}
		}
		c, err := net.Dial("unix", path)
		done <- result{c, err}
	}()
	r := <-done
	return r.c, r.err
}

// controlConn returns a control connection to the broker after its handshake, on which anything can be
// written.
func (a *attacked) controlConn(t *testing.T, show ca.Files) net.Conn {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(show.Cert, show.Key)
	if err != nil {
		t.Fatal(err)
	}
	at := netip.AddrPortFrom(a.Daemon("broker").Host.Addr(), 443)
	raw, err := a.Lab.Host("public/stranger").Dial(a.Ctx, "tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { raw.Close() })
	raw.SetDeadline(time.Now().Add(30 * time.Second))
	c := tls.Client(raw, &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true, NextProtos: []string{"isthmus-control"}})
	if _, err := c.Write(wire.Append(nil, &wire.ControlHello{Oldest: control.OldestVersion, Newest: control.NewestVersion})); err != nil {
		t.Fatal(err)
	}
	if frame, err := wire.Read(c); err != nil || frame.Type() != wire.TypeControlHello {
		t.Fatalf("%v, %v", frame, err)
	}
	return c
}
