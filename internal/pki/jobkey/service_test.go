package jobkey

import (
	"testing"

	"github.com/isthmus-grid/isthmus/overlay"
)

// Helpers of different builds must derive the same key, so the key of a name is fixed.
func TestServiceKey(t *testing.T) {
	a, b := ServiceKey(overlay.NodeID{Site: "sitea", Name: "a1"}), ServiceKey(overlay.NodeID{Site: "sitea", Name: "a2"})
	const want = "node:sitea:a1"
	if got := string(a.ID()); got != want {
		t.Errorf("the service job of sitea/a1 is %s, want %s", got, want)
	}
	if a.ID() == b.ID() || a.Links() == b.Links() {
		t.Error("two nodes share a service job")
	}
}
