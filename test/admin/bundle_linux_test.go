//go:build system

package admin

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/support/bundle"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// A bundle for a developer contains no name of a user, host or address, and no key, though it is
// collected from running daemons.
func TestBundle(t *testing.T) {
	t.Parallel() // most of it is waiting
	const figures = "127.0.0.1:9442"
	w := labtest.NewWorld(t, "  - {name: quokka, preset: stateful, nodes: [kiwi3]}\n  - {name: wombat, preset: egress-443, nodes: [emu4]}\n",
		grid.Config{Settings: map[string]map[string]any{"frontal": {"metrics_listen": figures}}})
	key := labtest.NewKey(t, "tidalwave")
	j := &labtest.Pair{A: w.Join(key, "quokka/kiwi3", 0, 2), B: w.Join(key, "wombat/emu4", 1, 2)}
	w.Connect(j)
	defer j.End(t)
	w.Exchange(j)
	w.Until("the broker was told how", func() bool { return len(w.Figure("broker", "outcomes").([]any)) > 0 })
	admin, err := w.Issue(control.Identity{Role: control.RoleAdmin, Name: "adalovelace"}, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	gateway := w.Daemon("frontal quokka").Host
	silent, err := gateway.Listen("tcp", "127.0.0.1:7999") // accepts connections and sends nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	dir := t.TempDir()
	logs := filepath.Join(dir, "mallory.log")
	text := w.Daemon("frontal quokka").Log() + w.Daemon("helper quokka/kiwi3").Log() + w.Daemon("broker").Log() + w.Daemon("proxy p1").Log() + w.Daemon("frontal wombat").Log()
	if err := os.WriteFile(logs, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "b.tar.gz")
	said, err := gateway.Command(w.Ctx, labtest.Program(t, ""), "bundle", "--out", out, "--config", w.SettingsFile("frontal quokka"), "--config", w.SettingsFile("helper quokka/kiwi3"), "--log", logs,
		"--broker", w.Daemon("broker").Host.Addr().String()+":443", "--frontal", "127.0.0.1:7999", "--cert", admin.Cert, "--tls-key", admin.Key, "--ca", admin.CA).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	texts := unbundle(t, out)
	for _, name := range []string{"manifest.json", "version.txt", "system.txt", "settings/frontal.yaml", "settings/helper.yaml", "settings/frontal-certificate.txt",
		"doctor/frontal.json", "doctor/helper.json", "metrics/frontal.txt", "status/broker-1.json", "log/1.log"} {
		if len(texts[name]) < 30 {
			t.Errorf("no %s in the bundle, or nothing in it: %q", name, texts[name])
		}
	}
	never := []string{"quokka", "wombat", "kiwi3", "emu4", "mallory", "adalovelace", string(key.ID()), key.Name, strings.TrimPrefix(key.String(), key.Name+":"), "PRIVATE KEY", "BEGIN"}
	for _, d := range w.Daemons() {
		never = append(never, d.Host.Addr().String(), d.Host.WANAddr().String())
	}
	secrets := keyLines(t, filepath.Dir(w.SettingsFile("broker")))
	if never = append(never, secrets...); len(secrets) < 10 {
		t.Fatalf("this test looks for too little: %q", never)
	}
	invented := regexp.MustCompile(`-[a-z2-7]{8}\b`) // a pseudonym's random part may contain "emu4" by chance
	for name, text := range texts {
		text = invented.ReplaceAllString(text, "-")
		for _, n := range never {
			if at := strings.Index(strings.ToLower(text), strings.ToLower(n)); at >= 0 {
				t.Errorf("%s has %q: %q", name, n, text[max(at-60, 0):min(at+60, len(text))])
			}
		}
	}

	var m bundle.Manifest
	if err := json.Unmarshal([]byte(texts["manifest.json"]), &m); err != nil {
		t.Fatal(err)
	}
	if len(m.Files) != len(texts)-1 {
		t.Errorf("the manifest lists %d files of %d", len(m.Files), len(texts)-1)
	}
	if !slices.ContainsFunc(m.Gaps, func(g bundle.Gap) bool { return g.What == "status of the frontal at 127.0.0.1:7999" }) {
		t.Errorf("the manifest does not tell of a daemon that is silent: %+v", m.Gaps)
	}
	for _, e := range m.Files {
		if e.File == "status/broker-1.json" && (e.Replaced["site"] < 2 || e.Replaced["job"] < 1) {
			t.Errorf("the manifest says of the status: %v", e.Replaced)
		}
	}
	// It is still useful: it shows how the sites connect.
	if s := texts["status/broker-1.json"]; !strings.Contains(s, `"technique": "relay"`) || !strings.Contains(s, `"inbound": "none"`) {
		t.Errorf("the status tells too little:\n%s", s)
	}
}

// keyLines returns the lines of all private keys of a grid.
func keyLines(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".key") {
			return err
		}
		text, err := os.ReadFile(path)
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); len(line) > 20 && !strings.HasPrefix(line, "-----") {
				all = append(all, line)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// unbundle reads a bundle; its names are without the folder.
func unbundle(t *testing.T, file string) map[string]string {
	t.Helper()
	packed, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return testkit.Unpack(t, bytes.NewReader(packed))
}
