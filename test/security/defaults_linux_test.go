//go:build system

package security

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/launch/reserve"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// Daemons with default settings permit nothing beyond their site and accept no jobs. A refusal
// names at once what would permit the request, and is audited, and with the lines that isthmus
// check prints the request is permitted.
func TestDefaultsDeny(t *testing.T) {
	trails := t.TempDir()
	settings := map[string]map[string]any{}
	for _, kind := range []string{"broker", "frontal", "helper"} {
		settings[kind] = map[string]any{"audit": map[string]any{"folder": filepath.Join(trails, kind)}}
	}
	w := newWorld(t, labtest.SiteOpen+labtest.SiteClosed, grid.Config{Profile: labtest.NoTraversalProfile, Settings: settings, Bare: true})
	audited := func(kind, what string, is func(*audit.Record) bool) {
		t.Helper()
		labtest.AwaitAudit(t, w.Ctx, filepath.Join(trails, kind), what, is)
	}

	inside := w.LinkPair("closed/n1", "closed/n2")
	for _, way := range [][2]string{{"closed/n1", "open/n1"}, {"open/n1", "closed/n1"}} {
		here, _, _ := strings.Cut(way[0], "/")
		j := w.JoinPair(way[0], way[1])
		ctx, cancel := context.WithTimeout(w.Ctx, 30*time.Second)
		begun := time.Now()
		err := j.A.Mesh.Connect(ctx, 1)
		took := time.Since(begun)
		cancel()
		if !errors.Is(err, overlay.ErrForbidden) || !strings.Contains(err.Error(), `it has no policy (rule "no-policy"), so its links stay inside it; set policy: in its frontal.yaml; the smallest that permits site `) {
			t.Errorf("%s to %s: %v", way[0], way[1], err)
		}
		if took > 10*time.Second {
			t.Errorf("%s to %s: refused after %v", way[0], way[1], took)
		}
		audited("broker", "a link from "+here, func(r *audit.Record) bool {
			return r.Event == audit.Decision && r.Effect == audit.Refused && r.Job == string(j.A.Identity.Process.Job) && strings.HasSuffix(r.Rule, "/no-policy")
		})
	}
	denied := func(from, to, want string) {
		t.Helper()
		c := w.Talk(from, to, labtest.NewKey(t, "denied"))
		defer c.End()
		c.Request(1)
		begun := time.Now()
		m, err := c.Stream.Recv()
		if err != nil || m.GetNok().GetReason() != string(reserve.Denied) || !strings.Contains(string(m.GetNok().GetText()), want) {
			t.Errorf("%s books %s: %v, %v; want %s", from, to, m, err, want)
		}
		if took := time.Since(begun); took > 10*time.Second {
			t.Errorf("%s books %s: refused after %v", from, to, took)
		}
		audited("helper", from+" books "+to, func(r *audit.Record) bool {
			return r.Event == audit.Refusal && r.Rule == "offer" && r.User == "root@"+from && r.Job == string(c.Key.ID()) && strings.Contains(r.Reason, want)
		})
	}
	denied("closed/n2", "closed/n1", "offer.jobs in its helper's settings is 0); what permits site closed: offer: {jobs: 1, allow: [{site: closed}]}")
	denied("closed/n1", "closed/n1", "offer.jobs in its helper's settings is 0)")

	// The lines that check prints for the gateways, with the other site's name.
	for _, way := range [][2]string{{"closed", "open"}, {"open", "closed"}} {
		lines := w.advice("frontal " + way[0])
		if len(lines) != 3 || lines[0] != "policy: /etc/isthmus/policy.yaml" {
			t.Fatalf("check prints %q", lines)
		}
		file := filepath.Join(t.TempDir(), "policy.yaml")
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(lines[2], "siteb", way[1])), 0o644); err != nil {
			t.Fatal(err)
		}
		w.amend("frontal "+way[0], "policy: "+file)
	}
	w.Until("links between the sites to be permitted", func() bool {
		j := w.JoinPair("closed/n1", "open/n1")
		if j.A.Mesh.Connect(w.Ctx, 1) != nil {
			return false
		}
		j.Near, j.Far = w.NextLink(j.A), w.NextLink(j.B)
		w.Exchange(j)
		return true
	})
	denied("open/n1", "closed/n1", "what permits site open: offer: {jobs: 1, allow: [{site: open}]}")

	// And those for a node, with its own site's.
	lines := w.advice("helper closed/n1")
	if len(lines) != 1 || lines[0] != "offer: {jobs: 1, allow: [{site: closed}]}" {
		t.Fatalf("check prints %q", lines)
	}
	w.amend("helper closed/n1", lines[0])
	w.BookedTalk("closed/n2", "closed/n1", "own").End()
	denied("open/n1", "closed/n1", "no rule of the owner allows root@open/n1 of site open")
	w.amend("helper closed/n2", "offer: {jobs: 1, allow: [{site: open}]}")
	w.BookedTalk("open/n1", "closed/n2", "other").End()
	w.Exchange(inside)
}

// advice returns the lines that isthmus check advises to add to a daemon's settings.
func (w *world) advice(daemon string) (lines []string) {
	w.T.Helper()
	out, err := labtest.Output(exec.CommandContext(w.Ctx, labtest.Program(w.T, ""), "check", w.SettingsFile(daemon)))
	if err != nil {
		w.T.Fatalf("check: %v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSuffix(line, "\n"); !strings.HasPrefix(line, w.SettingsFile(daemon)) {
			lines = append(lines, line)
		}
	}
	return lines
}

// amend adds a line to a daemon's settings and makes it reload them.
func (w *world) amend(daemon, line string) {
	w.T.Helper()
	file := w.SettingsFile(daemon)
	text, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, []byte(string(text)+line+"\n"), 0o600)
	}
	if err == nil {
		err = w.Daemon(daemon).Signal(syscall.SIGHUP)
	}
	if err != nil {
		w.T.Fatal(err)
	}
}
