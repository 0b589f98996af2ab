package randomnet

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/testload"
)

// A seed always gives the same network, each is one that a lab can build, and among some hundreds
// every kind of site and fault occurs.
func TestCompose(t *testing.T) {
	kinds, faulty := map[string]bool{}, map[string]bool{}
	met := map[string]bool{} // what paths and sites have
	seeds := uint64(300)
	if testload.Full() {
		seeds = 3000
	}
	for seed := range seeds {
		n := Compose(seed)
		if again := Compose(seed); !reflect.DeepEqual(n, again) {
			t.Fatalf("seed %d gives\n%+v and\n%+v", seed, n, again)
		}
		if err := n.spec().Check(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if ranks := n.nodes(); len(ranks) != ranksPerSite*len(n.Sites) || len(n.Sites) < 2 || len(n.Sites) > 6 {
			t.Fatalf("seed %d: %d sites, ranks at %v", seed, len(n.Sites), ranks)
		}
		hosts := map[string]bool{}
		for _, s := range n.Sites {
			kinds[s.Preset] = true
			hosts[s.Name] = true
		}
		if f := n.Fault; strings.HasPrefix(f.At, "s") && (!hosts[f.At] || f.With == f.At || f.With != "" && !hosts[f.With]) {
			t.Fatalf("seed %d: %v", seed, f)
		}
		faulty[n.Fault.Kind] = true
		met["IPv6"], met["names"] = met["IPv6"] || n.IPv6, met["names"] || n.Names
		for _, p := range n.Paths {
			met["jitter"], met["reordering"] = met["jitter"] || p.Jitter > 0 && !p.Reorder, met["reordering"] || p.Reorder
			met["a long queue"] = met["a long queue"] || p.Queue > 0
			met["a long path that loses packets"] = met["a long path that loses packets"] || p.Delay >= 300*time.Millisecond && p.Loss > 0
		}
		if n.Fault.Kind == "names" && !n.Names {
			t.Fatalf("seed %d: a fault of names that nobody uses", seed)
		}
	}
	for _, what := range []string{"IPv6", "names", "jitter", "reordering", "a long queue", "a long path that loses packets"} {
		if !met[what] {
			t.Errorf("no network has %s", what)
		}
	}
	for _, p := range presets() {
		if !kinds[p] {
			t.Errorf("no network has a site of kind %s", p)
		}
	}
	for _, f := range faultKinds() {
		if !faulty[f] {
			t.Errorf("nothing ever suffers a %s", f)
		}
	}
}

// A node's ranks are consecutive, as launchers require.
func TestRanksOfANodeAreNeighbours(t *testing.T) {
	for seed := range uint64(100) {
		nodes := Compose(seed).nodes()
		if runs := slices.Compact(slices.Clone(nodes)); len(runs) != len(slices.Compact(slices.Sorted(slices.Values(nodes)))) {
			t.Fatalf("seed %d: %v", seed, nodes)
		}
	}
}
