package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
)

// After one login, commands need no address and no certificate.
func TestLogin(t *testing.T) {
	g := newLoopGrid(t)
	config := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", config)
	dir := t.TempDir()
	ok := func(want string, words ...string) {
		t.Helper()
		if got := isthmus(t, dir, words...); got.status != 0 || !strings.Contains(got.stdout, want) {
			t.Errorf("isthmus %q: %+v, want %q", words, got, want)
		}
	}
	fails := func(want string, words ...string) {
		t.Helper()
		if got := isthmus(t, dir, words...); got.status == 0 || !strings.Contains(got.stderr, want) {
			t.Errorf("isthmus %q: %+v, want %q", words, got, want)
		}
	}
	login := func(at string, f ca.Files, more ...string) []string {
		return append([]string{"login", "--broker", at, "--cert", f.Cert, "--tls-key", f.Key, "--ca", f.CA}, more...)
	}
	fails("status: give either --broker or --frontal, or log in once", "status")
	fails("no grid is selected", "logout")
	fails("admin", login(g.at, g.files(control.Identity{Role: control.RoleHelper, Site: "sa", Name: "n1"}))...)
	fails("nothing listens there", login("127.0.0.1:9", g.admin)...)
	if entries, err := os.ReadDir(config); len(entries) > 0 || err != nil {
		t.Fatalf("logins that failed left %v, %v", entries, err)
	}

	ok("loop: broker at "+g.at+", admin ada until ", login(g.at, g.admin)...)
	if err := os.RemoveAll(filepath.Dir(g.admin.Cert)); err != nil { // what was copied is enough
		t.Fatal(err)
	}
	ok("sites", "status")
	ok(`"broker"`, "status", "--json")
	fails("frontal at 127.0.0.1:9: refused", "status", "--frontal", "127.0.0.1:9") // with the certificate of the context
	fails("for admin ada ask the administrator", "ca", "renew")                    // the broker has the certificate
	ok("*  loop  "+g.at+"  ada until "+time.Now().UTC().Format("2006"), "context")
	fails(`context nowhere: no grid is selected by that name`, "status", "--context", "nowhere")
	fails(`context nowhere`, "context", "nowhere")

	other := newLoopGrid(t)
	ok("second: ", login(other.at, other.admin, "--name", "second")...)
	ok("*  second  "+other.at, "context")
	ok("sites", "status", "--context", "loop")
	ok("", "context", "loop")
	ok("*  loop", "context")
	ok("", "logout")
	fails("status: give either", "status")
	ok("sites", "status", "--context", "second")
	if _, err := os.Stat(filepath.Join(config, "isthmus", "contexts", "loop")); err == nil {
		t.Error("logout has left the key")
	}
}
