package collectives_test

import (
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/collectives"
)

func TestSelect(t *testing.T) {
	tests := []struct {
		collective string
		shape      collectives.Shape
		want       string
	}{
		{"allreduce", collectives.Shape{Ranks: 8, Bytes: 8, Commutative: true}, "recursive-doubling"},
		{"allreduce", collectives.Shape{Ranks: 8, Bytes: 1 << 20, Commutative: true}, "ring"},
		{"allreduce", collectives.Shape{Ranks: 8, Bytes: 1 << 20}, "recursive-doubling"},
		{"gather", collectives.Shape{Ranks: 8, Bytes: 8}, "binomial"},
		{"gather", collectives.Shape{Ranks: 8, Bytes: 1 << 20}, "linear"},
		{"gather", collectives.Shape{Ranks: 2, Bytes: 8}, "linear"},
		{"allgather", collectives.Shape{Ranks: 8, Bytes: 8}, "bruck"},
		{"allgather", collectives.Shape{Ranks: 8, Bytes: 1 << 20}, "ring"},
		{"scatter", collectives.Shape{Ranks: 8, Bytes: 8}, "binomial"},
		{"scatter", collectives.Shape{Ranks: 8, Bytes: 1 << 20}, "linear"},
		{"alltoall", collectives.Shape{Ranks: 8, Bytes: 8}, "bruck"},
		{"alltoall", collectives.Shape{Ranks: 8, Bytes: 1024}, "pairwise"},
		{"alltoall", collectives.Shape{Ranks: 7, Bytes: 8}, "pairwise"},
		{"barrier", collectives.Shape{Ranks: 1}, "dissemination"},
	}
	for _, tt := range tests {
		alg, err := collectives.Select(tt.collective, tt.shape)
		if err != nil || alg.Name != tt.want {
			t.Errorf("Select(%s, %+v) = %q, %v; want %q", tt.collective, tt.shape, alg.Name, err, tt.want)
		}
	}
}

// Whatever the shape, there is an algorithm, and names are unique.
func TestEveryCollectiveEndsWithALineWithoutLimits(t *testing.T) {
	names := collectives.Names()
	if len(names) != 10 {
		t.Errorf("%d collectives: %v", len(names), names)
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
		last := algs[len(algs)-1]
		if last.Commutative || last.MinBytes != 0 || last.MaxBytes != 0 || last.MinRanks != 0 {
			t.Errorf("%s ends with %s, which has limits", collective, last.Name)
		}
	}
}

func TestUnknownNames(t *testing.T) {
	if _, err := collectives.Find("allreduce", "tree"); err == nil || !strings.Contains(err.Error(), "have ring, recursive-doubling") {
		t.Errorf("unknown algorithm: %v", err)
	}
	if _, err := collectives.Find("allreduse", "ring"); err == nil || !strings.Contains(err.Error(), `no collective "allreduse"`) {
		t.Errorf("unknown collective: %v", err)
	}
	if _, err := collectives.Select("scan", collectives.Shape{Ranks: 2}); err == nil || !strings.Contains(err.Error(), `no collective "scan"`) {
		t.Errorf("unknown collective: %v", err)
	}
	if algs := collectives.Algorithms("scan"); algs != nil {
		t.Errorf("algorithms of an unknown collective: %v", algs)
	}
}
