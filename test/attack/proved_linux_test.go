//go:build system

package attack

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/ipc/local"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/lab/probe"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
	"github.com/isthmus-grid/isthmus/wire"
)

// rogue opens the broker's session of a site's frontal, which joins but does not follow the rules.
func (a *attacked) rogue(t *testing.T) controlpb.DirectoryClient {
	t.Helper()
	s := a.as(t, control.Identity{Role: control.RoleFrontal, Site: "rogue"}, "broker", "public/stranger", 443)
	profile := overlay.SiteProfile{Site: "rogue", Inbound: overlay.InboundOpen, Networks: []netip.Prefix{
		netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("172.16.0.0/12"),
		netip.PrefixFrom(a.Daemon("frontal closed").Host.Addr(), 24), netip.MustParsePrefix("100.64.0.0/10"),
	}}
	permits := []byte("contact: nobody\nrules:\n- {name: all, effect: allow}\n")
	if _, err := controlpb.NewSitesClient(s.Conn()).Join(a.Ctx, &controlpb.JoinRequest{Profile: control.ProfileToPB(profile), Policy: permits}); err != nil {
		t.Fatal(control.FromStatus(err))
	}
	return controlpb.NewDirectoryClient(s.Conn())
}

// registers tries to register one process; nil means that it was accepted.
func (a *attacked) registers(t *testing.T, with controlpb.DirectoryClient, p overlay.AccessPoint) error {
	t.Helper()
	resp, err := with.Register(a.Ctx, &controlpb.RegisterRequest{Points: []*controlpb.AccessPoint{control.RegistrationToPB(p)}})
	if err != nil {
		t.Fatal(control.FromStatus(err))
	}
	if len(resp.Faults) == 0 {
		return nil
	}
	return control.FaultErr(resp.Faults[0])
}

func now() overlay.Generation { return overlay.NewGeneration(time.Now(), 0) }

// stolenServices makes others register the node service of closed/n1, at each level, and checks
// that launching there still works. It assumes the same offers as the grid's helpers'.
func (a *attacked) stolenServices(t *testing.T, rogue controlpb.DirectoryClient) {
	victim := overlay.NodeID{Site: "closed", Name: "n1"}
	key := jobkey.ServiceKey(victim)
	service := overlay.ProcessName{Job: key.ID(), Rank: 0}
	take := func(node overlay.NodeID, life overlay.Generation) overlay.AccessPoint {
		return overlay.AccessPoint{
			Process: service, Generation: life, Node: node, Public: netip.MustParseAddrPort("198.18.0.7:20000"),
			Proof: string(key.Auth().Prove(service, life, node)),
		}
	}
	for _, level := range []struct {
		name, kind string
		with       controlpb.DirectoryClient
		node       overlay.NodeID
	}{
		{"another site at the broker", "broker", rogue, overlay.NodeID{Site: "rogue", Name: "n1"}},
		{"another node at its frontal", "frontal", controlpb.NewDirectoryClient(
			a.as(t, control.Identity{Role: control.RoleHelper, Site: "closed", Name: "n9"}, "frontal closed", "closed/n2", 7440).Conn()), overlay.NodeID{Site: "closed", Name: "n9"}},
	} {
		for life, want := range map[overlay.Generation]string{
			now():                      "is the node service of closed/n1; node " + level.node.String() + " may not register it",
			1 << 63:                    "generation 9223372036854775808 is no time",
			now() + 3600*1_000_000*100: "the clocks of this host and the node differ by at least",
		} {
			if err := a.registers(t, level.with, take(level.node, life)); !errors.Is(err, overlay.ErrForbidden) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s in generation %d: %v", level.name, life, err)
				continue
			}
			a.audited(t, level.kind, level.name, refusedFor("access-point", want))
		}
	}
	// A local user, with a signature as good as the helper's.
	_, err := a.joins(t, local.ClientConfig{Socket: a.Socket("closed/n1"), Process: service, Generation: now(), Auth: key.Auth()})
	if !errors.Is(err, overlay.ErrForbidden) || !strings.Contains(err.Error(), "a helper alone is that") {
		t.Errorf("a user at the helper's socket: %v", err)
	}
	a.audited(t, "helper", "a user who says he is the node service", refusedFor("process", "a helper alone is that"))

	start := time.Now()
	w := a.sub(t)
	talk := w.Talk("hidden/n1", "closed/n1", labtest.NewKey(t, "launched"))
	talk.Ask(1)
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("the victim was reached after %v", took)
	}
	talk.End()
	a.unharmed(t)
}

// joins registers a client with a helper. It leaves with the test.
func (a *attacked) joins(t *testing.T, cfg local.ClientConfig) (*local.Client, error) {
	t.Helper()
	c := local.NewClient(cfg)
	served := make(chan error, 1)
	go func() { served <- c.Serve(a.Ctx) }()
	t.Cleanup(func() {
		c.Close()
		<-served
	})
	_, err := c.Ready(a.Ctx)
	return c, err
}

// stolenNames makes a site and a node that have no part in a job register one of its ranks: without
// a proof, with one by a key of their own, and with the true one, which they overheard.
func (a *attacked) stolenNames(t *testing.T, rogue controlpb.DirectoryClient) {
	key := labtest.NewKey(t, "victim")
	victim, err := probe.Join(a.Ctx, a.Grid, "closed/n1", key, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer victim.Leave()
	process, life := victim.Identity.Process, victim.Identity.Generation
	own := labtest.NewKey(t, "victim").Auth()
	overheard := key.Auth().Prove(process, life, victim.Node)
	neighbour := controlpb.NewDirectoryClient(a.as(t, control.Identity{Role: control.RoleHelper, Site: "closed", Name: "n8"}, "frontal closed", "closed/n2", 7440).Conn())
	for _, level := range []struct {
		name, kind string
		with       controlpb.DirectoryClient
		node       overlay.NodeID
	}{
		{"another site", "broker", rogue, overlay.NodeID{Site: "rogue", Name: "n1"}},
		{"another node", "frontal", neighbour, overlay.NodeID{Site: "closed", Name: "n8"}},
	} {
		for _, c := range []struct {
			what  string
			life  overlay.Generation
			proof []byte
			want  string
		}{
			{"without a proof", life + 1, nil, "comes with a proof of 0 bytes"},
			{"with a proof of another key", life + 1, own.Prove(process, life+1, level.node), "signed with another job's key"},
			{"with the true proof", life, overheard, "has not signed that"},
			{"with the true proof of an older life", life + 1, overheard, "has not signed that"},
		} {
			p := overlay.AccessPoint{Process: process, Generation: c.life, Node: level.node, Public: netip.MustParseAddrPort("198.18.0.7:20000"), Proof: string(c.proof)}
			if err := a.registers(t, level.with, p); !errors.Is(err, overlay.ErrForbidden) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s %s: %v; want %q", level.name, c.what, err, c.want)
				continue
			}
			a.audited(t, level.kind, level.name+" "+c.what, refusedFor("access-point", c.want))
		}
	}
	// Its own helper does not accept a future generation of it either, though the job's key signs.
	_, err = a.joins(t, local.ClientConfig{Socket: a.Socket("closed/n1"), Process: process, Generation: 1 << 63, Auth: key.Auth()})
	if !errors.Is(err, overlay.ErrForbidden) || !strings.Contains(err.Error(), "is no time") {
		t.Errorf("generation 2^63 at the helper: %v", err)
	}
	a.audited(t, "helper", "a life to come", refusedFor("process", "is no time"))

	start := time.Now()
	asker, err := probe.Join(a.Ctx, a.Grid, "hidden/n1", key, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer asker.Leave()
	accepted := make(chan error, 1)
	go func() {
		_, err := victim.Accept(a.Ctx)
		accepted <- err
	}()
	if _, _, err := asker.Dial(a.Ctx, 1); err != nil {
		t.Fatal(err)
	}
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("the victim's rank was reached after %v", took)
	}
	a.unharmed(t)
}

// A process that got a generation from its helper keeps it at the next helper, and a later
// generation of the rank replaces it.
func (a *attacked) generations(t *testing.T) {
	key := labtest.NewKey(t, "lives")
	cfg := local.ClientConfig{Socket: a.Socket("closed/n2"), Process: overlay.ProcessName{Job: key.ID(), Rank: 0}, Auth: key.Auth()}
	first, err := a.joins(t, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Generation().Check(time.Now()); err != nil || first.Generation() == 0 {
		t.Errorf("generation %d: %v", first.Generation(), err)
	}
	second, err := a.joins(t, cfg)
	if err != nil || second.Generation() <= first.Generation() {
		t.Errorf("the second life is in generation %d after %d, %v", second.Generation(), first.Generation(), err)
	}
	cfg.Generation = first.Generation()
	if _, err := a.joins(t, cfg); wire.CodeOf(err) != wire.CodeStale {
		t.Errorf("the first life comes back: %v", err)
	}
}
