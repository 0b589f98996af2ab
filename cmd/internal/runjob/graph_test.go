package runjob

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/launch/submit"
)

// gridJobOf returns what the command line asks for.
func gridJobOf(t *testing.T, args ...string) (job *submit.Job, err error) {
	t.Helper()
	flags := append(gridFlags(), &cli.IntFlag{Name: "n"}, &cli.StringFlag{Name: "size"}, &cli.StringFlag{Name: "groups"}, &cli.BoolFlag{Name: "survive"}, &cli.DurationFlag{Name: "valid", Value: time.Hour})
	app := &cli.App{Flags: flags, Action: func(c *cli.Context) error {
		job, err = gridJob(c)
		return nil
	}}
	if err := app.Run(append([]string{"isthmus"}, args...)); err != nil {
		t.Fatal(err)
	}
	return job, err
}

func TestGraph(t *testing.T) {
	file := func(name, text string) string {
		name = filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	good := file("chain.graph", "3 2\n2\n1 3\n2\n")
	for strategy, args := range map[string][]string{"": {"--graph", good}, "auto": {"--graph", good, "-a", "auto"}, "aiacqm": {"--graph", good, "-a", "aiacqm"}, "spread": {"--graph", good, "-n", "3", "-a", "spread"}} {
		j, err := gridJobOf(t, append(args, "sh")...)
		if err != nil || j.Place.Ranks != 3 || j.Place.Graph.EdgeCount() != 2 || j.Strategy != strategy {
			t.Errorf("%q: %+v, %v", args, j, err)
		}
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"places a graph: give one with --graph FILE", []string{"-n", "3", "-a", "aiacqm"}},
		{"want one of spread, concentrate, auto, or with --graph of none, sma, fec, aiacqm", []string{"-n", "3", "-a", "near"}},
		{"the graph has 3 ranks, which contradicts -n 4", []string{"-n", "4", "--graph", good}},
		{"--graph and --replicas exclude each other", []string{"--graph", good, "--replicas", "2"}},
		{"--graph and --pattern exclude each other", []string{"--graph", good, "--pattern", "master"}},
		{"line 3: \"4\" is not a vertex", []string{"--graph", file("bad.graph", "3 2\n2\n1 4\n2\n")}},
		{"no such file", []string{"--graph", filepath.Join(t.TempDir(), "none")}},
	} {
		if _, err := gridJobOf(t, append(c.args, "sh")...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.args, err, c.want)
		}
	}
}

// A profile says how many ranks there are, of however many replicas.
func TestReplicasOfAProfile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "p.yaml")
	if err := os.WriteFile(name, []byte("groups:\n- {name: master, processes: 1}\n- {name: workers, processes: 2}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--profile", name}, {"--profile", name, "-r", "2"}, {"--profile", name, "-r", "2", "-n", "3"}} {
		j, err := gridJobOf(t, append(args, "sh")...)
		if err != nil || j.Place.Ranks != 3 || len(args) > 2 && j.Place.Processes() != 6 || len(j.Profile.Groups) != 2 {
			t.Errorf("%q: %+v, %v", args, j, err)
		}
	}
	if _, err := gridJobOf(t, "--profile", name, "-r", "2", "-n", "6", "sh"); err == nil || !strings.Contains(err.Error(), "the profile has 3 ranks, which contradicts -n 6") {
		t.Error(err)
	}
}
