//go:build system

package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/daemon/daemontest"
	"github.com/isthmus-grid/isthmus/internal/sleep"
	"github.com/isthmus-grid/isthmus/launch/nodeservice"
	"github.com/isthmus-grid/isthmus/overlay"
)

const (
	answerBound = 15 * time.Second       // to an answer, or to what the command waits for: commands promise 5 s, on a machine that does nothing else
	slowness    = 300 * time.Millisecond // each way, of what a slow daemon sends and gets
)

var frontalCommands = [][]string{
	{"status", "--frontal", "AT", "ADMIN"},
	{"ca", "renew", "--frontal", "AT", "NODE"},
}

// TestNothingIsSilent runs each command against daemons that are absent, frozen, refusing and slow:
// each answers soon, or says what it waits for, in a few short lines with a next step. What it says is
// in testdata; -update writes that.
func TestNothingIsSilent(t *testing.T) {
	g := newLoopGrid(t)
	ofHelper := g.helpers()
	cells := slices.Concat(
		cellsOf("helper", ofHelper.byHelper, helperCommands),
		cellsOf("frontal", ofHelper.byFrontal, helperCommands),
		cellsOf("broker", ofHelper.byBroker, helperCommands),
		cellsOf("broker-admin", g.brokers(), brokerCommands),
		cellsOf("frontal-admin", g.frontals(), frontalCommands),
		cellsOf("proxy", map[string]string{"absent": ofHelper.withoutProxy, "frozen": g.withFrozenProxy()}, [][]string{{"ps", "--helper", "AT"}, {"kill", "--helper", "AT", "nojob"}}),
		cellsOf("doctor", map[string]string{"frozen": filepath.Join(g.dir, "helper-hfrozen-n1.yaml")}, [][]string{{"doctor", "--config", "AT"}}),
		cellsOf("drain", g.drains(), [][]string{{"drain", "--socket", "AT"}}),
	)
	golden := readGolden(t, cells)
	g.runAll(cells)
	golden.conclude(t, cells)
	for _, c := range cells {
		if c.first > answerBound {
			t.Errorf("%s %s: said nothing for %v:\n%s", c.group, c.state, c.first, c.shown)
		}
		if c.took > answerBound && c.words[0] != "doctor" && !waits.MatchString(c.stderr) {
			t.Errorf("%s %s: took %v, and does not say what it waited for:\n%s%s", c.group, c.state, c.took, c.shown, c.stderr)
		}
	}
}

// startSite starts a site's frontal and returns it with its address.
func (g *loopGrid) startSite(site, broker string) (*daemontest.Process, string) {
	g.t.Helper()
	p := g.start("frontal", control.Identity{Role: control.RoleFrontal, Site: overlay.SiteID(site)}, map[string]any{
		"site": site, "listen": "127.0.0.1:0", "broker": broker, "patience": "0s", "policy": g.policy(), "private": []string{"127.0.0.0/8"},
		"profile": map[string]any{"inbound": "none", "egress": "any"}, "admin_socket": filepath.Join(g.dir, site+".admin"),
	})
	return p, p.Facts["listen"]
}

// policy returns the file of a policy that permits every link.
func (g *loopGrid) policy() string {
	file := filepath.Join(g.dir, "policy.yaml")
	if err := os.WriteFile(file, []byte("{contact: a@site.example, rules: [{name: all, effect: allow}]}\n"), 0o600); err != nil {
		g.t.Fatal(err)
	}
	return file
}

// startHelper starts the helper of a site's node n1, which offers nothing, and returns it with its socket.
func (g *loopGrid) startHelper(site, frontal string) (*daemontest.Process, string) {
	g.t.Helper()
	socket := filepath.Join(g.dir, site+".sock")
	p := g.start("helper", control.Identity{Role: control.RoleHelper, Site: overlay.SiteID(site), Name: "n1"}, map[string]any{
		"frontal": frontal, "socket": socket, "allow_loopback": true, "private": []string{"127.0.0.0/8"},
		"node_service": map[string]any{"store": filepath.Join(g.dir, "store-"+site)}, "admin_socket": filepath.Join(g.dir, site+"-n1.admin"),
	})
	return p, socket
}

// startBoth starts the frontal and the helper of a site, and returns when the helper has joined.
func (g *loopGrid) startBoth(site, broker, frontal string) (f *daemontest.Process, socket string) {
	g.t.Helper()
	f, at := g.startSite(site, broker)
	if frontal == "" {
		frontal = at
	}
	h, socket := g.startHelper(site, frontal)
	h.Until("msg=joined")
	return f, socket
}

// sockets are helpers by the state of a daemon: of their own, of their frontals, and of the brokers of
// these. withoutProxy knows a node whose service it reaches only over a proxy, of which there is
// none.
type sockets struct {
	byHelper, byFrontal, byBroker map[string]string
	withoutProxy                  string
}

// helpers starts those.
func (g *loopGrid) helpers() sockets {
	g.t.Helper()
	_, good := g.startBoth("here", g.at, "")
	g.startBoth("there", g.at, "")
	stopped, frozen := g.startHelper("hfrozen", g.nowhere())
	stopped.Signal(syscall.SIGSTOP)
	_, alone := g.startBoth("alone", g.nowhere(), "")
	s := sockets{withoutProxy: good, byHelper: map[string]string{
		"absent": filepath.Join(g.dir, "none.sock"), "frozen": frozen,
		"refusing": g.unixRelay("hrefusing", nil), "slow": g.unixRelay("hslow", &alone),
	}}

	_, absent := g.startHelper("fabsent", g.nowhere())
	stopped, frozen = g.startBoth("ffrozen", g.nowhere(), "")
	stopped.Signal(syscall.SIGSTOP)
	refuser, at := g.startSite("frefusing", g.nowhere())
	_ = refuser
	_, refusing := g.startHelper("ffor", at) // another site's
	_, slowAt := g.startSite("fslow", g.nowhere())
	h, slow := g.startHelper("fslow", g.relay(slowAt))
	h.Until("msg=joined")
	s.byFrontal = map[string]string{"absent": absent, "frozen": frozen, "refusing": refusing, "slow": slow}

	_, absent = g.startBoth("babsent", g.nowhere(), "")
	frozenBroker, frozenAt := g.startBroker("b2")
	_, frozen = g.startBoth("bfrozen", frozenAt, "")
	frozenBroker.Until(`peer="frontal bfrozen"`)
	frozenBroker.Signal(syscall.SIGSTOP)
	_, refusing = g.startBoth("brefusing", g.closing(), "")
	other, otherAt := g.startBroker("b4")
	_, slow = g.startBoth("bslow", g.relay(otherAt), "")
	other.Until(`peer="frontal bslow"`)
	s.byBroker = map[string]string{"absent": absent, "frozen": frozen, "refusing": refusing, "slow": slow}
	return s
}

// withFrozenProxy returns the socket of a helper whose only way to another site is over a proxy that is
// stopped.
func (g *loopGrid) withFrozenProxy() string {
	g.t.Helper()
	broker, at := g.startBroker("b6")
	_, socket := g.startBoth("pfrozen", at, "")
	g.startBoth("pother", at, "")
	listen := g.nowhere()
	p := g.start("proxy", control.Identity{Role: control.RoleProxy, Name: "p1"}, map[string]any{"listen": []string{listen}, "advertise": listen, "broker": at})
	broker.Until(`peer="proxy p1"`)
	p.Signal(syscall.SIGSTOP)
	return socket
}

// brokers returns addresses of brokers by state.
func (g *loopGrid) brokers() map[string]string {
	g.t.Helper()
	p, frozen := g.startBroker("b3")
	p.Signal(syscall.SIGSTOP)
	return map[string]string{"absent": g.nowhere(), "frozen": frozen, "refusing": g.closing(), "slow": g.relay(g.at), "denying": g.at}
}

// frontals returns addresses of frontals by state.
func (g *loopGrid) frontals() map[string]string {
	g.t.Helper()
	p, frozen := g.startSite("afrozen", g.nowhere())
	p.Signal(syscall.SIGSTOP)
	other, otherAt := g.startBroker("b5")
	_, good := g.startSite("agood", otherAt)
	other.Until(`peer="frontal agood"`)
	return map[string]string{"absent": g.nowhere(), "frozen": frozen, "refusing": g.closing(), "slow": g.relay(good)}
}

// drains returns admin sockets of daemons by state.
func (g *loopGrid) drains() map[string]string {
	return map[string]string{"absent": filepath.Join(g.dir, "none.admin"), "frozen": filepath.Join(g.dir, "b3.admin")}
}

// relay returns an address at which the daemon at another one is slow.
func (g *loopGrid) relay(to string) string {
	return g.serve("tcp", "127.0.0.1:0", func(c net.Conn) { delay(g.t.Context(), c, "tcp", to) })
}

// unixRelay returns the socket of a helper that is slow, or without one of a helper that closes every
// connection.
func (g *loopGrid) unixRelay(name string, to *string) string {
	socket := filepath.Join(g.dir, name+".sock")
	g.serve("unix", socket+nodeservice.DoorSuffix, func(c net.Conn) {
		if to == nil {
			c.Close()
			return
		}
		delay(g.t.Context(), c, "unix", *to+nodeservice.DoorSuffix)
	})
	return socket
}

// delay carries bytes between a connection and an address, each slowness after it came, until either
// end closes or ctx ends.
func delay(ctx context.Context, c net.Conn, network, to string) {
	defer c.Close()
	d, err := net.Dial(network, to)
	if err != nil {
		return
	}
	defer d.Close()
	defer context.AfterFunc(ctx, func() { c.Close(); d.Close() })()
	var both sync.WaitGroup
	both.Go(func() { delayed(ctx, d, c) })
	both.Go(func() { delayed(ctx, c, d) })
	both.Wait()
}

// delayed copies until from ends, and closes to.
func delayed(ctx context.Context, to, from net.Conn) {
	type chunk struct {
		data []byte
		due  time.Time
	}
	chunks := make(chan chunk, 1024)
	var writing sync.WaitGroup
	writing.Go(func() {
		defer to.Close()
		for c := range chunks {
			if sleep.For(ctx, time.Until(c.due)) != nil {
				continue
			}
			to.Write(c.data) // an error ends the reader, too
		}
	})
	for {
		data := make([]byte, 64<<10)
		n, err := from.Read(data)
		if n > 0 {
			chunks <- chunk{data[:n], time.Now().Add(slowness)}
		}
		if err != nil {
			break
		}
	}
	close(chunks)
	writing.Wait()
}
