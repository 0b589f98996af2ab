//go:build system

package security

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// From nothing to a proxy that is in service and is then revoked, with the commands that an admin
// types.
func TestEnrolRenewRevoke(t *testing.T) {
	labtest.NeedLab(t)
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	isthmusCA := func(args ...string) (stdout, stderr string, status int) {
		cmd := exec.Command(labtest.Program(t, ""), append([]string{"ca"}, args...)...)
		cmd.Dir = dir
		return labtest.Run(t, cmd)
	}
	must := func(args ...string) string {
		t.Helper()
		stdout, stderr, status := isthmusCA(args...)
		if status != 0 {
			t.Fatalf("ca %q: status %d: %s", args, status, stderr)
		}
		return strings.TrimSpace(stdout)
	}
	must("init", "tg")
	must("issue", "broker", "b1")
	must("issue", "admin", "ada")
	must("issuer")
	settings := "listen: 127.0.0.1:0\nstun_listen: \"\"\nallow_loopback: true\n" +
		"tls: {cert: broker-b1.pem, key: broker-b1.key, ca: ca.pem, revoked: revoked.pem}\n" +
		"store: broker.db\nenrol: {cert: issuer.pem, key: issuer.key}\n"
	if err := os.WriteFile(at("broker.yaml"), []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	broker := labtest.StartDaemon(t, exec.Command(labtest.Program(t, "-broker"), "--config", at("broker.yaml")))

	token := must("token", "proxy", "p1")
	lines := must("enroll", "--broker", broker, "--token", token, "--out", "p1")
	if !strings.HasPrefix(lines, "tls:\n  cert: p1/proxy-p1.pem\n") {
		t.Errorf("enroll printed:\n%s", lines)
	}
	if _, stderr, status := isthmusCA("enroll", "--broker", broker, "--token", token, "--out", "p2"); status == 0 || !strings.Contains(stderr, "the token was used already") {
		t.Errorf("the token again: status %d: %s", status, stderr)
	}
	before, err := os.ReadFile(at("p1/proxy-p1.pem"))
	if err != nil {
		t.Fatal(err)
	}
	own := []string{"--cert", "p1/proxy-p1.pem", "--tls-key", "p1/proxy-p1.key", "--ca", "p1/ca.pem"}
	must(append([]string{"renew", "--broker", broker}, own...)...)
	if after, err := os.ReadFile(at("p1/proxy-p1.pem")); err != nil || string(after) == string(before) {
		t.Errorf("renewing left the file as it was (%v)", err)
	}

	creds, err := control.LoadCredentials(at("p1/proxy-p1.pem"), at("p1/proxy-p1.key"), at("p1/ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), labtest.Patience)
	defer cancel()
	e := control.NewEndpoint(creds, slog.New(slog.DiscardHandler), nil)
	defer e.Close()
	s, err := e.Dial(ctx, control.DialConfig{Addr: broker, Role: control.RoleBroker})
	if err != nil {
		t.Fatal(err)
	}
	said := must("revoke", "--broker", broker, "--cert", "admin-ada.pem", "--tls-key", "admin-ada.key", "--ca", "ca.pem", "proxy", "p1")
	if !strings.Contains(said, "now uses list 1, and stores it in "+at("broker.db")) {
		t.Errorf("revoke printed:\n%s", said)
	}
	select {
	case <-s.Done():
	case <-ctx.Done():
		t.Fatal("the session of the revoked goes on")
	}
	if _, stderr, status := isthmusCA(append([]string{"renew", "--broker", broker}, own...)...); status == 0 || !strings.Contains(stderr, "the certificate of proxy p1 was revoked at") {
		t.Errorf("renewing what is revoked: status %d: %s", status, stderr)
	}
	must("enroll", "--broker", broker, "--token", must("token", "proxy", "p1"), "--out", "again")
}

// A helper is revoked in the middle of a job: its sessions end everywhere, and so do its links at
// the gateway and the relay that carry them, but no others.
func TestRevocationEndsLinks(t *testing.T) {
	w := newWorld(t, labtest.SiteHidden+labtest.SiteClosed+labtest.SiteShut, grid.Config{})
	doomed := w.StartFlow(w.LinkPair("hidden/n1", "closed/n1"))
	other := w.StartFlow(w.LinkPair("closed/n2", "shut/n1"))
	w.AwaitFlows("before", []*labtest.Flow{doomed, other})
	lost := control.Identity{Role: control.RoleHelper, Site: "hidden", Name: "n1"}
	start := time.Now()
	if err := w.Revoke(w.Ctx, lost); err != nil {
		t.Fatal(err)
	}
	w.AwaitLog("proxy p1", "link ended", string(doomed.Pair.A.Identity.Process.Job), "revoked")
	w.AwaitLog("frontal hidden", `"msg":"carried"`, string(doomed.Pair.A.Identity.Process.Job)) // by its own or by the relay's doing
	w.Until("the helper's session to end", func() bool {
		for _, h := range w.Figure("frontal hidden", "helpers").([]any) {
			if h.(map[string]any)["up"] == true {
				return false
			}
		}
		return true
	})
	t.Logf("all ended after %v", time.Since(start))
	w.AwaitLog("helper hidden/n1", "this helper is revoked")
	w.AwaitFlows("afterwards", []*labtest.Flow{other})

	// Its process is ended, and gets the reason.
	select {
	case err := <-doomed.Pair.A.Done:
		if err == nil || !strings.Contains(err.Error(), "helper hidden/n1: revoked") {
			t.Errorf("the process of the revoked ended with %v", err)
		}
		doomed.Pair.A.Done <- nil // for leave
	case <-w.Ctx.Done():
		t.Fatal("the process of the revoked goes on")
	}

	// The helper tries to reconnect, and gets the reason for the refusal.
	w.AwaitLog("helper hidden/n1", "was revoked at")
}
