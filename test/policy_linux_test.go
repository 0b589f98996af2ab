package test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/grid"
	"github.com/isthmus-grid/isthmus/overlay"
)

// A link is made when both sites' policies permit it, whoever dials, by the
// techniques that they leave. A refusal comes at once, names the rule and whom
// to ask; dry-run mode only says what it would refuse.
func TestSitesPermitLinks(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) map[string]any {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return map[string]any{"policy": path}
	}
	w := newWorld(t, siteOpen+siteClosed, grid.Config{Profile: plain, Settings: map[string]map[string]any{
		"frontal open": file("open.yaml", `
contact: grid@open.example
rules:
- {name: no-tests, effect: deny, jobs: ["test*"]}
- {name: slow-by-relay, effect: allow, jobs: ["slow*"], techniques: [relay]}
- {name: neighbours, effect: allow, sites: [closed], users: ["*@closed", "*@open"]}
`),
		"frontal closed": file("closed.yaml", `
mode: dry-run
contact: grid@closed.example
rules:
- {name: slow-only, effect: allow, jobs: ["slow*"]}
`),
	}})
	pair := func(job, from, to string) *joint {
		key := newKey(t, job)
		return &joint{a: w.member(key, from, 0, 2), b: w.member(key, to, 1, 2)}
	}

	for _, way := range [][2]string{{"closed/n1", "open/n1"}, {"open/n1", "closed/n1"}} {
		j := pair("test1", way[0], way[1])
		ctx, cancel := context.WithTimeout(w.ctx, 30*time.Second)
		err := j.a.mesh.Connect(ctx, 1)
		cancel()
		if !errors.Is(err, overlay.ErrForbidden) || !strings.Contains(err.Error(), `rule "no-tests" denies it; ask grid@open.example`) {
			t.Errorf("%s to %s: %v", way[0], way[1], err)
		}
	}

	j := pair("slow1", "closed/n1", "open/n1")
	w.connect(j)
	w.exchange(j)
	if got := pathOf(j.near); got != "relay" {
		t.Errorf("slow1 goes by %s, its rule allows relay", got)
	}

	j = pair("work", "closed/n1", "open/n1")
	w.connect(j)
	w.exchange(j)
	w.logged("broker", "dry-run: the policy of closed would refuse links of job work, ", "no rule allows it")

	for _, s := range w.status("broker", "sites").([]any) {
		site := s.(map[string]any)
		name := site["profile"].(map[string]any)["site"]
		p, ok := site["policy"].(map[string]any)
		if !ok || name == "open" && (p["refused"].(float64) < 2 || p["permitted"].(float64) < 2) || name == "closed" && (p["mode"] != "dry-run" || p["would_refuse"].(float64) < 1) {
			t.Errorf("%v: %v", name, site["policy"])
		}
	}

	s, done, err := w.Admin(w.ctx, "broker")
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	plan, err := controlpb.NewAdminClient(s.Conn()).Decide(w.ctx, &controlpb.DecideRequest{
		Asker: "closed", Target: "open", Job: "slow2", Who: []*controlpb.Principal{{User: "alice", Project: "p"}},
	})
	if err != nil {
		t.Fatal(control.FromStatus(err))
	}
	if len(plan.Steps) != 1 || plan.Steps[0].Technique != uint32(overlay.Relay) || !strings.Contains(string(plan.Policy), `rule \"slow-by-relay\" allows it`) {
		t.Errorf("the plan for slow2 is %v", plan)
	}
}
