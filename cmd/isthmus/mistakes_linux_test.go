package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/cmd/internal/cmdtest"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
)

// A disk that is full does not take a key in silence.
func TestOutputIsNotLost(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	cmd := exec.Command(os.Args[0], "job", "new", "myjob")
	cmd.Env = cmdtest.Environment()
	var stderr strings.Builder
	cmd.Stdout, cmd.Stderr = full, &stderr
	err = cmd.Run()
	want := "isthmus: standard output: write /dev/stdout: no space left on device\n  next:    df -h shows which disk is full; the output is not complete\n"
	if err == nil || cmd.ProcessState.ExitCode() != 1 || stderr.String() != want {
		t.Errorf("%v, %q; want %q", err, stderr.String(), want)
	}
}

// TestMistakesOfTheFirstHour makes the mistakes of who sets up a grid: each is answered with its fix. What
// is said is in testdata.
func TestMistakesOfTheFirstHour(t *testing.T) {
	g := newLoopGrid(t)
	other, err := ca.Create(filepath.Join(g.dir, "other"), "other", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	token := func(of *ca.CA, made time.Time, life time.Duration) string {
		t.Helper()
		text, err := of.Token(ca.Token{Identity: "proxy p1", Uses: 1, Valid: 3600, Expires: made.Add(life).UnixMilli()}, made)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	used := token(g.ca, now, time.Hour)
	enrolWith := func(token string) []string {
		return []string{"ca", "enroll", "--broker", g.at, "--token", token, "--out", "tls"}
	}
	typo, taken := filepath.Join(g.dir, "typo.yaml"), filepath.Join(g.dir, "taken.yaml")
	f := g.files(control.Identity{Role: control.RoleBroker, Name: "b2"})
	tls := "tls: {cert: " + f.Cert + ", key: " + f.Key + ", ca: " + f.CA + "}\n"
	for file, text := range map[string]string{typo: tls + "lisen: 127.0.0.1:0\n", taken: tls + "listen: " + g.at + "\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	foreign, err := other.Write(filepath.Join(g.dir, "foreign"), control.Identity{Role: control.RoleAdmin, Name: "eve"}, now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	status := []string{"status", "--broker", g.at}
	var cells []*cell
	for _, words := range [][]string{
		enrolWith("isthmus-token"),
		enrolWith(token(g.ca, now.Add(-2*time.Hour), time.Hour)),
		enrolWith(token(g.ca, now.Add(4*time.Hour), time.Hour)),
		enrolWith(token(other, now, time.Hour)),
		enrolWith(used),
		enrolWith(used),
		append(status, "--cert", foreign.Cert, "--tls-key", foreign.Key, "--ca", foreign.CA),
		append(status, "--cert", foreign.Cert, "--tls-key", foreign.Key, "--ca", g.admin.CA),
		append(status, "--cert", g.admin.Cert, "--tls-key", foreign.Key, "--ca", g.admin.CA),
		{"broker", "--config", typo},
		{"broker", "--config", taken},
		{"run", "-n", "2", "./nothere"},
		{"hosts", "--helper", "/nowhere.sock"},
	} {
		cells = append(cells, &cell{group: "mistakes", state: "first-hour", words: words})
	}
	for _, broker := range []string{"203.0.113.5:443", "broker.example.org:443"} { // from a host without IPv4, and without DNS
		words := []string{"ca", "enroll", "--broker", broker, "--token", token(g.ca, now, time.Hour), "--out", "tls"}
		cells = append(cells, &cell{group: "mistakes", state: "first-hour", words: words, cutOff: true})
	}
	golden := readGolden(t, cells)
	for _, c := range cells { // one after the other: a token works once
		g.run(c)
	}
	golden.conclude(t, cells)
}
