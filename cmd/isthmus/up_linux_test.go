package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/cmd/internal/cmdtest"
	"github.com/isthmus-grid/isthmus/internal/daemon/daemontest"
)

// One token makes hosts the frontal and a helper of a site. Repeating the command changes nothing,
// and what somebody has set is not replaced.
func TestUp(t *testing.T) {
	g := newLoopGrid(t)
	dir := t.TempDir()
	token := func(words ...string) string {
		t.Helper()
		got := isthmus(t, g.dir, append([]string{"ca", "token", "--dir", "ca"}, words...)...)
		if got.status != 0 {
			t.Fatalf("%+v", got)
		}
		return strings.TrimSpace(got.stdout)
	}
	contains := func(got result, status int, wants ...string) {
		t.Helper()
		for _, want := range wants {
			if got.status != status || !strings.Contains(got.stdout+got.stderr, want) {
				t.Errorf("%+v; want %d, %q", got, status, want)
			}
		}
	}
	const listen = "127.0.0.1:0"
	start := func(role, settings string) *daemontest.Process {
		t.Helper()
		cmd := exec.Command(os.Args[0], role, "--config", settings)
		cmd.Env = cmdtest.Environment()
		return daemontest.Start(t, cmd)
	}
	frontal := token("--broker", g.at, "frontal", "lyon")
	contains(isthmus(t, dir, "up", "--dir", "f", "--listen", listen, frontal), 0, "settings     ", "certificate  frontal lyon, in ", "daemon       not started: isthmus frontal --config ")
	settings := filepath.Join(dir, "f", "frontal.yaml")
	before, err := os.ReadFile(settings)
	if err != nil {
		t.Fatal(err)
	}
	contains(isthmus(t, dir, "up", "--dir", "f", "--listen", listen, frontal), 0, "settings     "+settings+", as it was", "certificate  frontal lyon until ", "as it was")
	if after, err := os.ReadFile(settings); err != nil || string(after) != string(before) {
		t.Errorf("settings changed from\n%s\nto\n%s (%v)", before, after, err)
	}
	other := token("--broker", g.at, "frontal", "paris")
	contains(isthmus(t, dir, "up", "--dir", "f", "--listen", listen, other), 1, "frontal.yaml: site is lyon, and", "says paris", "next:")

	// The frontal of these settings, and what takes for a test on one host, serves a helper that comes up by
	// a token alone.
	test := "private: [127.0.0.0/8]\npatience: 0s\nprofile: {inbound: none, egress: any}\n"
	if err := os.WriteFile(settings, append(before, test...), 0o640); err != nil {
		t.Fatal(err)
	}
	contains(isthmus(t, dir, "up", "--dir", "f", "--listen", listen, frontal), 0, "settings     "+settings+", as it was")
	p := start("frontal", settings)
	helper := token("--broker", g.at, "--frontal", p.Facts["listen"], "helper", "lyon/*")
	contains(isthmus(t, dir, "up", "--dir", "h", "--node", "n7", helper), 0, "certificate  helper lyon/n7, in ")
	start("helper", filepath.Join(dir, "h", "helper.yaml"))
	// A node that does not reach the broker enrols by its frontal.
	away := token("--broker", "127.0.0.1:1", "--frontal", p.Facts["listen"], "helper", "lyon/n8")
	contains(isthmus(t, dir, "up", "--dir", "h8", away), 0, "certificate  helper lyon/n8, in ")
	contains(isthmus(t, dir, "ca", "enroll", "--out", "h9", "--broker", "127.0.0.1:1", "--frontal", p.Facts["listen"], "--token", token("helper", "lyon/n9")), 0, "helper-lyon-n9.pem")
	contains(isthmus(t, dir, "up", "--dir", "h10", token("--broker", "127.0.0.1:1", "--frontal", "127.0.0.1:2", "helper", "lyon/n10")), 1, "127.0.0.1:1", "frontal at 127.0.0.1:2: dial", "next:")
	contains(isthmus(t, dir, "status", "--broker", g.at, "--cert", g.admin.Cert, "--tls-key", g.admin.Key, "--ca", g.admin.CA), 0, "lyon")
	contains(isthmus(t, dir, "hosts", "--helper", filepath.Join(dir, "h", "helper.sock")), 0, "lyon/n7")

	contains(isthmus(t, dir, "up", "--dir", "x", token("frontal", "nice")), 2, "up: the token names no broker; give --broker HOST:PORT")
	contains(isthmus(t, dir, "up", "--dir", "x", token("--broker", g.at, "helper", "nice/n1")), 2, "up: the token names no frontal; give --frontal HOST:PORT")
	contains(isthmus(t, dir, "up", "--dir", "x", token("--broker", g.at, "user", "bob")), 2, "up: the token is for user bob")
	contains(isthmus(t, dir, "up", "--dir", "x", "nonsense"), 1, "this is not an enrolment token", "next:")
	contains(isthmus(t, dir, "ca", "enroll", "--token", token("frontal", "nice")), 2, "ca enroll: give --broker HOST:PORT")
	contains(isthmus(t, dir, "up", "--dir", "x", "--broker", "x", token("--frontal", "f:1", "helper", "nice/n1")), 2, `up: broker "x": want HOST:PORT`)
	contains(isthmus(t, dir, "up"), 2, "up: want TOKEN")
	t.Setenv("ISTHMUS_TOKEN", helper)
	contains(isthmus(t, dir, "up", "--dir", "h", "--node", "n7"), 0, "certificate  helper lyon/n7 until ")
	contains(isthmus(t, dir, "up", "--dir", "x", "nonsense"), 1, "this is not an enrolment token")
	contains(isthmus(t, g.dir, "ca", "token", "--dir", "ca", "--frontal", "x:1", "proxy", "p9"), 2, "proxy p9 has no frontal")
	contains(isthmus(t, g.dir, "ca", "token", "--dir", "ca", "--broker", "x", "proxy", "p9"), 2, "--broker x: want HOST:PORT")
}
