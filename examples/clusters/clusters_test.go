package clusters

import (
	"slices"
	"testing"

	"github.com/isthmus-grid/isthmus/mpilib"
	"github.com/isthmus-grid/isthmus/overlay"
)

func TestOf(t *testing.T) {
	places := []overlay.NodeID{{Site: "b", Name: "n1"}, {Site: "a", Name: "n1"}, {Site: "b", Name: "n2"}, {Site: "a", Name: "n1"}, {Site: "c"}}
	groups := []mpilib.JobGroup{{Name: "master", First: 0, Count: 1}, {Name: "workers", First: 1, Count: 4}}
	for _, tc := range []struct {
		groups []mpilib.JobGroup
		want   []int
	}{{nil, []int{0, 1, 0, 1, 2}}, {groups, []int{0, 1, 1, 1, 1}}} {
		if got := Of(places, tc.groups); !slices.Equal(got, tc.want) {
			t.Errorf("with groups %v: %v, want %v", tc.groups, got, tc.want)
		}
	}
}
