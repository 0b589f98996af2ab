//go:build system

package mpi

import (
	"testing"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/collectives/operation"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// Every algorithm of messages can be forced on a job of two closed sites, and sends between them exactly what
// its schedules contain, however ranks are assigned to sites.
func TestForcedBetweenSites(t *testing.T) {
	t.Parallel() // most of it is waiting
	labtest.NeedLab(t)
	forced := map[string]bool{}
	for _, r := range collRows(t, "--counts", "--algorithms", "--sites", "2", "--ranks", "2", "--rtt", "2ms", "--rate", "1gbit", "--sizes", "8B") {
		if r.Met == nil || !*r.Met {
			t.Errorf("%+v", r)
		}
		if r.Against == "schedule" {
			forced[r.Params.Collective+" "+r.Params.Algorithm] = true
		}
	}
	for _, collective := range []operation.Operation{operation.Bcast, operation.Allreduce, operation.Allgather, operation.Alltoall, operation.Scan} {
		for _, a := range collectives.Algorithms(collective) {
			if !a.Needs.Has(collectives.SharedMemory) && !forced[collective.String()+" "+a.Name] {
				t.Errorf("%s was never carried out by %s", collective, a.Name)
			}
		}
	}
}
