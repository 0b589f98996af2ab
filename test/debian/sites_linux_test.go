//go:build system

package debian

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/job/cprogram"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// Programs run over two closed sites, between which messages are relayed, as on their own library on one
// host.
func TestOverTwoSites(t *testing.T) {
	made := libraries(t)
	cfg := labtest.LaunchConfig(map[string]any{"jobs": 2, "processes": 2})
	cfg.Profile = labtest.NoTraversalProfile                  // with relays for the submitter, too
	cfg.Settings["frontal"] = map[string]any{"measure": "0s"} // sites are as they are declared from the beginning
	w := labtest.NewWorld(t, labtest.SiteOpen+labtest.SiteClosed+labtest.SiteShut, cfg)
	w.AwaitHosts(5)
	for name, tc := range map[string]struct {
		ranks int
		build func(*testing.T) program
	}{
		"NPmpich2":  {2, func(t *testing.T) program { return netpipe(t, mpich, "NPmpich2", "-i -a") }},
		"NPopenmpi": {2, func(t *testing.T) program { return netpipe(t, openMPI, "NPopenmpi", "-i -a") }},
		"dpb1tst":   {2, func(t *testing.T) program { return pblas(t, mpich, "mpich-tests", "dpb1tst", 2) }},
		"zpb2tst":   {2, func(t *testing.T) program { return pblas(t, openMPI, "openmpi-tests", "zpb2tst", 2) }},
		"spb3tim":   {4, func(t *testing.T) program { return pblas(t, mpich, "mpich-tests", "spb3tim", 4) }},
		"cpb1tst":   {4, func(t *testing.T) program { return pblas(t, openMPI, "openmpi-tests", "cpb1tst", 4) }},
		"hpcc":      {4, func(t *testing.T) program { return hpcc(t, 4) }},
		"calls.py":  {4, mpi4py},
	} {
		t.Run(name, func(t *testing.T) {
			p := tc.build(t)
			want := p.verdict(p.run(t, nil, append(p.mpi.launcher, fmt.Sprint(tc.ranks))...))
			compare(t, "over two sites", p.verdict(p.overSites(t, w.Sub(t), made, tc.ranks)), want)
		})
	}
}

// tags are what isthmus run begins lines with.
var tags = regexp.MustCompile(`(?m)^\[[a-z0-9/]+:\d+\] `)

// overSites has isthmus run start half of the ranks at each site. It sees by itself which library a program
// is linked with; to others the library goes as a file that they read.
func (p program) overSites(t *testing.T, w *labtest.World, made string, ranks int) string {
	t.Helper()
	dir := p.folder(t)
	words := []string{"run", "--hosts", fmt.Sprintf("n1@closed:%d,n1@shut:%d", ranks/2, ranks/2)}
	for _, name := range slices.Sorted(maps.Keys(p.files)) {
		words = append(words, "--input", name)
	}
	if !p.direct {
		for _, name := range []string{"libisthmus.so", p.mpi.soname} {
			words = append(words, "--input", filepath.Join(made, "lib", name))
		}
		words = append(words, "--env", cprogram.PathVariable+"=.")
	}
	if p.result != "" {
		words = append(words, "--fetch", "*"+filepath.Ext(p.result)) // of which each host has one, but only rank 0 writes this
	}
	file, err := exec.LookPath(p.command[0])
	if err != nil {
		t.Fatal(err)
	}
	cmd := w.Isthmus(append(append(words, file), p.command[1:]...)...)
	cmd.Dir = dir
	cmd.Env = append(cmd.Env, cprogram.Env+"="+made)
	stdout, stderr, status := labtest.Run(t, cmd)
	if status != 0 {
		t.Fatalf("%v: exit status %d\n%s\n%s", cmd.Args, status, stdout, stderr)
	}
	if p.result == "" {
		return tags.ReplaceAllString(stdout+stderr, "")
	}
	text, err := os.ReadFile(filepath.Join(dir, "closed", "n1", p.result))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
