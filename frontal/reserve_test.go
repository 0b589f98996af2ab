package frontal

import (
	"errors"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/frontal/gateway"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// mayDial reports whether the gateway dials an address for its nodes after a while.
func (r *rig) mayDial(addr string, after time.Duration) bool {
	return r.f.gateway.Check(addr, time.Now().Add(after)) == nil
}

// TestReserve: both ends of a reserve relay pass, and the gateways dial it for as long as
// the ticket is good, though it is named again for a shorter time.
func TestReserve(t *testing.T) {
	r := newRig(t, withPolicy(t, "contact: opsa\nrules:\n- {name: b, effect: allow, sites: [siteb], users: [alice], techniques: [relay]}\n- {name: c, effect: allow, sites: [sitec], users: [alice], techniques: [reversed]}\n"))
	h := r.helper("a1")
	h.register(0)
	const life = 10 * time.Minute
	if _, err := h.dir.Reserve(h.ctx(), signalRequest(overlay.Relay, 0)); !errors.Is(control.FromStatus(err), wire.ErrVersion) {
		t.Errorf("an older broker: %v", err)
	}
	r.broker.locked(func() {
		r.broker.reserved = &controlpb.Reserved{Relay: &controlpb.Assignment{Proxy: "p1", Addresses: []string{"203.0.113.20:443"}}, LifeMs: uint32(life.Milliseconds())}
	})
	got, err := h.dir.Reserve(h.ctx(), signalRequest(overlay.Relay, 0))
	if err != nil || got.Relay.GetProxy() != "p1" {
		t.Fatalf("%v, %v", got, err)
	}
	if asked := r.broker.signalRequests(); asked[len(asked)-1].AskerNode != "a1" {
		t.Errorf("the broker was asked %v", asked)
	}
	r.f.gateway.AllowRelay(&controlpb.Assignment{Addresses: []string{"203.0.113.20:443"}}, gateway.AllowedFor)
	if !r.mayDial("203.0.113.20:443", life-time.Second) || r.mayDial("203.0.113.20:443", life+time.Minute) {
		t.Error("the asker's relay is not dialled for as long as its ticket is good")
	}
	for what, err := range map[string]error{
		"another node's process": func() error { _, err := h.dir.Reserve(h.ctx(), signalRequest(overlay.Relay, 1)); return err }(),
		"another technique":      func() error { _, err := h.dir.Reserve(h.ctx(), signalRequest(overlay.HolePunching, 0)); return err }(),
	} {
		if err == nil {
			t.Errorf("%s: a relay was reserved", what)
		}
	}

	alice := &controlpb.Principal{User: "alice"}
	in := func(site, addr string) *controlpb.Signal {
		return &controlpb.Signal{
			Link: make([]byte, 16), Technique: uint32(overlay.Relay), Asker: control.ProcessToPB(proc(9)), AskerSite: site, AskerNode: "b1",
			Target: control.ProcessToPB(proc(0)), TargetGeneration: 1, AskerPrincipal: alice, TargetPrincipal: alice,
			Relay: &controlpb.Assignment{Proxy: "p1", Addresses: []string{addr}}, LifeMs: uint32(life.Milliseconds()),
		}
	}
	if err := r.broker.reserve(in("siteb", "203.0.113.21:443")); !errors.Is(err, wire.ErrVersion) {
		t.Errorf("an older helper: %v", err)
	}
	kept := 0
	h.reserved = func(*controlpb.Signal) error { kept++; return nil }
	if err := r.broker.reserve(in("siteb", "203.0.113.21:443")); err != nil || kept != 1 || !r.mayDial("203.0.113.21:443", life-time.Second) {
		t.Errorf("the target's end: %v, told %d times", err, kept)
	}
	if err := r.broker.reserve(in("sitec", "203.0.113.22:443")); !errors.Is(err, overlay.ErrForbidden) || kept != 1 || r.mayDial("203.0.113.22:443", 0) {
		t.Errorf("a site to which the policy allows no relay: %v", err)
	}
}
