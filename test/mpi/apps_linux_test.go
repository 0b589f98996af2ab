//go:build system

package mpi

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// Applications whose messages follow the sites, on a site that accepts no incoming connections and
// one whose nodes have no route out: both verify their results, and send the expected messages
// between the sites.
func TestApplicationsOverTwoClosedSites(t *testing.T) {
	t.Parallel() // most of it is waiting
	w := labtest.NewWorld(t, labtest.SiteClosed+"  - {name: shed, preset: no-route/egress-443, nodes: 2}\n", grid.Config{
		Profile: func(_ string, p overlay.SiteProfile) overlay.SiteProfile { return p }, // whichever technique works first
	})
	nodes := []string{"closed/n1", "closed/n2", "shed/n1", "shed/n2"}
	t.Run("tsqr", func(t *testing.T) {
		var got []string
		for _, line := range objects(t, w.RunExample(t, nodes, 2, "tsqr", "--rows", "2000", "--cols", "16", "--repeat", "1", "--json")) {
			var r struct {
				Method                   string
				Ranks, Sites, Reductions int
				WANMessages              int `json:"wan_messages"`
				Verified                 bool
			}
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatalf("%v in %s", err, line)
			}
			if r.Method == "columns" && r.WANMessages >= r.Reductions {
				r.WANMessages = -1 // as many as the allreduce needs, but at least one each
			}
			got = append(got, fmt.Sprint(r))
		}
		if want := "[{tsqr 8 2 0 1 true} {columns 8 2 31 -1 true}]"; fmt.Sprint(got) != want {
			t.Errorf("%v, want %s", got, want)
		}
	})
	t.Run("ray2mesh", func(t *testing.T) {
		var messages []int
		for _, line := range objects(t, w.RunExample(t, nodes, 2, "ray2mesh", "--pattern", "vanilla,hierarchical", "--rays", "300", "--chunk", "2", "--json")) {
			var r struct {
				Bosses, Workers int
				Verified        bool
				Trace           struct {
					Messages int `json:"wan_messages"`
					Expected int `json:"wan_expected"`
				}
			}
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatalf("%v in %s", err, line)
			}
			if !r.Verified || r.Trace.Messages != r.Trace.Expected || r.Bosses+r.Workers != 7 {
				t.Errorf("%s", line)
			}
			messages = append(messages, r.Trace.Messages)
		}
		// Which has fewer depends on which is faster: a site with little processor time requests
		// little. What each must send for the work it did is checked above.
		if len(messages) != 2 {
			t.Errorf("%d results, want 2", len(messages))
		}
		t.Logf("%v messages between the sites, vanilla and with bosses", messages)
	})
}

// objects returns the JSON objects among the lines of a job's output, without tags.
func objects(t *testing.T, out string) (all []string) {
	t.Helper()
	for line := range strings.Lines(out) {
		if i := strings.Index(line, "{"); i >= 0 {
			all = append(all, line[i:])
		}
	}
	if len(all) == 0 {
		t.Fatalf("no JSON in:\n%s", out)
	}
	return all
}
