package connhelper

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/connhelper/race"
	"github.com/isthmus-grid/isthmus/overlay"
)

// A step that failed several times is left out, unless the plan has no other.
func TestBarredSteps(t *testing.T) {
	direct, relay := overlay.Step{Technique: overlay.Direct}, overlay.Step{Technique: overlay.Relay}
	for _, tc := range []struct {
		name     string
		steps    []overlay.Step
		barred   []overlay.Technique
		inferior []overlay.Technique
		ways     overlay.Ways
		want     []overlay.Step // eligible
		only     []overlay.Step
	}{
		{name: "none is barred", steps: []overlay.Step{direct, relay}, ways: overlay.AllWays, want: []overlay.Step{direct, relay}},
		{name: "one of two", steps: []overlay.Step{direct, relay}, barred: []overlay.Technique{overlay.Direct}, ways: overlay.AllWays, want: []overlay.Step{relay}},
		{name: "the only one", steps: []overlay.Step{direct}, barred: []overlay.Technique{overlay.Direct}, ways: overlay.AllWays, only: []overlay.Step{direct}},
		{name: "the only one, for a better path", steps: []overlay.Step{direct}, barred: []overlay.Technique{overlay.Direct}, ways: overlay.DirectOnly},
		{name: "the other one is slow", steps: []overlay.Step{direct, relay}, barred: []overlay.Technique{overlay.Direct}, inferior: []overlay.Technique{overlay.Relay}, ways: overlay.AllWays},
	} {
		to := target{plan: overlay.Plan{Steps: tc.steps}, ways: tc.ways, memory: memory{barred: map[overlay.Technique]string{}, inferior: map[overlay.Technique]string{}}}
		for _, b := range tc.barred {
			to.memory.barred[b] = "it failed"
		}
		for _, b := range tc.inferior {
			to.memory.inferior[b] = "it is slow"
		}
		same := func(a, b []overlay.Step) bool {
			return slices.EqualFunc(a, b, func(x, y overlay.Step) bool { return x.Technique == y.Technique })
		}
		if got, _ := to.eligible(new(race.Slot)); !same(got, tc.want) || !same(to.onlyBarred(), tc.only) {
			t.Errorf("%s: eligible %v, only barred %v; want %v, %v", tc.name, got, to.onlyBarred(), tc.want, tc.only)
		}
	}
}

// A dial waits longer for a daemon to come back than for a path.
func TestPatienceWith(t *testing.T) {
	for _, c := range []struct {
		err  error
		want time.Duration
	}{
		{overlay.ErrTimeout, persistence},
		{overlay.ErrUnreachable, persistence},
		{&attemptsError{[]string{"relay: away"}, fmt.Errorf("frontal a: %w", overlay.ErrNoSession)}, awayPersistence},
		{fmt.Errorf("frontal b: %w", overlay.ErrUnknownSite), awayPersistence},
	} {
		if got := patienceWith(c.err); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}
