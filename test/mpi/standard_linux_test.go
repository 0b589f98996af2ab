//go:build system

package mpi

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// The rules of the standard that mpilib's own tests check, each within one process, hold for
// processes of a grid: on one node, on two of a site, and between sites one of which has only its
// gateway's route out.
func TestRulesOnAGrid(t *testing.T) {
	t.Parallel() // most of it is waiting
	w := labtest.NewWorld(t, labtest.SiteClosed+labtest.SiteHidden, grid.Config{})
	rules := filepath.Join(filepath.Dir(labtest.Program(t, "")), "rules.test")
	if out, err := exec.Command("go", "test", "-c", "-buildvcs=false", "-o", rules, labtest.Module+"/mpilib").CombinedOutput(); err != nil {
		t.Fatalf("building the rules: %v\n%s", err, out)
	}
	nodes := []string{"closed/n1", "closed/n2", "hidden/n1"}
	// Omitted are tests that need shared memory of ranks, or an option of their own.
	out := w.RunJobOf(t, nodes, 2, rules, "-injob", "-test.run", "TestStandard_(3_[58]|7|8)", "-test.skip", "SynchronousBlocks|Signatures", "-test.v")
	if passed := strings.Count(out, "] PASS\n"); passed != 6 || !strings.Contains(out, "--- PASS: TestStandard_8_6_NeighborExchange") {
		t.Errorf("%d of 6 ranks passed:\n%.20000s", passed, out)
	}
}
