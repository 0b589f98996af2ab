//go:build system

package traverse

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/nftables"

	"github.com/isthmus-grid/isthmus/internal/nat/simopen"
	"github.com/isthmus-grid/isthmus/internal/nat/simopen/gridtest"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/wan"
	"github.com/isthmus-grid/isthmus/overlay"
)

// TestPaperLevel is the table of what traversing TCP without additions passes: one line for each
// kind of filter, including its failures. Three lines are about a TUN device, into which the SYN
// used to be written and which reverse path filtering (RFC 3704) makes drop it; a raw socket sends
// it over the loopback interface instead, which no setting of rp_filter affects.
func TestPaperLevel(t *testing.T) {
	type line struct {
		what    string
		preset  string // of the target's gateway
		rules   func(l *lab.Lab, target *lab.Host) []chain
		onNode  bool // the rules are on the target itself
		asker   string
		source  string // in the carried SYN: "" is correct, or the host whose address it is
		outside bool   // the target is dialled at its gateway's address
		sysctl  string
		plain   bool // a plain connect gets through
		ok      bool // traversing does
		says    string
	}
	router := func(rules ...rule) func(*lab.Lab, *lab.Host) []chain {
		return func(*lab.Lab, *lab.Host) []chain { return forward(rules...) }
	}
	newDrop := router(concat(in("wan0"), state(untracked), drop))
	lines := []line{
		{what: "none", preset: "open", plain: true, ok: true},
		{what: "stateless: drop inbound SYN without ACK", preset: "syn-drop", ok: true},
		{what: "router ACL: SYN dropped, ACK accepted", preset: "open", rules: router(concat(in("wan0"), tcp(flagACK, flagACK), accept), concat(in("wan0"), drop)), ok: true},
		{what: "stateless, but with a reset", preset: "syn-reset", says: "a reset answered"},
		{what: "conntrack: accept established, drop the rest", preset: "stateful", says: "waiting on"},
		{what: "the same, and drop invalid", preset: "stateful-strict", says: "no answer was received"},
		{what: "stateless SYN drop, and drop invalid", preset: "open", rules: router(concat(in("wan0"), bareSYN, drop), concat(state(invalid), drop)), says: "no answer was received"},
		{what: "drop new inbound, loose pick-up", preset: "open", rules: newDrop},
		{what: "drop new inbound, no loose pick-up", preset: "open", rules: newDrop, sysctl: "gw netfilter.nf_conntrack_tcp_loose 0", ok: true},
		{what: "conntrack on the target host itself", preset: "open", onNode: true, ok: true, rules: func(*lab.Lab, *lab.Host) []chain {
			return []chain{{nftables.ChainHookInput, nftables.ChainPriorityFilter, []rule{
				concat(in("lo"), accept), concat(state(established), accept), drop,
			}}}
		}},
		{what: "client behind NAT, source not rewritten", preset: "syn-drop", asker: "nat", source: "nat/n1"},
		{what: "client behind port-keeping NAT, source rewritten", preset: "syn-drop", asker: "nat", source: "nat/gw", ok: true},
		{what: "target behind conntrack NAT", preset: "nat", outside: true, says: "use trav+ack or trav+echo"},
		{what: "target behind stateless 1:1 NAT, destination rewritten", preset: "open", outside: true, ok: true, rules: func(l *lab.Lab, target *lab.Host) []chain {
			site, _, _ := strings.Cut(target.Name(), "/")
			ext := l.Host(site + "/gw").WANAddr()
			return []chain{
				{nftables.ChainHookPrerouting, nftables.ChainPriorityRaw, []rule{
					concat(in("wan0"), bareSYN, drop),
					concat(in("wan0"), addr(16, ext), setAddr(16, target.Addr())),
				}},
				{nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource, []rule{
					concat(out("wan0"), addr(12, target.Addr()), setAddr(12, ext)),
				}},
			}
		}},
		{what: "rp_filter=1 on the target host", preset: "syn-drop", sysctl: "n1 ipv4.conf.all.rp_filter 1", ok: true},
		{what: "rp_filter=2 on the target host", preset: "syn-drop", sysctl: "n1 ipv4.conf.all.rp_filter 2", ok: true},
		// The seventeenth line is TestSimultaneousOpenInstead.
	}

	spec := lab.Spec{WAN: lab.WAN{Default: wan.Shape{Delay: oneWay}}, Sites: []lab.Site{
		{Name: "ask", Preset: "open", Nodes: lab.Nodes(1)},
		{Name: "nat", Preset: "nat", Nodes: lab.Nodes(1)},
	}}
	for i, ln := range lines {
		spec.Sites = append(spec.Sites, lab.Site{Name: fmt.Sprint("t", i), Preset: ln.preset, Nodes: lab.Nodes(1)})
	}
	l, err := lab.Up(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	g := &grid{Grid: &gridtest.Grid{Lab: l}, t: t, engines: make(map[*lab.Host]*Engine)}
	for _, h := range l.Hosts() {
		if h.Role() == "node" {
			g.engines[h] = engine(t, h)
		}
	}
	var all sync.WaitGroup
	defer all.Wait()
	for i, ln := range lines {
		site := fmt.Sprint("t", i)
		target, gateway := l.Host(site+"/n1"), l.Host(site+"/gw")
		if ln.rules != nil {
			where := gateway
			if ln.onNode {
				where = target
			}
			install(t, where, ln.rules(l, target))
		}
		if f := strings.Fields(ln.sysctl); len(f) == 3 {
			sysctl(t, l.Host(site+"/"+f[0]), f[1], f[2])
		}
		asker := l.Host("ask/n1")
		if ln.asker != "" {
			asker = l.Host(ln.asker + "/n1")
		}
		try := attempt{level: Trav, bound: 3 * time.Second, source: netip.AddrPortFrom(asker.Addr(), 1), target: netip.AddrPortFrom(target.Addr(), 1)}
		if ln.source != "" {
			from := l.Host(ln.source)
			try.source = netip.AddrPortFrom(from.Addr(), 1)
			if from.WANAddr().IsValid() {
				try.source = netip.AddrPortFrom(from.WANAddr(), 1)
			}
		}
		if ln.outside {
			try.target = netip.AddrPortFrom(gateway.WANAddr(), 1)
		}
		if !ln.ok {
			n := negative(Trav, ln.preset, 800*ms)
			try.bound, try.carry = n.bound, n.carry
		}
		all.Go(func() {
			if err := g.plain(asker, target, try.target.Addr()); ln.plain != (err == nil) {
				t.Errorf("%s: plain connect: want %v, got %v", ln.what, ln.plain, err)
			}
			if took, err := g.run(asker, target, try); ln.ok != (err == nil) || !ln.ok && !strings.Contains(err.Error(), ln.says) {
				t.Errorf("%s: traversing: want %v %q, got %v after %v", ln.what, ln.ok, ln.says, err, took)
			}
		})
	}
}

// plain tries a connect without any help.
func (g *grid) plain(a, b *lab.Host, at netip.Addr) error {
	var server *simopen.Port
	if err := b.Do(func() (err error) {
		server, err = simopen.Prepare(g.t.Context(), b.Addr(), overlay.Ports{})
		return err
	}); err != nil {
		return err
	}
	defer server.Close()
	ctx, cancel := context.WithTimeout(g.t.Context(), 500*ms)
	defer cancel()
	c, err := a.Dial(ctx, "tcp", netip.AddrPortFrom(at, server.Local().Port()).String())
	if err == nil {
		c.Close()
	}
	return err
}

// The last line: where a tracker at the target's side stops the paper's level, a simultaneous open
// passes, even half a second apart.
func TestSimultaneousOpenInstead(t *testing.T) {
	g := newGrid(t, "open", "stateful")
	a, err := g.place(g.Node("a", "open"), true)
	if err != nil {
		t.Fatal(err)
	}
	defer a.port.Close()
	b, err := g.place(g.Node("b", "stateful"), true)
	if err != nil {
		t.Fatal(err)
	}
	defer b.port.Close()
	var conns [2]*net.TCPConn
	var errs [2]error
	var both sync.WaitGroup
	at := time.Now().Add(10 * ms)
	for i, end := range []struct {
		self, peer *place
		at         time.Time
	}{{a, b, at}, {b, a, at.Add(500 * ms)}} {
		both.Go(func() {
			errs[i] = end.self.host.Do(func() (err error) {
				conns[i], err = end.self.port.Open(t.Context(), end.peer.outside, end.at, simopen.Options{})
				return err
			})
		})
	}
	both.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	defer conns[0].Close()
	defer conns[1].Close()
	if err := gridtest.Exchange(conns[0], conns[1]); err != nil {
		t.Error(err)
	}
}
