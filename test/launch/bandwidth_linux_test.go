//go:build system

package launch

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// The site nearest to the submitter has a slow line. The sites' mutual measurements keep jobs off
// it that send much, or request more bandwidth in their profile; and the user sees why.
func TestPlacedByBandwidth(t *testing.T) {
	labtest.NeedLab(t)
	const lines = "  - {name: open, preset: open, nodes: 1}\n" +
		"  - {name: thin, preset: open, nodes: 1, uplink: 4Mbit}\n" +
		"  - {name: wide, preset: open, nodes: 1}\n"
	const thin, enough = 4e6 / 8, 16e6 / 8 // bytes a second; the fast paths carry far more, however busy this machine is
	cfg := labtest.LaunchConfig(map[string]any{"jobs": 1, "processes": 1})
	cfg.Profile = labtest.NoTraversalProfile
	w := newWorldOver(t, "{rtt: 4ms, pairs: [{between: [open, wide], rtt: 100ms}, {between: [thin, wide], rtt: 100ms}]}", lines, cfg)
	w.AwaitHosts(3)
	profile := filepath.Join(t.TempDir(), "job.yaml")
	profiled := func(text string) []string {
		t.Helper()
		if err := os.WriteFile(profile, []byte("groups:\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		return []string{"run", "--dry-run", "--profile", profile, "sh"}
	}
	everywhere := func(rate string) []string {
		t.Helper()
		return profiled("- {name: all, processes: 3, inside: {bandwidth: " + rate + "}}\n")
	}

	// A measurement that is not ready in time at first is ready later.
	var last string
	words := everywhere("1kbit/s")
	w.Until("all ways to be measured", func() bool {
		stdout, stderr, status := labtest.Run(t, w.Isthmus(words...))
		last = stdout + stderr
		return status == 0
	}, func() string { return last })
	if got := strings.Count(last, "bit/s\n"); got != 3 || !strings.Contains(last, "\nBETWEEN  AND ") {
		t.Errorf("%d bandwidths are shown, want 3:\n%s", got, last)
	}

	type path struct {
		Sites     []string
		Bandwidth float64
	}
	// where returns the sites that a dry run names, and the paths between them.
	where := func(words ...string) (sites []string, paths []path) {
		t.Helper()
		var plan struct {
			Hosts []struct{ Site string }
			Paths []path
		}
		out := w.ends(0, "", w.Isthmus(append([]string{"run", "--json"}, words[1:]...)...))
		if err := json.Unmarshal([]byte(out), &plan); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, h := range plan.Hosts {
			sites = append(sites, h.Site)
		}
		slices.Sort(sites)
		return sites, plan.Paths
	}
	for _, c := range []struct {
		what  string
		words func() []string
		want  string
	}{
		{"auto by latency", func() []string { return []string{"run", "--dry-run", "-n", "2", "-a", "auto", "sh"} }, "[open thin]"},
		{"auto for large messages", func() []string {
			return []string{"run", "--dry-run", "-n", "2", "-a", "auto", "--message", "1MiB", "sh"}
		}, "[open wide]"},
		{"a profile", func() []string {
			return profiled("- {name: one, processes: 1}\n- {name: two, processes: 1}\nbetween:\n- {groups: [one, two], bandwidth: 16Mbit/s}\n")
		}, "[open wide]"},
		{"a profile that asks for little", func() []string { return everywhere("100kbit/s") }, "[open thin wide]"},
	} {
		sites, paths := where(c.words()...)
		if got := fmt.Sprint(sites); got != c.want {
			t.Errorf("%s: %s, want %s; %+v", c.what, got, c.want, paths)
		}
		for _, p := range paths {
			if c.what == "auto by latency" { // which asks for nothing else
				continue
			}
			if isThin := slices.Contains(p.Sites, "thin"); p.Bandwidth <= 0 || isThin && p.Bandwidth > 2*thin || !isThin && p.Bandwidth < enough {
				t.Errorf("%s: %v carries %.0f bytes a second", c.what, p.Sites, p.Bandwidth)
			}
		}
	}
	w.ends(1, `inside "all": bandwidth: asks for at least 16Mbit/s; the best is `, w.Isthmus(everywhere("16Mbit/s")...))
}
