package operation_test

import (
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/collectives/operation"
)

// Each operation has a name of its own in lower case, and the name gives the operation.
func TestNames(t *testing.T) {
	all := operation.All()
	if len(all) != 17 || all[0] != operation.Barrier || all[16] != operation.Alltoallw {
		t.Errorf("operations are %v", all)
	}
	seen := map[string]bool{}
	for _, o := range all {
		name := o.String()
		if name == "" || name != strings.ToLower(name) || seen[name] {
			t.Errorf("operation %d has the name %q", o, name)
		}
		seen[name] = true
		if got, err := operation.Parse(name); err != nil || got != o {
			t.Errorf("Parse(%q) = %v, %v", name, got, err)
		}
	}
	for o, want := range map[operation.Operation]string{
		operation.Bcast: "bcast", operation.ReduceScatter: "reduce_scatter", operation.ReduceScatterBlock: "reduce_scatter_block",
		operation.Exscan: "exscan", 0: "operation(0)", operation.Count: "operation(18)",
	} {
		if o.String() != want {
			t.Errorf("operation %d has the name %q, want %q", o, o, want)
		}
	}
}

func TestParseUnknown(t *testing.T) {
	for _, name := range []string{"", "Bcast", "broadcast", "operation(0)", "bcast "} {
		got, err := operation.Parse(name)
		if got != 0 || err == nil || !strings.Contains(err.Error(), "have barrier, bcast, reduce, ") {
			t.Errorf("Parse(%q) = %v, %v", name, got, err)
		}
	}
}
