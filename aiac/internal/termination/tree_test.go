package termination

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestTree(t *testing.T) {
	tree := NewTree([]string{"a", "b", "a", "a", "b", "a", "c", "b"})
	want := []int{-1, 0, 0, 0, 1, 2, 0, 1}
	if !slices.Equal(tree.parents, want) {
		t.Errorf("parents %v, want %v", tree.parents, want)
	}
	if got := tree.Children(0); !slices.Equal(got, []int{1, 2, 3, 6}) {
		t.Errorf("children of the root: %v", got)
	}
}

// Every task reaches the root, and as many edges leave a site as there are further sites.
func TestTreeHasOneEdgeForEachFurtherSite(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 0))
		sites := make([]int, 1+rng.IntN(40))
		used := map[int]bool{}
		for i := range sites {
			sites[i] = rng.IntN(6)
			used[sites[i]] = true
		}
		tree, between := NewTree(sites), 0
		for task := range sites {
			p := tree.Parent(task)
			if p >= task || (p < 0) != (task == 0) {
				t.Fatalf("seed %d: the parent of task %d is %d", seed, task, p)
			}
			if task > 0 && !slices.Contains(tree.Children(p), task) {
				t.Fatalf("seed %d: task %d is no child of its parent", seed, task)
			}
			if task > 0 && sites[p] != sites[task] {
				between++
			}
		}
		if between != len(used)-1 {
			t.Fatalf("seed %d: %d edges between %d sites", seed, between, len(used))
		}
	}
}
