//go:build system

package attack

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/lab/probe"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// falseAddresses makes a node, a site and a member of a job declare addresses that are not theirs,
// for a gateway and for nodes to dial. rogue is the session of the site.
func (a *attacked) falseAddresses(t *testing.T, rogue controlpb.DirectoryClient) {
	key := labtest.NewKey(t, "led")
	victim, err := probe.Join(a.Ctx, a.Grid, "closed/n1", key, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer victim.Leave()
	claim := func(node overlay.NodeID, local, public string) overlay.AccessPoint {
		p := overlay.AccessPoint{Process: overlay.ProcessName{Job: key.ID(), Rank: 1}, Generation: now(), Node: node}
		if local != "" {
			p.Local = netip.MustParseAddrPort(local)
		}
		if public != "" {
			p.Public = netip.MustParseAddrPort(public)
		}
		p.Proof = string(key.Auth().Prove(p.Process, p.Generation, p.Node))
		return p
	}

	// A node, of another host inside its site: the gateway would dial that.
	node := overlay.NodeID{Site: "hidden", Name: "n7"}
	helper := controlpb.NewDirectoryClient(a.as(t, control.Identity{Role: control.RoleHelper, Site: "hidden", Name: "n7"}, "frontal hidden", "hidden/n1", 7440).Conn())
	inside := netip.AddrPortFrom(a.Daemon("frontal hidden").Host.Addr(), 22).String()
	for addr, want := range map[string]string{
		inside:            "its session comes from",
		"192.0.2.7:22":    "its session comes from",
		"203.0.113.99:22": "its session comes from",
	} {
		if err := a.registers(t, helper, claim(node, addr, "")); !errors.Is(err, overlay.ErrForbidden) || !strings.Contains(err.Error(), want) {
			t.Errorf("a node at %s: %v", addr, err)
			continue
		}
		a.audited(t, "frontal", addr, refusedFor("access-point", "at "+addr+"; its session comes from"))
	}

	// A site, of hosts that are not its own.
	site := overlay.NodeID{Site: "rogue", Name: "n1"}
	closed := control.Identity{Role: control.RoleFrontal, Site: "closed"}
	from := a.comesFrom(t, "closed")
	for addr, want := range map[string]string{
		netip.AddrPortFrom(a.Daemon("broker").Host.Addr(), 22).String(): "does not declare another address",
		netip.AddrPortFrom(from, 22).String():                           "that is where " + closed.String() + " comes from",
		netip.AddrPortFrom(from.Next(), 22).String():                    "of the networks that rogue declares there",
	} {
		if err := a.registers(t, rogue, claim(site, "", addr)); !errors.Is(err, overlay.ErrForbidden) || !strings.Contains(err.Error(), want) {
			t.Errorf("a site at %s: %v", addr, err)
			continue
		}
		a.audited(t, "broker", addr, refusedFor("access-point", want))
	}

	// A member of the victim's own job, at addresses that its site did declare: one that the
	// victim's node denies, and private ones.
	for addr, want := range map[string]string{
		"198.18.0.9:22": "which this host's settings deny",
		"172.16.0.9:22": "processes of other sites are not looked for on private networks",
	} {
		if err := a.registers(t, rogue, claim(site, "", addr)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(a.Ctx, 2*time.Second)
		_, _, err := victim.Dial(ctx, 1)
		cancel()
		if err == nil {
			t.Errorf("%s is dialled", addr)
		}
		a.audited(t, "helper", addr, refusedFor("address", want))
	}
	a.unharmed(t)
}

// comesFrom returns the address of a site's frontal as the broker sees it.
func (a *attacked) comesFrom(t *testing.T, site string) netip.Addr {
	t.Helper()
	r := a.audited(t, "broker", "the session of "+site, func(r *audit.Record) bool {
		return r.Event == audit.Session && strings.HasPrefix(r.Peer, "frontal "+site+" ")
	})
	words := strings.Fields(r.Peer)
	at, err := netip.ParseAddrPort(words[len(words)-1])
	if err != nil {
		t.Fatalf("the record is of %q: %v", r.Peer, err)
	}
	return at.Addr()
}
