package frontal

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/overlay"
)

// withPolicy gives the site a policy.
func withPolicy(t *testing.T, text string) func(*Config) {
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return func(c *Config) { c.Policy = daemon.Path(file) }
}

// TestOwnPolicy: regardless of the broker's decision, a site's own policy (package permit) decides about
// signalling requests to its processes; what comes with a refused one is not dialled.
func TestOwnPolicy(t *testing.T) {
	r := newRig(t, withPolicy(t, "contact: opsa\nrules:\n- {name: b, effect: allow, sites: [siteb], users: [alice]}\n"))
	h := r.helper("a1")
	h.register(0)
	h.signalTarget = func(_ *controlpb.Signal, out grpc.ServerStreamingServer[controlpb.SignalEvent]) error {
		return out.Send(&controlpb.SignalEvent{Kind: controlpb.SignalEvent_CONNECTED})
	}
	alice := &controlpb.Principal{User: "alice", Project: "p"}
	for site, wantRefusal := range map[overlay.SiteID]string{"siteb": "", "sitec": "with sitec: no rule allows it; ask opsa"} {
		addr := "203.0.113.21:4000" // that no other case names
		if wantRefusal != "" {
			addr = "203.0.113.21:4001"
		}
		in := &controlpb.Signal{
			Link: make([]byte, 16), Technique: uint32(overlay.Relay), Asker: control.ProcessToPB(proc(9)), AskerSite: string(site), AskerNode: "b1",
			Target: control.ProcessToPB(proc(0)), TargetGeneration: 1, AskerPrincipal: alice, TargetPrincipal: alice, ConnectAddress: addr,
		}
		_, err := r.broker.signalTarget(in)
		if wantRefusal == "" && err != nil || wantRefusal != "" && (!errors.Is(err, overlay.ErrForbidden) || !strings.Contains(err.Error(), wantRefusal)) {
			t.Errorf("%s: %v, want %q", site, err, wantRefusal)
		}
		if err := r.f.gateway.Check(addr, time.Now()); (err != nil) != (wantRefusal != "") {
			t.Errorf("%s: may dial what came with it: %v", site, err)
		}
	}
	if s := r.f.status().Policy; s == nil || s.Mode != "enforce" || s.Rules != 1 || s.Contact != "opsa" {
		t.Errorf("status %+v", s)
	}
	if !strings.Contains(r.log.String(), "the broker is older than policies") {
		t.Error("no word of a broker that keeps no policies")
	}
}

// TestNoPolicyKeepsInside: without a policy a site's processes learn nothing of those of other
// sites, and none of other sites is signalled to them, regardless of the broker; processes within
// the site can connect.
func TestNoPolicyKeepsInside(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Policy = "" })
	h := r.helper("a1")
	h.register(0, 1)
	h.signalTarget = func(_ *controlpb.Signal, out grpc.ServerStreamingServer[controlpb.SignalEvent]) error {
		return out.Send(&controlpb.SignalEvent{Kind: controlpb.SignalEvent_CONNECTED})
	}
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, overlay.ErrForbidden) || !strings.Contains(err.Error(), `with siteb: it has no policy (rule "no-policy")`) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := h.ask(9, false) // the broker has it at siteb
	refused("asking for a process of another site", err)
	in := &controlpb.Signal{
		Link: make([]byte, 16), Technique: uint32(overlay.Relay), Asker: control.ProcessToPB(proc(9)), AskerSite: "siteb", AskerNode: "b1",
		Target: control.ProcessToPB(proc(0)), TargetGeneration: 1, AskerPrincipal: &controlpb.Principal{User: "alice", Project: "p"},
	}
	_, err = r.broker.signalTarget(in)
	refused("being signalled", err)

	if answer, err := h.ask(1, false); err != nil || answer.Fault != nil {
		t.Errorf("asking for a process of the site: %v, %v", answer, err)
	}
	in.AskerSite, in.AskerNode, in.Asker = "sitea", "a2", control.ProcessToPB(proc(1))
	if _, err := r.broker.signalTarget(in); err != nil {
		t.Errorf("being signalled within the site: %v", err)
	}
}

// TestPolicyIsReadAgain: a reload sends another policy to the broker and drops the answers obtained
// under the one before; an invalid file changes nothing.
func TestPolicyIsReadAgain(t *testing.T) {
	set := withPolicy(t, "contact: before\n")
	r := newRig(t, set)
	r.broker.locked(func() {
		if got := r.broker.joins; len(got) != 1 || !strings.Contains(string(got[0].Policy), "contact: before") {
			t.Errorf("joined with %v", got)
		}
	})
	r.f.resolver.Remember(answerFor(9, 1, "siteb"))
	file := string(r.f.config().Policy)
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("contact: after\nrules: 7\n")
	if _, err := r.f.reload(*r.f.config()); err == nil || !strings.Contains(err.Error(), "policy.yaml:2:8: rules: the number 7 where a list belongs") {
		t.Errorf("a broken policy: %v", err)
	}
	if _, ok := r.f.resolver.Cached(proc(9)); !ok {
		t.Error("a broken policy empties the cache")
	}
	write("contact: after\n")
	apply, err := r.f.reload(*r.f.config())
	if err != nil {
		t.Fatal(err)
	}
	apply()
	r.until("the broker to be told", func() bool {
		told := false
		r.broker.locked(func() {
			told = strings.Contains(string(r.broker.joins[len(r.broker.joins)-1].Policy), "contact: after")
		})
		return told
	})
	r.until("the answers to be forgotten", func() bool { _, ok := r.f.resolver.Cached(proc(9)); return !ok })
	next := *r.f.config()
	next.Policy = ""
	if apply, err = r.f.reload(next); err != nil {
		t.Fatal(err)
	}
	apply()
	r.until("the policy to be taken back", func() bool {
		var last *controlpb.JoinRequest
		r.broker.locked(func() { last = r.broker.joins[len(r.broker.joins)-1] })
		return len(last.Policy) == 0 && r.f.status().Policy == nil
	})
}
