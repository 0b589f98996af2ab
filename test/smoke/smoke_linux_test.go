package smoke

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/mpilib"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// rankKey marks, in the environment, a process as a rank of the job.
const rankKey = "ISTHMUS_TEST_SMOKE"

func TestMain(m *testing.M) {
	labtest.Main(m, map[string]func() error{rankKey: rank})
}

// rank adds up the ranks' numbers, and rank 0 prints the sum.
func rank() error {
	ctx, cancel := context.WithTimeout(context.Background(), labtest.Patience)
	defer cancel()
	w, err := mpilib.Init(ctx)
	if err != nil {
		return err
	}
	c := w.Comm()
	sum := make([]int, 1)
	if err := mpilib.Allreduce(ctx, c, []int{1 << c.Rank()}, sum, mpilib.Sum); err != nil {
		return err
	}
	if c.Rank() == 0 {
		fmt.Println("the sum is", sum[0])
	}
	return w.Finalize(ctx)
}

// enterableSelf is a copy of this test's program that the accounts of jobs can run.
func enterableSelf(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := labtest.Folder()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "rank")
	if err := os.WriteFile(name, program, 0o755); err != nil {
		t.Fatal(err)
	}
	return name
}

// One grid for all subjects, which follow each other: four sites, of which two let no connection in and
// one has a node without a route out.
func TestGrid(t *testing.T) {
	const statusPage = "127.0.0.1:9480"
	w := labtest.NewWorld(t, labtest.SiteOpen+labtest.SiteClosed+labtest.SiteShut+labtest.SiteHidden, grid.Config{
		Settings: map[string]map[string]any{"broker": {"status_listen": statusPage}},
	})
	var flows []*labtest.Flow

	t.Run("connect", func(t *testing.T) {
		w := w.Sub(t)
		for _, way := range labtest.Ways {
			if way.Path == "port-range" {
				continue // it takes another site
			}
			j := w.LinkPair(way.From, way.To)
			if got := labtest.PathOf(j.Near); got != way.Path {
				t.Errorf("%s to %s by %s, want %s", way.From, way.To, got, way.Path)
			}
			j.End(t)
		}
	})

	t.Run("run", func(t *testing.T) {
		w := w.Sub(t)
		self := enterableSelf(t)
		w.AwaitHosts(6) // of which two forbid what open would need to reach them
		out, complaint, status := labtest.Run(t, w.Isthmus("run", "-n", "4", "--hosts", "n1@open:1,n2@open:1,n1@closed:1,n2@closed:1", "--installed", "--env", rankKey+"=1", self))
		if status != 0 || !strings.Contains(out, "the sum is 15\n") {
			t.Errorf("status %d, it wrote %q and %q", status, out, complaint)
		}
	})

	t.Run("doctor", func(t *testing.T) {
		r := w.Sub(t).Doctor("helper closed/n1")
		if t.Failed() {
			return // it gave no report
		}
		if causes := labtest.Causes(r); r.Exit != 0 || !slices.Contains(causes, "inbound-dropped") {
			t.Errorf("found %q, status %d:\n%s", causes, r.Exit, labtest.Printed(r))
		}
	})

	t.Run("status page", func(t *testing.T) {
		page := w.Sub(t).Fetch("broker", "http://"+statusPage+"/")
		for _, want := range []string{"Grid of broker broker", ">closed</a>", "proxy p1</text>"} {
			if !strings.Contains(page, want) {
				t.Errorf("no %s on the page:\n%s", want, page)
			}
		}
	})

	// The flows go on until the test ends, and it ends them.
	for _, way := range [][2]string{{"closed/n1", "open/n1"}, {"hidden/n1", "closed/n2"}} {
		flows = append(flows, w.StartFlow(w.LinkPair(way[0], way[1])))
	}

	t.Run("bad input", func(t *testing.T) {
		w := w.Sub(t)
		c, err := w.Lab.Host("public/stranger").Dial(w.Ctx, "tcp", netip.AddrPortFrom(w.Daemon("proxy p1").Host.Addr(), 443).String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte("IS\x02\x01\x00\x00")); err != nil {
			t.Fatal(err)
		}
		w.AwaitLog("proxy p1", "refused", "the peer speaks version 2")
		w.AwaitFlows("after bad input", flows)
	})

	t.Run("daemons die", func(t *testing.T) {
		w := w.Sub(t)
		for _, name := range []string{"broker", "frontal closed", "helper closed/n1"} {
			w.Daemon(name).Kill()
		}
		w.AwaitFlows("without daemons", flows)
		for _, name := range []string{"broker", "frontal closed", "helper closed/n1"} {
			if err := w.Daemon(name).Start(w.Ctx); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Settled(w.Ctx); err != nil {
			t.Fatal(err)
		}
		w.AwaitFlows("after they came back", flows)
		w.LinkPair("closed/n1", "open/n1").End(t)
	})

	t.Run("revocation", func(t *testing.T) {
		w := w.Sub(t)
		if err := w.Revoke(w.Ctx, control.Identity{Role: control.RoleHelper, Site: "open", Name: "n2"}); err != nil {
			t.Fatal(err)
		}
		w.AwaitLog("helper open/n2", "this helper is revoked")
		w.AwaitFlows("of other helpers", flows)
	})
}
