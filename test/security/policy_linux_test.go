//go:build system

package security

import (
	"context"
	"crypto"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/pki/grant"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// A link is permitted if both sites' policies permit it, whichever end dials, by the techniques
// that they permit. A refusal is immediate, names the rule and the contact; dry-run mode only logs
// what it would refuse.
func TestSitesPermitLinks(t *testing.T) {
	t.Parallel() // most of it is waiting
	dir := t.TempDir()
	file := func(name, text string) map[string]any {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return map[string]any{"policy": path}
	}
	w := newWorld(t, labtest.SiteOpen+labtest.SiteClosed, grid.Config{Profile: labtest.NoTraversalProfile, Settings: map[string]map[string]any{
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
	pair := func(job, from, to string) *labtest.Pair {
		key := labtest.NewKey(t, job)
		return &labtest.Pair{A: w.Join(key, from, 0, 2), B: w.Join(key, to, 1, 2)}
	}

	for _, way := range [][2]string{{"closed/n1", "open/n1"}, {"open/n1", "closed/n1"}} {
		j := pair("test1", way[0], way[1])
		ctx, cancel := context.WithTimeout(w.Ctx, 30*time.Second)
		err := j.A.Mesh.Connect(ctx, 1)
		cancel()
		if !errors.Is(err, overlay.ErrForbidden) || !strings.Contains(err.Error(), `rule "no-tests" denies it; ask grid@open.example`) {
			t.Errorf("%s to %s: %v", way[0], way[1], err)
		}
	}

	j := pair("slow1", "closed/n1", "open/n1")
	w.Connect(j)
	w.Exchange(j)
	if got := labtest.PathOf(j.Near); got != "relay" {
		t.Errorf("slow1 goes by %s, its rule allows relay", got)
	}

	j = pair("work", "closed/n1", "open/n1")
	w.Connect(j)
	w.Exchange(j)
	w.AwaitLog("broker", "dry-run: the policy of closed would refuse links of job work, ", "no rule allows it")

	for _, s := range w.Figure("broker", "sites").([]any) {
		site := s.(map[string]any)
		name := site["profile"].(map[string]any)["site"]
		p, ok := site["policy"].(map[string]any)
		if !ok || name == "open" && (p["refused"].(float64) < 2 || p["permitted"].(float64) < 2) || name == "closed" && (p["mode"] != "dry-run" || p["would_refuse"].(float64) < 1) {
			t.Errorf("%v: %v", name, site["policy"])
		}
	}

	s, done, err := w.Admin(w.Ctx, "broker")
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	plan, err := controlpb.NewAdminClient(s.Conn()).Decide(w.Ctx, &controlpb.DecideRequest{
		Asker: "closed", Target: "open", Job: "slow2", Who: []*controlpb.Principal{{User: "alice", Project: "p"}},
	})
	if err != nil {
		t.Fatal(control.FromStatus(err))
	}
	if len(plan.Steps) != 1 || plan.Steps[0].Technique != uint32(overlay.Relay) || !strings.Contains(string(plan.Policy), `rule \"slow-by-relay\" allows it`) {
		t.Errorf("the plan for slow2 is %v", plan)
	}
}

// Depending on a user's grant, one project is refused, another reaches its peer directly, and a
// third is limited: relayed, one link at a time, and the next one's error names the limit. The
// command for admins predicts all of this.
func TestProjectsAreTold(t *testing.T) {
	t.Parallel() // most of it is waiting
	file := filepath.Join(t.TempDir(), "open.yaml")
	if err := os.WriteFile(file, []byte(`
contact: grid@open.example
rules:
- {name: ocean, effect: allow, projects: [ocean]}
- {name: climate, effect: allow, projects: [climate], limits: {links: 1, rate: 1Gbit/s}}
`), 0o644); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, labtest.SiteOpen+labtest.SiteClosed, grid.Config{Profile: labtest.NoTraversalProfile, Settings: map[string]map[string]any{"frontal open": {"policy": file}}})
	alice, err := w.Issue(control.Identity{Role: control.RoleUser, Name: "alice"}, time.Now().Add(time.Hour), "ocean", "climate", "fusion")
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tls.LoadX509KeyPair(alice.Cert, alice.Key)
	if err != nil {
		t.Fatal(err)
	}
	pair := func(project string) *labtest.Pair {
		key := labtest.NewKey(t, "work")
		now := time.Now()
		g, err := grant.Issue(grant.Claims{Job: key.ID(), Project: project, Issued: now, Expires: now.Add(30 * time.Minute)}, cert.Certificate, cert.PrivateKey.(crypto.Signer))
		if err != nil {
			t.Fatal(err)
		}
		return &labtest.Pair{A: w.JoinFor(key, "closed/n1", 0, 2, g), B: w.JoinFor(key, "open/n1", 1, 2, g)}
	}
	refused := func(project string, class error, want string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(w.Ctx, 30*time.Second)
		defer cancel()
		j := pair(project)
		if err := j.A.Mesh.Connect(ctx, 1); !errors.Is(err, class) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\nwant %s", project, err, want)
		}
		if class != overlay.ErrForbidden {
			return
		}
		// The first rank that gets the error leaves. The other gets the same error, and does not
		// wait.
		j.A.End(t)
		if err := j.B.Mesh.Connect(w.Ctx, 0); !errors.Is(err, class) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s, the other rank: %v\nwant %s", project, err, want)
		}
	}
	refused("fusion", overlay.ErrForbidden, "user alice (project fusion) with closed: no rule allows it; ask grid@open.example")

	j := pair("ocean")
	w.Connect(j)
	w.Exchange(j)
	if got := labtest.PathOf(j.Near); got != "direct" {
		t.Errorf("ocean goes by %s", got)
	}

	j = pair("climate")
	w.Connect(j)
	w.Exchange(j)
	if got, want := j.Near.Path, `within rule "climate" of open: 1 links at a time, 1Gbit/s; ask grid@open.example`; got.Technique != overlay.Relay || !strings.Contains(got.Reason, want) {
		t.Errorf("climate goes by %v because %s; want %s", got, got.Reason, want)
	}
	refused("climate", overlay.ErrOverloaded, `the policy of open (rule "climate") allows project climate 1 relayed links at a time, which are in use; contact grid@open.example`)

	admin, err := w.Issue(control.Identity{Role: control.RoleAdmin, Name: "ada"}, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		project, want string
		status        int
	}{
		{"ocean", "permitted by direct, ", 0},
		{"climate", "permitted by relay\n", 0},
		{"climate", `within rule "climate" of open: 1 links at a time, 1Gbit/s; ask grid@open.example`, 0},
		{"fusion", "refused: not permitted: the policy of open refuses links of job ", 1},
	} {
		cmd := w.Lab.Host("closed/n1").Command(w.Ctx, labtest.Program(t, ""), "policy", "explain", "--from", "closed", "--to", "open", "--user", "alice", "--project", c.project,
			"--broker", fmt.Sprintf("%v:443", w.Daemon("broker").Host.Addr()), "--cert", admin.Cert, "--tls-key", admin.Key, "--ca", admin.CA)
		text, err := cmd.CombinedOutput()
		exit, _ := errors.AsType[*exec.ExitError](err)
		if err != nil && exit == nil {
			t.Fatal(err)
		}
		out, status := string(text), 0
		if exit != nil {
			status = exit.ExitCode()
		}
		if status != c.status || !strings.Contains(out, c.want) {
			t.Errorf("policy explain for %s: status %d\n%s\nwant %s", c.project, status, out, c.want)
		}
	}
}
