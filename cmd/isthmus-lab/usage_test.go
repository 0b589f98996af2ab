package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/cmd/internal/cmdtest"
)

func TestMain(m *testing.M) { os.Exit(cmdtest.Main(m, main)) }

// result is the outcome of a command.
type result struct {
	stdout, stderr string
	status         int
}

// isthmusLab runs the command in folder dir. It must end by itself.
func isthmusLab(t *testing.T, dir string, words ...string) result {
	t.Helper()
	stdout, stderr, status := cmdtest.Run(t, dir, words...)
	return result{stdout, stderr, status}
}

// TestMistakesOnTheCommandLine: one line that describes the mistake, on stderr, and status 2.
func TestMistakesOnTheCommandLine(t *testing.T) {
	for _, tc := range []struct {
		words []string
		text  string
	}{
		{[]string{"frobnicate"}, `unknown command "frobnicate" (--help lists them)`},
		{[]string{"--frobnicate"}, `unknown flag --frobnicate (--help lists the flags)`},
		{[]string{"example", "frobnicate"}, `example: unknown command "frobnicate" (--help lists them)`},
		{[]string{"bench", "frobnicate"}, `bench: unknown command "frobnicate" (--help lists them)`},
		{[]string{"bench", "rely"}, `bench: unknown command "rely"; did you mean relay? (--help lists them)`},
		{[]string{"demo", "now"}, `demo: "now" is not expected here; see --help`},
		{[]string{"bench", "relay", "now"}, `bench relay: "now" is not expected here; see --help`},
		{[]string{"helpers"}, "helpers: give a --config for each helper"},
		{[]string{"up"}, "up: want FILE"},
		{[]string{"run"}, "run: want FILE [--at SITE/HOST] -- COMMAND [ARGUMENT...]"},
		{[]string{"run", "file", "--"}, "run: want FILE [--at SITE/HOST] -- COMMAND [ARGUMENT...]"},
		{[]string{"matrix", "--rtt=-1ms"}, "matrix: --rtt -1ms: want 0s or more"},
		{[]string{"bench", "setup", "--repeat", "0"}, "bench setup: --repeat 0: want 1 or more"},
		{[]string{"bench", "setup", "--rtt", "0"}, "bench setup: --rtt 0s: want 1µs or more"},
		{[]string{"bench", "crowd", "--rtt=-5ms"}, "bench crowd: --rtt -5ms: want 0s or more"},
		{[]string{"bench", "crowd", "--ranks", "0"}, "bench crowd: 0 ranks at a site of 4 nodes; want one for each node at least, and at most 5000"},
		{[]string{"bench", "relay", "--repeat", "0"}, "bench relay: --repeat 0: want 1 or more"},
		{[]string{"bench", "link", "--repeat=-1"}, "bench link: --repeat -1: want 1 or more, 5 for reliable figures"},
		{[]string{"bench", "p2p", "--repeat=0"}, "bench p2p: --repeat 0: want 1 or more, 5 for reliable figures"},
		{[]string{"bench", "p2p", "--only=("}, "bench p2p: --only: error parsing regexp: missing closing ): `(`"},
		{[]string{"bench", "p2p", "--peers=lam"}, "bench p2p: --peers: \"lam\": want some of openmpi, mpich, each once, separated by commas, or none"},
		{[]string{"bench", "abi", "--peers=isthmus"}, "bench abi: --peers: \"isthmus\": want some of openmpi, mpich, each once, separated by commas, or none"},
		{[]string{"bench", "replicas", "--class", "D"}, "bench replicas: --class D: want S, W, A or B"},
		{[]string{"bench", "paper", "--repeat=0"}, "bench paper: --repeat 0: want 1 or more, 5 for reliable figures"},
		{[]string{"bench", "broker", "--repeat", "0"}, "bench broker: --repeat 0: want 1 or more"},
		{[]string{"bench", "broker", "--sites=-1"}, "bench broker: --sites -1: want 1 or more"},
		{[]string{"bench", "broker", "--processes", "0"}, "bench broker: --processes 0: want 1 or more"},
		{[]string{"bench", "aiac", "--loss", "0,1"}, "bench aiac: losses of [0 1]; want fractions, from 0 and below 1"},
		{[]string{"check"}, "check: want FILE..."},
		{[]string{"isthmus", "run"}, "run: give either -n or --ranks"},
	} {
		got := isthmusLab(t, t.TempDir(), tc.words...)
		if want := "isthmus-lab: " + tc.text + "\n"; got.status != 2 || got.stderr != want || got.stdout != "" {
			t.Errorf("isthmus-lab %s: status %d, stdout %q, stderr\n %q, want\n %q", strings.Join(tc.words, " "), got.status, got.stdout, got.stderr, want)
		}
	}
}

// TestHelp: every command has a help page, on stdout, with status 0.
func TestHelp(t *testing.T) {
	for _, words := range [][]string{
		nil, {"bench"}, {"example"}, {"isthmus"},
		{"--help"}, {"demo", "--help"}, {"up", "--help"}, {"run", "--help"}, {"check", "--help"}, {"bench", "relay", "--help"}, {"isthmus", "broker", "--help"},
	} {
		got := isthmusLab(t, t.TempDir(), words...)
		if got.status != 0 || !strings.HasPrefix(got.stdout, "NAME:\n   isthmus-lab") || got.stderr != "" {
			t.Errorf("isthmus-lab %q: %+v", words, got)
		}
	}
}

// TestCheck: a file is valid, or its first mistake is reported with line and key.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"good.yaml": "sites:\n- {name: a, preset: stateful}\n",
		"lab.yaml":  "sites:\n- {name: a, preset: stateful}\n- {name: b, preset: nosuch}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		words  []string
		status int
		want   string
	}{
		{[]string{"good.yaml"}, 0, "good.yaml: ok (lab)\n"},
		{[]string{"lab.yaml"}, 2, "lab.yaml:3:21: error: sites[1].preset: "},
		{[]string{"good.yaml", "lab.yaml"}, 2, "lab.yaml:3:21: error: sites[1].preset: "},
		{[]string{"nosuch.yaml"}, 2, "nosuch.yaml: error: no such file"},
		{[]string{"--json", "lab.yaml"}, 2, `"line":3,"column":21,"key":"sites[1].preset"`},
		{[]string{"--json", "good.yaml"}, 0, `{"as":"lab","file":"good.yaml","findings":[],"status":0}`},
	} {
		r := isthmusLab(t, dir, append([]string{"check"}, c.words...)...)
		if r.status != c.status || !strings.Contains(r.stdout, c.want) || r.stderr != "" {
			t.Errorf("check %q: status %d, want %d\n%s%s\nwant %s", c.words, r.status, c.status, r.stdout, r.stderr, c.want)
		}
	}
}

// TestCommands: what test/rules knows of the commands is what there is.
func TestCommands(t *testing.T) { cmdtest.Commands(t) }
