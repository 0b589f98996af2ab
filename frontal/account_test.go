package frontal

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// A helper reports what links of its own processes have moved, and the site's log records it with
// the principal of the process.
func TestAccount(t *testing.T) {
	r, ended := newAuditedRig(t)
	a1, a2 := r.helper("a1"), r.helper("a2")
	a1.register(0)
	r.f.registry.Grant(proc(0), 1, overlay.Principal{User: "alice", Project: "climate"})

	link := make([]byte, 16)
	account := func(h *fakeHelper, links ...*controlpb.LinkAccount) error {
		_, err := h.nodes.Account(h.ctx(), &controlpb.AccountRequest{Process: control.ProcessToPB(proc(0)), Links: links})
		return control.FromStatus(err)
	}
	good := &controlpb.LinkAccount{Link: link, Rank: 9, Node: "siteb/b1", Technique: uint32(overlay.Direct), Sent: 2e12, Received: 5, LastedMs: 1500}
	if err := account(a1, good, &controlpb.LinkAccount{Link: link, Technique: 99, UnsaidMs: 2000}); err != nil {
		t.Error(err)
	}
	for name, err := range map[string]error{
		"another's process": account(a2, good),
		"too many":          account(a1, slices.Repeat([]*controlpb.LinkAccount{good}, maxAccounts+1)...),
		"no id":             account(a1, good, &controlpb.LinkAccount{Technique: 1}),
		"no node":           account(a1, good, &controlpb.LinkAccount{Link: link, Node: "nowhere"}),
		"no technique":      account(a1, good, &controlpb.LinkAccount{Link: link, Technique: 1 << 20}),
	} {
		if !errors.Is(err, overlay.ErrForbidden) && !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ends, refused := ended()
	if len(ends) != 2 || refused != 5 {
		t.Fatalf("%d refusals, %+v", refused, ends)
	}
	if e := ends[0]; e.User != "alice" || e.Project != "climate" || e.Sent != 2e12 || e.Received != 5 || e.Seconds != 1.5 || e.Technique != "direct" || e.Rule != audit.OwnWord ||
		!slices.Equal(e.Sites, []string{"sitea", "siteb"}) || !slices.Equal(e.Nodes, []string{"a1", "b1"}) || !slices.Equal(e.Ranks, []uint32{0, 9}) || e.Link != strings.Repeat("0", 32) {
		t.Errorf("%+v", e)
	}
	if e := ends[1]; !strings.Contains(e.Reason, "at least these, which it said 2s before") || len(e.Sites) != 1 {
		t.Errorf("%+v", e)
	}
}

// newAuditedRig is newRig of a frontal with an audit log. ended ends it and returns the log's
// records of links, and how often it refused an account.
func newAuditedRig(t *testing.T) (r *rig, ended func() (ends []audit.Record, refused int)) {
	t.Helper()
	r, records := newRigWithTrail(t)
	return r, func() (ends []audit.Record, refused int) {
		t.Helper()
		for _, rec := range records() {
			if rec.Event == audit.LinkEnd {
				ends = append(ends, rec)
			}
			if rec.Event == audit.Refusal && rec.Rule == "account" {
				refused++
			}
		}
		return ends, refused
	}
}

// newRigWithTrail is newRig of a frontal with an audit log. records ends the frontal and
// returns the log.
func newRigWithTrail(t *testing.T) (r *rig, records func() []audit.Record) {
	t.Helper()
	var cfg Config
	r = newRig(t, func(c *Config) { cfg = *c })
	r.stop()
	folder := t.TempDir()
	trail, err := audit.Open(audit.Config{Folder: folder, Size: 1 << 20, OnFailure: "go-on"}, "frontal sitea", r.f.log)
	if err != nil {
		t.Fatal(err)
	}
	endTrail := trail.Start()
	r.trail = trail
	r.startFrontal(cfg)
	r.waitUp()
	return r, func() (all []audit.Record) {
		t.Helper()
		r.stop()
		endTrail()
		chains, err := audit.Chains([]string{folder})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := audit.Read(chains[0].Files, func(rec *audit.Record) error {
			all = append(all, *rec)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return all
	}
}

// What a helper reports above its bound is summed up by job and site, not lost; another helper's
// links are still written one by one.
func TestAccountsAreBounded(t *testing.T) {
	r, ended := newAuditedRig(t)
	a1, a2 := r.helper("a1"), r.helper("a2")
	a1.register(0)
	a2.register(1)
	hour := time.Now().Add(time.Hour) // until then the budget is not refilled
	r.f.ledgers.Leave(control.Identity{Role: control.RoleHelper, Site: "sitea", Name: "a1"}, 3, hour)
	account := func(h *fakeHelper, rank uint32, site string, links int) {
		t.Helper()
		one := &controlpb.LinkAccount{Link: make([]byte, 16), Rank: 9, Node: site + "/n1", Technique: uint32(overlay.Direct), Sent: 1000, Received: 1}
		if _, err := h.nodes.Account(h.ctx(), &controlpb.AccountRequest{Process: control.ProcessToPB(proc(rank)), Links: slices.Repeat([]*controlpb.LinkAccount{one}, links)}); err != nil {
			t.Fatal(control.FromStatus(err))
		}
	}
	account(a1, 0, "siteb", 5) // 3 are written
	account(a1, 0, "siteb", 200)
	account(a1, 0, "sitec", 40)
	account(a2, 1, "siteb", 7)

	ends, refused := ended()
	single, summed := map[string]int{}, map[string]audit.Record{}
	for _, e := range ends {
		if e.Count == 0 {
			single[e.Nodes[0]]++
			continue
		}
		if e.Job != string(proc(0).Job) || e.Rule != audit.OwnWord || e.Peer != "helper sitea/a1" || !strings.Contains(e.Reason, "reported too quickly") {
			t.Errorf("%+v", e)
		}
		key := strings.Join(e.Sites, " ")
		was := summed[key] // a test that stalls for a minute sees a sum in two parts
		summed[key] = audit.Record{Count: was.Count + e.Count, Sent: was.Sent + e.Sent, Received: was.Received + e.Received}
	}
	if single["a1"] != 3 || single["a2"] != 7 || len(summed) != 2 || refused != 0 {
		t.Fatalf("one by one %v, %d refused: %+v", single, refused, ends)
	}
	b, c := summed["sitea siteb"], summed["sitea sitec"]
	if b.Count != 202 || b.Sent != 202_000 || b.Received != 202 || c.Count != 40 || c.Sent != 40_000 {
		t.Errorf("%+v\n%+v", b, c)
	}
	if !strings.Contains(r.log.String(), "tells of so many links") {
		t.Error("it is not said")
	}
}
