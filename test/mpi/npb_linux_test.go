//go:build system

package mpi

import (
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// kernels of the NAS Parallel Benchmarks that `isthmus-lab demo` does not show, with the part of a
// report that names the class's size.
var kernels = []struct{ name, class, size string }{
	{"cg", "S", "order 1400"}, {"cg", "W", "order 7000"},
	{"mg", "S", "32 x 32 x 32"}, {"mg", "W", "128 x 128 x 128"},
	{"ft", "S", "64 x 64 x 64"}, {"ft", "W", "128 x 128 x 32"},
}

// Each kernel computes the official values on eight ranks, half of them in a site that permits
// nothing inbound and half in one whose nodes have no route out.
func TestKernelsOverTwoClosedSites(t *testing.T) {
	t.Parallel() // most of it is waiting
	w := labtest.NewWorld(t, labtest.SiteClosed+"  - {name: shed, preset: no-route/egress-443, nodes: 2}\n", grid.Config{
		Profile: func(_ string, p overlay.SiteProfile) overlay.SiteProfile { return p }, // whichever technique works first
	})
	for _, k := range kernels {
		t.Run(k.name+"/"+k.class, func(t *testing.T) {
			out := w.RunExample(t, []string{"closed/n1", "closed/n2", "shed/n1", "shed/n2"}, 2, k.name, "--class", k.class)
			for _, want := range []string{"SUCCESSFUL", k.size} {
				if !strings.Contains(out, " "+want+"\n") {
					t.Errorf("it did not print %q but:\n%s", want, out)
				}
			}
		})
	}
}
