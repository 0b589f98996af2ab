package directory

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/overlay"
)

func TestCacheForgetsTheLeastUsed(t *testing.T) {
	c := newCache("sitea", 3, time.Minute)
	for r := range uint32(3) {
		c.put(answerFor(r, 1, "siteb"), epoch0)
	}
	c.get(proc(0), epoch0, false) // rank 1 is now the least recently used
	c.put(answerFor(3, 1, "siteb"), epoch0)
	for r, want := range []bool{true, false, true, true} {
		if _, ok := c.get(proc(uint32(r)), epoch0, false); ok != want {
			t.Errorf("rank %d is there: %v, want %v", r, ok, want)
		}
	}
	if c.pushed != 1 || c.points.Len() != 3 || c.plans.Len() != 1 {
		t.Errorf("%d pushed out, %d entries, %d plans", c.pushed, c.points.Len(), c.plans.Len())
	}
}

func TestCacheAges(t *testing.T) {
	c := newCache("sitea", 3, time.Minute)
	c.put(answerFor(0, 1, "siteb"), epoch0)
	if _, ok := c.get(proc(0), epoch0.Add(time.Minute-1), false); !ok {
		t.Error("gone before its age")
	}
	if _, ok := c.get(proc(0), epoch0.Add(time.Minute), false); ok {
		t.Error("there after its age")
	}
	if _, ok := c.get(proc(0), epoch0.Add(time.Hour), true); !ok {
		t.Error("not given while the broker is away")
	}
}

func TestCacheGenerations(t *testing.T) {
	c := newCache("sitea", 3, time.Minute)
	c.put(answerFor(0, 5, "siteb"), epoch0)
	c.put(answerFor(0, 4, "siteb"), epoch0) // a late answer
	if a, _ := c.get(proc(0), epoch0, false); a.Point.Generation != 5 {
		t.Errorf("generation %d", a.Point.Generation)
	}
	if c.drop(proc(0), 4) || !c.drop(proc(0), 5) || c.drop(proc(0), 5) {
		t.Error("dropped by the wrong generation, or not by the right one")
	}
	c.put(Answer{Name: proc(1), Err: overlay.ErrUnknownProcess}, epoch0)
	if _, ok := c.get(proc(1), epoch0, true); ok {
		t.Error("a fault was remembered")
	}
}

// TestNewPlanServesAllOfASite: a plan is for the pair of sites, so the plan of one answer applies
// to the processes known before.
func TestNewPlanServesAllOfASite(t *testing.T) {
	c := newCache("sitea", 10, time.Minute)
	c.put(answerFor(0, 1, "siteb"), epoch0)
	newer := answerFor(1, 1, "siteb")
	newer.Plan = planTo("siteb", "the port range was opened")
	c.put(newer, epoch0)
	if a, ok := c.get(proc(0), epoch0, false); !ok || a.Plan.Digest != newer.Plan.Digest {
		t.Errorf("plan %016x, want %016x", a.Plan.GetDigest(), newer.Plan.Digest)
	}
	if known := c.recentPlans(); len(known) != 1 || known[newer.Plan.Digest] == nil {
		t.Errorf("known: %v", known)
	}
}

// TestEmptyPlanIsNotKept: a plan without a step may have one soon, by a proxy that joins.
func TestEmptyPlanIsNotKept(t *testing.T) {
	c := newCache("sitea", 10, time.Minute)
	a := answerFor(0, 1, "siteb")
	a.Plan = control.PlanToPB(overlay.Plan{Asker: "sitea", Target: "siteb"})
	c.put(a, epoch0)
	if _, ok := c.get(proc(0), epoch0, false); ok {
		t.Error("it answers")
	}
	if _, ok := c.get(proc(0), epoch0, true); !ok {
		t.Error("not given while the broker is away")
	}
}

func local(rank uint32, generation overlay.Generation, node string) overlay.AccessPoint {
	return overlay.AccessPoint{Process: proc(rank), Generation: generation, Node: overlay.NodeID{Site: "sitea", Name: node}, Local: netip.MustParseAddrPort("10.1.0.5:4000")}
}

// TestRegistryGrace: a session that reconnects in time keeps what it registers again, and loses the
// rest.
func TestRegistryGrace(t *testing.T) {
	r := NewRegistry("sitea", time.Minute, 10, 10)
	s1, s2 := new(control.Session), new(control.Session)
	at := func(d time.Duration) time.Time { return epoch0.Add(d) }
	r.Attach("a1", s1, at(0))
	for rank := range uint32(3) {
		if err := r.Register(local(rank, 1, "a1"), at(0)); err != nil {
			t.Fatal(err)
		}
	}
	if gone := r.Expire(at(time.Hour)); gone != nil {
		t.Fatalf("%v went while the helper was there", gone)
	}
	r.Detach("a1", s1, at(time.Hour))
	_, _, err := r.Target(proc(0), 1)
	if want := "unreachable: helper sitea/a1 has no session with its frontal since 13:03:05"; !errors.Is(err, overlay.ErrUnreachable) || err.Error() != want {
		t.Errorf("away: %v, want %q", err, want)
	}
	r.Attach("a1", s2, at(time.Hour+30*time.Second))
	r.Register(local(1, 1, "a1"), at(time.Hour+31*time.Second))
	r.Detach("a1", s1, at(time.Hour+32*time.Second)) // late word of the old session
	if gone := ranks(r.Expire(at(time.Hour + 2*time.Minute))); gone != "[0 2]" {
		t.Errorf("gone: %s", gone)
	}
	if _, ok := r.confirmed(proc(1)); !ok {
		t.Error("the process that was registered again is in doubt")
	}
	r.Detach("a1", s2, at(2*time.Hour))
	if gone := ranks(r.Expire(at(3 * time.Hour))); gone != "[1]" || len(r.byNode) != 0 {
		t.Errorf("gone: %s, %d helpers left", gone, len(r.byNode))
	}
}

func TestRegistryRefuses(t *testing.T) {
	r := NewRegistry("sitea", time.Minute, 2, 2)
	r.Attach("a1", new(control.Session), epoch0)
	r.Attach("a2", new(control.Session), epoch0)
	r.Register(local(0, 5, "a1"), epoch0)
	for _, tc := range []struct {
		point overlay.AccessPoint
		class error
		text  string
	}{
		{local(0, 4, "a1"), overlay.ErrStale, "access point is stale: rank 0 of job " + string(job) + " is registered at sitea/a1 in generation 5, this is generation 4"},
		{local(0, 5, "a2"), overlay.ErrForbidden, "not permitted: rank 0 of job " + string(job) + " runs at sitea/a1 already, in the same generation 5"},
	} {
		if err := r.Register(tc.point, epoch0); !errors.Is(err, tc.class) || err.Error() != tc.text {
			t.Errorf("got %v, want %s", err, tc.text)
		}
	}
	if err := r.Register(local(0, 6, "a2"), epoch0); err != nil || len(r.byNode["a1"].processes) != 0 {
		t.Errorf("a newer life at another node: %v", err)
	}
	r.Register(local(1, 1, "a1"), epoch0)
	if err := r.Register(local(2, 1, "a1"), epoch0); !errors.Is(err, overlay.ErrOverloaded) || !strings.Contains(err.Error(), "limits.processes") {
		t.Errorf("over the bound: %v", err)
	}
	if r.Withdraw("a1", proc(0), 6) || r.Withdraw("a2", proc(0), 5) || !r.Withdraw("a2", proc(0), 6) {
		t.Error("withdrawn by the wrong node or generation, or not by the right one")
	}
	if _, _, err := r.Target(proc(1), 2); !errors.Is(err, overlay.ErrStale) {
		t.Errorf("another generation: %v", err)
	}
	if _, _, err := r.Target(proc(7), 1); !errors.Is(err, overlay.ErrUnknownProcess) {
		t.Errorf("unknown: %v", err)
	}
}

// TestPlansAreForJobs: a policy may treat two jobs differently.
func TestPlansAreForJobs(t *testing.T) {
	c := newCache("sitea", 10, time.Minute)
	other := proc(1)
	other.Job = "other-00112233445566778899aabbccddeeff"
	one := answerFor(1, 1, "siteb")
	two := Answer{Name: other, Point: one.Point, Plan: planTo("siteb", "by a rule")}
	c.put(one, epoch0)
	c.put(two, epoch0)
	for _, want := range []Answer{one, two} {
		if got, ok := c.get(want.Name, epoch0, false); !ok || got.Plan != want.Plan {
			t.Errorf("%v: %v", want.Name, got.Plan)
		}
	}
	if known := c.recentPlans(); len(known) != 2 {
		t.Errorf("%d plans are known", len(known))
	}
}
