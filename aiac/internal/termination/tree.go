package termination

// A Tree is the way of readiness and residuals from all tasks to task 0, its root. It does not
// change when a task gets another process.
type Tree struct {
	parents  []int // of task 0: -1
	children [][]int
}

// NewTree returns the tree of tasks at the given sites. The tasks of a site form a binary tree under
// the first of them, and those are children of the root: one edge to each further site, and one
// path between sites from every task to the root.
func NewTree[S comparable](sites []S) Tree {
	t := Tree{make([]int, len(sites)), make([][]int, len(sites))}
	members := map[S][]int{}
	for task, site := range sites {
		at := len(members[site])
		members[site] = append(members[site], task)
		switch {
		case task == 0:
			t.parents[task] = -1
			continue
		case at == 0:
			t.parents[task] = 0
		default:
			t.parents[task] = members[site][(at-1)/2]
		}
		t.children[t.parents[task]] = append(t.children[t.parents[task]], task)
	}
	return t
}

// Tasks returns the number of tasks.
func (t Tree) Tasks() int { return len(t.parents) }

// Parent returns the parent of a task; of the root, -1.
func (t Tree) Parent(task int) int { return t.parents[task] }

// Children returns the children of a task, in order. The slice belongs to the tree.
func (t Tree) Children(task int) []int { return t.children[task] }
