package broker

import (
	"testing"

	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

func TestOutcomes(t *testing.T) {
	var o outcomes
	o.note("b", "a", overlay.Relay, 40, 0, "")
	o.note("a", "b", overlay.Relay, 41, 0, "")
	o.note("a", "b", overlay.Direct, 0, wire.CodeTimeout, "silence")
	o.note("a", "b", overlay.Direct, 20, 0, "")
	want := []OutcomeStatus{
		{"a", "b", overlay.Direct, 1, 1, 20, "silence"},
		{"a", "b", overlay.Relay, 1, 0, 41, ""},
		{"b", "a", overlay.Relay, 1, 0, 40, ""},
	}
	got := o.status()
	if len(got) != len(want) {
		t.Fatalf("got %+v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("row %d: %+v, want %+v", i, got[i], want[i])
		}
	}
}
