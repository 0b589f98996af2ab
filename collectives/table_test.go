package collectives_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/collectives/operation"
)

func TestChooseTogether(t *testing.T) {
	tests := []struct {
		collective operation.Operation
		ranks      int
		shape      collectives.Shape
		want       string
	}{
		{operation.Allreduce, 8, collectives.Shape{Bytes: 8, Commutative: true}, "recursive-doubling"},
		{operation.Allreduce, 8, collectives.Shape{Bytes: 1 << 20, Commutative: true}, "ring"},
		{operation.Allreduce, 8, collectives.Shape{Bytes: 1 << 20}, "rabenseifner"},
		{operation.Allreduce, 8, collectives.Shape{Bytes: 8 << 10}, "recursive-doubling"},
		{operation.Bcast, 8, collectives.Shape{Bytes: 8}, "binomial"},
		{operation.Bcast, 8, collectives.Shape{Bytes: 1 << 20}, "scatter-allgather"},
		{operation.Bcast, 3, collectives.Shape{Bytes: 1 << 20}, "binomial"},
		{operation.Reduce, 8, collectives.Shape{Bytes: 1 << 20}, "rabenseifner"},
		{operation.Allgather, 8, collectives.Shape{Bytes: 8 << 10}, "recursive-doubling"},
		{operation.Gather, 8, collectives.Shape{Bytes: 8}, "binomial"},
		{operation.Gather, 8, collectives.Shape{Bytes: 1 << 20}, "linear"},
		{operation.Gather, 2, collectives.Shape{Bytes: 8}, "linear"},
		{operation.Allgather, 8, collectives.Shape{Bytes: 8}, "bruck"},
		{operation.Allgather, 8, collectives.Shape{Bytes: 1 << 20}, "ring"},
		{operation.Scatter, 8, collectives.Shape{Bytes: 8}, "binomial"},
		{operation.Scatter, 8, collectives.Shape{Bytes: 1 << 20}, "linear"},
		{operation.Alltoall, 8, collectives.Shape{Bytes: 8}, "bruck"},
		{operation.Alltoall, 8, collectives.Shape{Bytes: 1024}, "pairwise"},
		{operation.Alltoall, 7, collectives.Shape{Bytes: 8}, "pairwise"},
		{operation.Barrier, 1, collectives.Shape{}, "dissemination"},
	}
	for _, tt := range tests {
		p, err := collectives.NewPlanner(0, tt.ranks, nil)
		if err != nil {
			t.Fatal(err)
		}
		choice, err := p.Choose(tt.collective, tt.shape)
		if err != nil || choice.Algorithm.Name != tt.want {
			t.Errorf("%d ranks, %s of %+v: %q, %v; want %q", tt.ranks, tt.collective, tt.shape, choice.Algorithm.Name, err, tt.want)
		}
	}
}

// Every shape has an algorithm, and names are unique.
func TestEveryCollectiveHasALineWithoutLimits(t *testing.T) {
	names := collectives.Operations()
	if len(names) != 16 {
		t.Errorf("%d collectives: %v", len(names), names)
	}
	if all := operation.All(); !slices.Equal(append(names, operation.Alltoallw), all) {
		t.Errorf("of %v there are algorithms for %v", all, names)
	}
	for _, collective := range names {
		algs := collectives.Algorithms(collective)
		seen := map[string]bool{}
		for _, a := range algs {
			if seen[a.Name] {
				t.Errorf("%s has %s twice", collective, a.Name)
			}
			seen[a.Name] = true
			if found, err := collectives.Find(collective, a.Name); err != nil || found.Summary != a.Summary {
				t.Errorf("Find(%s, %s) = %v, %v", collective, a.Name, found.Name, err)
			}
		}
		if !slices.ContainsFunc(algs, func(a collectives.Algorithm) bool {
			return a.Needs == collectives.Nothing && !a.Places && a.MinBytes == 0 && a.MaxBytes == 0 && a.MinRanks == 0
		}) {
			t.Errorf("every algorithm of %s has limits", collective)
		}
	}
}

func TestUnknownNames(t *testing.T) {
	if _, err := collectives.Find(operation.Allreduce, "tree"); err == nil || !strings.Contains(err.Error(), "have shared-buffer, ring, rabenseifner, recursive-doubling, two-level") {
		t.Errorf("unknown algorithm: %v", err)
	}
	if _, err := collectives.ParseForced("allreduse=ring"); err == nil || !strings.Contains(err.Error(), `no collective "allreduse"`) {
		t.Errorf("unknown collective: %v", err)
	}
	if algs := collectives.Algorithms(operation.Alltoallw); algs != nil {
		t.Errorf("algorithms of a collective that has none: %v", algs)
	}
}

// The manual lists every algorithm, in the table's order.
func TestManualListsAlgorithms(t *testing.T) {
	page, err := os.ReadFile("../docs/programming.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, collective := range collectives.Operations() {
		var names []string
		for _, a := range collectives.Algorithms(collective) {
			names = append(names, a.Name)
		}
		if row := fmt.Sprintf("\n| %v | %s |\n", collective, strings.Join(names, ", ")); !strings.Contains(string(page), row) {
			t.Errorf("docs/programming.md has no row %s", strings.TrimSpace(row))
		}
	}
}
