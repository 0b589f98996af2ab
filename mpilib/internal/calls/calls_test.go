package calls

import (
	"errors"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/mpilib/internal/group"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
)

// Nothing starts after End, and Wait returns when what started before has returned.
func TestBackgroundEnds(t *testing.T) {
	var b Background
	release, done := make(chan struct{}), false
	if !b.Start(func() { <-release; done = true }) {
		t.Fatal("Start refuses before End")
	}
	b.End()
	if b.Start(func() { t.Error("started after End") }) {
		t.Error("Start reports that it started a function after End")
	}
	close(release)
	if b.Wait(); !done {
		t.Error("Wait returned before the function")
	}
}

// The ranks that give a split give the same one; on a mismatch all ranks find the same ranks.
func TestCommonSplit(t *testing.T) {
	const none = mpi.Undefined
	for _, c := range []struct {
		splits []int
		want   int
		err    string
	}{
		{[]int{SplitSite, SplitSite}, SplitSite, ""},
		{[]int{none, SplitNode, none}, SplitNode, ""},
		{[]int{none, none}, none, ""},
		{[]int{none, SplitNode, SplitSite}, 0, "2 on rank 1, 3 on rank 2"},
	} {
		var all []group.Choice
		for _, s := range c.splits {
			all = append(all, group.Choice{Colour: s})
		}
		got, err := commonSplit(all, c.splits[0])
		switch {
		case c.err == "" && (got != c.want || err != nil):
			t.Errorf("%v: %d, %v; want %d", c.splits, got, err, c.want)
		case c.err != "" && (!errors.Is(err, mpi.ErrMismatch) || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%v: %v; want a mismatch with %q", c.splits, err, c.err)
		}
	}
}
