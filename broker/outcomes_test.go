package broker

import (
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

func TestOutcomes(t *testing.T) {
	var o outcomes
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	o.note("b", "a", overlay.Relay, 40, 0, "", at(1))
	o.note("a", "b", overlay.Relay, 41, 0, "", at(2))
	o.note("a", "b", overlay.Direct, 0, wire.CodeTimeout, "silence", at(3))
	o.note("a", "b", overlay.Direct, 20, 0, "", at(4))
	want := []OutcomeStatus{
		{"a", "b", overlay.Direct, 1, 1, 20, "silence", at(4), at(3)},
		{"a", "b", overlay.Relay, 1, 0, 41, "", at(2), time.Time{}},
		{"b", "a", overlay.Relay, 1, 0, 40, "", at(1), time.Time{}},
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
	if l := o.latest("a", "b"); len(l) != 3 || l[0].At != at(4) || l[2].At != at(2) {
		t.Errorf("latest: %+v", l)
	}
	for i := range int64(maxLatest) {
		o.note("c", "d", overlay.Direct, 0, wire.CodeTimeout, strings.Repeat("ü", maxReason), at(10+i))
	}
	if l := o.latest("a", "b"); l != nil {
		t.Errorf("not forgotten: %+v", l)
	}
	l := o.latest("c", "d")
	if len(l) != maxRows || l[0].At != at(9+maxLatest) || l[1].At != at(8+maxLatest) || len(l[0].Reason) > maxReason {
		t.Errorf("%d latest, the first of %v, of %d bytes", len(l), l[0].At, len(l[0].Reason))
	}
}

// What the broker counts by technique, it counts of one more.
func TestAddedTechniqueIsCounted(t *testing.T) {
	const added overlay.Technique = overlay.MaxTechniques - 1
	defer overlay.Register(added, "test", overlay.AskerDials, 25)()
	var o outcomes
	var c counters
	o.note("a", "b", overlay.HolePunching, 20, 0, "", time.Unix(1, 0))
	o.note("a", "b", added, 20, 0, "", time.Unix(1, 0))
	if s := o.status(); len(s) != 2 || s[0].Technique != added {
		t.Errorf("outcomes %+v, want the preferred one first", s)
	}
	c.byTech[added].asked.Add(1)
	if s := c.status(0).Introductions; s[added].Asked != 1 {
		t.Errorf("counters %v", s)
	}
}
