package test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/grid"
	"github.com/isthmus-grid/isthmus/overlay"
)

// kernels of the NAS Parallel Benchmarks that `isthmus demo` does not show,
// with what of a report names the class's size.
var kernels = []struct{ name, class, size string }{
	{"cg", "S", "order 1400"}, {"cg", "W", "order 7000"},
	{"mg", "S", "32 x 32 x 32"}, {"mg", "W", "128 x 128 x 128"},
	{"ft", "S", "64 x 64 x 64"}, {"ft", "W", "128 x 128 x 32"},
}

// Each kernel finds the official values on eight ranks, half of them in a site
// that lets nobody in and half in one whose nodes have not even a way out.
func TestKernelsOverTwoClosedSites(t *testing.T) {
	w := newWorld(t, siteClosed+"  - {name: shed, preset: no-route/egress-443, nodes: 2}\n", grid.Config{
		Profile: func(_ string, p overlay.SiteProfile) overlay.SiteProfile { return p }, // whatever works first
	})
	for _, k := range kernels {
		t.Run(k.name+"/"+k.class, func(t *testing.T) {
			out := w.job(t, []string{"closed/n1", "closed/n2", "shed/n1", "shed/n2"}, 2, "example", k.name, "--class", k.class)
			for _, want := range []string{"SUCCESSFUL", k.size} {
				if !strings.Contains(out, " "+want+"\n") {
					t.Errorf("it did not print %q but:\n%s", want, out)
				}
			}
		})
	}
}

// job runs words of isthmus as a job by `isthmus run` on each of the nodes,
// with so many ranks on each, and returns what it wrote.
func (w *world) job(t *testing.T, nodes []string, ranks int, words ...string) string {
	t.Helper()
	return w.jobOf(t, nodes, ranks, append([]string{isthmus(t, "")}, words...)...)
}

// jobOf is job for any program.
func (w *world) jobOf(t *testing.T, nodes []string, ranks int, command ...string) string {
	t.Helper()
	key := filepath.Join(t.TempDir(), "job.key")
	if err := os.WriteFile(key, []byte(newKey(t, "job").String()), 0o600); err != nil {
		t.Fatal(err)
	}
	program := isthmus(t, "")
	outputs := make([]bytes.Buffer, len(nodes))
	var running sync.WaitGroup
	for i, node := range nodes {
		argv := append([]string{"run", "--key", key, "--size", fmt.Sprint(len(nodes) * ranks),
			"--ranks", fmt.Sprintf("%d-%d", i*ranks, (i+1)*ranks-1), "--helper", w.Socket(node), "--label", node, "--"}, command...)
		cmd := w.Lab.Host(node).Command(w.ctx, program, argv...)
		cmd.Stdout, cmd.Stderr = &outputs[i], &outputs[i]
		t.Logf("on %s: isthmus %s", node, strings.Join(argv, " "))
		running.Go(func() {
			if err := cmd.Run(); err != nil {
				t.Errorf("the ranks on %s: %v", node, err)
			}
		})
	}
	running.Wait()
	var all strings.Builder
	for i := range outputs {
		all.Write(outputs[i].Bytes())
	}
	return all.String()
}
