//go:build system

package connect

import (
	"sync"
	"testing"

	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// However many processes of a site look for one peer, the broker receives one request, and one more
// when the peer has restarted; on a busy machine it may receive a few.
func TestFrontalAsksOnce(t *testing.T) {
	const askers = 12
	w := newWorld(t, labtest.SiteClosed+labtest.SiteShut, grid.Config{
		Binary: func(daemon string) []string { return []string{labtest.Program(t, "-"+daemon)} }, // the daemons as separate programs
	})
	key := labtest.NewKey(t, "cache")
	join := func(first uint32) []*labtest.Member {
		var all []*labtest.Member
		for i := range uint32(askers) {
			all = append(all, w.Join(key, []string{"closed/n1", "closed/n2"}[i%2], first+i, 1+2*askers))
		}
		return all
	}
	first, second := join(1), join(1+askers)
	questions := func() int { return int(w.Figure("broker", "counters", "questions").(float64)) }
	// One question is what an idle machine has. On a busy one the broker may answer later than the
	// frontal waits for it, and relayed links look for a better path before the last process is
	// connected; both ask again, for all processes together.
	few := func(n int, when string) {
		t.Helper()
		if n < 1 || n > askers/2 {
			t.Errorf("%s %d processes of a site made for %d questions, want one or few", when, askers, n)
		}
	}
	connect := func(members []*labtest.Member) {
		t.Helper()
		var all sync.WaitGroup
		for _, m := range members {
			all.Go(func() {
				if err := m.Mesh.Connect(w.Ctx, 0); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}

	target := w.Join(key, "shut/n1", 0, 1+2*askers)
	before := questions()
	connect(first)
	few(questions()-before, "before the peer started anew")
	if hits := w.Figure("frontal closed", "resolve"); hits == nil {
		t.Error("no counters")
	}

	target.End(t)
	w.Join(key, "shut/n1", 0, 1+2*askers) // a greater generation
	before = questions()
	connect(second[:1]) // detects that what the frontal knew is of an earlier generation
	connect(second[1:])
	few(questions()-before, "after the peer started anew")
}

// Relayed links use the proxies in turn, both ends of a link the same one; a dead one is skipped.
func TestProxiesTakeTurns(t *testing.T) {
	w := newWorld(t, labtest.SiteClosed+labtest.SiteShut, grid.Config{
		Proxies:  []string{"public/p1", "public/p2", "public/p3"},
		Settings: map[string]map[string]any{"broker": {"proxy_choice": "round-robin"}},
	})
	relayed := func(n int) map[string]int {
		t.Helper()
		counts := map[string]int{}
		for range n {
			j := w.LinkPair("closed/n1", "shut/n1")
			if j.Near.Path.Technique != overlay.Relay || j.Near.Path.Proxy != j.Far.Path.Proxy {
				t.Errorf("near end by %v, far end by %v", j.Near.Path, j.Far.Path)
			}
			counts[j.Near.Path.Proxy]++
			j.End(t)
		}
		return counts
	}
	even := func(counts map[string]int, names ...string) {
		t.Helper()
		least, most := counts[names[0]], counts[names[0]]
		for _, name := range names {
			least, most = min(least, counts[name]), max(most, counts[name])
		}
		if most-least > 1 || len(counts) != len(names) {
			t.Errorf("links by proxy %v, want %v with at most one more each", counts, names)
		}
	}
	even(relayed(11), "p1", "p2", "p3")
	w.Daemon("proxy p2").Kill()
	w.Until("the broker to miss p2", func() bool { return len(w.Figure("broker", "proxies").([]any)) == 2 })
	even(relayed(7), "p1", "p3")
}
