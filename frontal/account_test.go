package frontal

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/audit"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// A helper says what links of its own processes have moved, and the site's log has it
// with the name of whoever the process works for.
func TestAccount(t *testing.T) {
	var cfg Config
	r := newRig(t, func(c *Config) { cfg = *c })
	r.stop()
	folder := t.TempDir()
	trail, err := audit.Open(audit.Config{Folder: folder, Size: 1 << 20, OnFailure: "go-on"}, "frontal sitea", r.f.log)
	if err != nil {
		t.Fatal(err)
	}
	stop := trail.Start()
	r.trail = trail
	r.startFrontal(cfg)
	r.waitUp()
	a1, a2 := r.helper("a1"), r.helper("a2")
	a1.register(0)
	r.f.mu.Lock()
	r.f.roster.processes[proc(0)].granted = overlay.Principal{User: "alice", Project: "climate"}
	r.f.mu.Unlock()

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
	stop()

	var ends []audit.Record
	refused := 0
	chains, err := audit.Chains([]string{folder})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := audit.Read(chains[0].Files, func(rec *audit.Record) error {
		if rec.Event == audit.LinkEnd {
			ends = append(ends, *rec)
		}
		if rec.Event == audit.Refusal && rec.Rule == "account" {
			refused++
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
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
