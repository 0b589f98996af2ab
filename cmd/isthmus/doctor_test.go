package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/support/doctor"
)

func TestDoctorMistakes(t *testing.T) {
	t.Parallel()
	admin := []string{"--cert", "c", "--tls-key", "k", "--ca", "a"}
	for _, tc := range []struct {
		words []string
		text  string
	}{
		{[]string{"doctor"}, "doctor: give --config with the settings of this host's helper or frontal"},
		{[]string{"doctor", "sitea"}, "doctor: want [SITE-A SITE-B]"},
		{[]string{"doctor", "--config", "x", "--proxy", "here", "a", "b"}, "doctor: --proxy here: want ADDRESS:PORT"},
		{append(append([]string{"doctor", "--frontal", "h:1"}, admin...), "a", "b"), "doctor: only the broker knows how sites connect; give --broker instead of --frontal"},
		{append(append([]string{"doctor"}, admin...), "a", "b"), "doctor: give either --broker or --frontal, or log in once (isthmus login --help)"},
		{[]string{"doctor", "--broker", "h:1", "a", "b"}, "doctor: give --cert: this request needs an admin's certificate (isthmus ca issue admin NAME)"},
	} {
		r := isthmus(t, t.TempDir(), tc.words...)
		if want := "isthmus: " + tc.text + "\n"; r.stderr != want || r.status != 2 {
			t.Errorf("%q: status %d, %q; want 2, %q", tc.words, r.status, r.stderr, want)
		}
	}
}

// TestDoctorOnWrongSettings: the report names the file and the key, and the
// status is that of the class.
func TestDoctorOnWrongSettings(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, tc := range map[string]struct{ text, says string }{
		"missing.yaml": {"", "no such file"},
		"none.yaml":    {"listen: 1\n", "neither settings of a helper"},
		"helper.yaml":  {"frontal: gw:1\n", "helper.yaml: tls.cert: needs a value"},
		"frontal.yaml": {"site: sitea\nbrokr: x\n", "brokr"},
		"broken.yaml":  {"frontal: [\n", "broken.yaml"},
		"proxy.yaml":   {"frontal: gw:1\nhttp_proxy: {password_file: nowhere}\ntls: {cert: c, key: k, ca: a}\n", "password_file"},
	} {
		file := filepath.Join(dir, name)
		if tc.text != "" {
			if err := os.WriteFile(file, []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r := isthmus(t, dir, "doctor", "--config", file)
		if r.status != doctor.Settings.ExitCode() || !strings.Contains(r.stdout, tc.says) || !strings.Contains(r.stdout, "settings: ") {
			t.Errorf("%s: status %d, want %d with %q:\n%s%s", name, r.status, doctor.Settings.ExitCode(), tc.says, r.stdout, r.stderr)
		}
	}
}

func TestSiteOf(t *testing.T) {
	for word, want := range map[string]string{"lyon": "lyon", "n1@lyon": "lyon", "lyon/n1": "lyon"} {
		if got := siteOf(word); got != want {
			t.Errorf("siteOf(%q) = %q, want %q", word, got, want)
		}
	}
}
