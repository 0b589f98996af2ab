package frontal

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/internal/policy/netrule"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

var (
	jobKey = func() jobkey.Key {
		k, err := jobkey.Parse("demo:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8")
		if err != nil {
			panic(err)
		}
		return k
	}()
	job = jobKey.ID()
)

var epoch0 = time.Date(2026, 1, 2, 12, 3, 5, 0, time.Local)

func proc(rank uint32) overlay.ProcessName { return overlay.ProcessName{Job: job, Rank: rank} }

func pointAt(rank uint32, generation uint64, site, node string) *controlpb.AccessPoint {
	return &controlpb.AccessPoint{
		Process: control.ProcessToPB(proc(rank)), Generation: generation, Site: site, Node: node,
		Local: "10.2.0.9:4000", Public: "203.0.113.7:443",
	}
}

func planTo(site, reason string) *controlpb.Plan {
	return control.PlanToPB(overlay.Plan{Asker: "sitea", Target: overlay.SiteID(site), Steps: []overlay.Step{{Technique: overlay.Direct, Reason: reason}}})
}

func answerFor(rank uint32, generation uint64, site string) answer {
	return answer{name: proc(rank), point: pointAt(rank, generation, site, "b1"), plan: planTo(site, "open")}
}

func TestCacheForgetsTheLeastUsed(t *testing.T) {
	c := newCache("sitea", 3, time.Minute)
	for r := range uint32(3) {
		c.put(answerFor(r, 1, "siteb"), epoch0)
	}
	c.get(proc(0), epoch0, false) // rank 1 is now the least used
	c.put(answerFor(3, 1, "siteb"), epoch0)
	for r, want := range []bool{true, false, true, true} {
		if _, ok := c.get(proc(uint32(r)), epoch0, false); ok != want {
			t.Errorf("rank %d is there: %v, want %v", r, ok, want)
		}
	}
	if c.pushed != 1 || c.points.len() != 3 || c.plans.len() != 1 {
		t.Errorf("%d pushed out, %d entries, %d plans", c.pushed, c.points.len(), c.plans.len())
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
	if a, _ := c.get(proc(0), epoch0, false); a.point.Generation != 5 {
		t.Errorf("generation %d", a.point.Generation)
	}
	if c.drop(proc(0), 4) || !c.drop(proc(0), 5) || c.drop(proc(0), 5) {
		t.Error("dropped by the wrong generation, or not by the right one")
	}
	c.put(answer{name: proc(1), err: overlay.ErrUnknownProcess}, epoch0)
	if _, ok := c.get(proc(1), epoch0, true); ok {
		t.Error("a fault was remembered")
	}
}

// TestNewPlanServesAllOfASite: a plan is for the pair of sites, so what one
// answer brought counts for the processes that were there before.
func TestNewPlanServesAllOfASite(t *testing.T) {
	c := newCache("sitea", 10, time.Minute)
	c.put(answerFor(0, 1, "siteb"), epoch0)
	newer := answerFor(1, 1, "siteb")
	newer.plan = planTo("siteb", "the port range was opened")
	c.put(newer, epoch0)
	if a, ok := c.get(proc(0), epoch0, false); !ok || a.plan.Digest != newer.plan.Digest {
		t.Errorf("plan %016x, want %016x", a.plan.GetDigest(), newer.plan.Digest)
	}
	if known := c.known(); len(known) != 1 || known[newer.plan.Digest] == nil {
		t.Errorf("known: %v", known)
	}
}

func local(rank uint32, generation overlay.Generation, node string) overlay.AccessPoint {
	return overlay.AccessPoint{Process: proc(rank), Generation: generation, Node: overlay.NodeID{Site: "sitea", Name: node}, Local: netip.MustParseAddrPort("10.1.0.5:4000")}
}

func ranks(points []overlay.AccessPoint) string {
	var all []uint32
	for _, p := range points {
		all = append(all, p.Process.Rank)
	}
	slices.Sort(all)
	return fmt.Sprint(all)
}

// TestRegistryGrace: a session that comes back in time keeps what it registers
// again, and loses the rest.
func TestRegistryGrace(t *testing.T) {
	r := newRegistry("sitea", time.Minute, 10, 10)
	s1, s2 := new(control.Session), new(control.Session)
	at := func(d time.Duration) time.Time { return epoch0.Add(d) }
	r.attach("a1", s1, at(0))
	for rank := range uint32(3) {
		if err := r.register(local(rank, 1, "a1"), at(0)); err != nil {
			t.Fatal(err)
		}
	}
	if gone := r.expire(at(time.Hour)); gone != nil {
		t.Fatalf("%v went while the helper was there", gone)
	}
	r.detach("a1", s1, at(time.Hour))
	_, _, err := r.target(proc(0), 1)
	if want := "unreachable: helper sitea/a1 has no session with its frontal since 13:03:05"; !errors.Is(err, overlay.ErrUnreachable) || err.Error() != want {
		t.Errorf("away: %v, want %q", err, want)
	}
	r.attach("a1", s2, at(time.Hour+30*time.Second))
	r.register(local(1, 1, "a1"), at(time.Hour+31*time.Second))
	r.detach("a1", s1, at(time.Hour+32*time.Second)) // late word of the old session
	if gone := ranks(r.expire(at(time.Hour + 2*time.Minute))); gone != "[0 2]" {
		t.Errorf("gone: %s", gone)
	}
	if _, ok := r.confirmed(proc(1)); !ok {
		t.Error("the process that was registered again is in doubt")
	}
	r.detach("a1", s2, at(2*time.Hour))
	if gone := ranks(r.expire(at(3 * time.Hour))); gone != "[1]" || len(r.helpers) != 0 {
		t.Errorf("gone: %s, %d helpers left", gone, len(r.helpers))
	}
}

func TestRegistryRefuses(t *testing.T) {
	r := newRegistry("sitea", time.Minute, 2, 2)
	r.attach("a1", new(control.Session), epoch0)
	r.attach("a2", new(control.Session), epoch0)
	r.register(local(0, 5, "a1"), epoch0)
	for _, tc := range []struct {
		point overlay.AccessPoint
		class error
		text  string
	}{
		{local(0, 4, "a1"), overlay.ErrStale, "access point is stale: rank 0 of job " + string(job) + " is registered at sitea/a1 in generation 5, this is generation 4"},
		{local(0, 5, "a2"), overlay.ErrForbidden, "not permitted: rank 0 of job " + string(job) + " runs at sitea/a1 already, in the same generation 5"},
	} {
		if err := r.register(tc.point, epoch0); !errors.Is(err, tc.class) || err.Error() != tc.text {
			t.Errorf("got %v, want %s", err, tc.text)
		}
	}
	if err := r.register(local(0, 6, "a2"), epoch0); err != nil || len(r.helpers["a1"].processes) != 0 {
		t.Errorf("a newer life at another node: %v", err)
	}
	r.register(local(1, 1, "a1"), epoch0)
	if err := r.register(local(2, 1, "a1"), epoch0); !errors.Is(err, overlay.ErrOverloaded) || !strings.Contains(err.Error(), "limits.processes") {
		t.Errorf("over the bound: %v", err)
	}
	if r.withdraw("a1", proc(0), 6) || r.withdraw("a2", proc(0), 5) || !r.withdraw("a2", proc(0), 6) {
		t.Error("withdrawn by the wrong node or generation, or not by the right one")
	}
	if _, _, err := r.target(proc(1), 2); !errors.Is(err, overlay.ErrStale) {
		t.Errorf("another generation: %v", err)
	}
	if _, _, err := r.target(proc(7), 1); !errors.Is(err, overlay.ErrUnknownProcess) {
		t.Errorf("unknown: %v", err)
	}
}

// TestAllowed: only what was named, only for a while, and some never.
func TestAllowed(t *testing.T) {
	a := newAllowed(netrule.Rule{Deny: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}, Private: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}, time.Minute)
	for _, tc := range []struct {
		addr  string
		named bool
		after time.Duration
		want  string // "" is allowed
	}{
		{"203.0.113.7:443", true, 0, ""},
		{"203.0.113.7:443", true, time.Minute, "did not name 203.0.113.7:443 to this site in the last 1m0s"},
		{"203.0.113.8:443", false, 0, "did not name 203.0.113.8:443 to this site"},
		{"[::ffff:203.0.113.9]:443", true, 0, ""},
		{"[2001:db8::1]:443", true, 0, ""},
		{"127.0.0.1:443", true, 0, "127.0.0.1:443 is a loopback address; those are never dialled"},
		{"127.8.8.8:443", true, 0, "loopback"},
		{"[::1]:443", true, 0, "loopback"},
		{"[::ffff:127.0.0.1]:443", true, 0, "loopback"},
		{"[::127.0.0.1]:443", true, 0, "translated IPv4"},
		{"[64:ff9b::7f00:1]:443", true, 0, "translated IPv4"},
		{"169.254.169.254:80", true, 0, "link-local"},
		{"[fe80::1%lo]:80", true, 0, "link-local"},
		{"224.0.0.1:80", true, 0, "multicast"},
		{"[ff02::1]:80", true, 0, "multicast"},
		{"0.0.0.0:80", true, 0, "unspecified"},
		{"0.1.2.3:80", true, 0, "unspecified"},
		{"[::]:80", true, 0, "unspecified"},
		{"255.255.255.255:80", true, 0, "broadcast"},
		{"10.9.1.2:80", true, 0, "10.9.1.2 lies in 10.9.0.0/16, which this host's settings deny"},
		{"10.8.1.2:80", true, 0, ""},
		{"192.168.1.2:80", true, 0, "192.168.1.2 lies in 192.168.0.0/16: processes of other sites are not looked for on private networks"},
		{"localhost:80", true, 0, `"localhost:80" is not an address:port`},
	} {
		if tc.named {
			a.name(tc.addr, true, epoch0)
		}
		_, err := a.check(tc.addr, epoch0.Add(tc.after))
		switch {
		case tc.want == "" && err != nil:
			t.Errorf("%s: %v", tc.addr, err)
		case tc.want != "" && (!errors.Is(err, overlay.ErrForbidden) || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s: %v, want %q", tc.addr, err, tc.want)
		}
	}
}

func TestCarriesAreBoundedAndTakenOnce(t *testing.T) {
	c := newCarries(Limits{Pending: 2, PendingPerNode: 1})
	v := new(carry)
	if err := c.add(wire.ID{1}, v); err != nil {
		t.Fatal(err)
	}
	if err := c.add(wire.ID{2}, v); !errors.Is(err, overlay.ErrOverloaded) || !strings.Contains(err.Error(), "limits.pending_per_node") {
		t.Errorf("one too many: %v", err)
	}
	if err := c.add(wire.ID{3}, &carry{link: link{node: "n2"}}); err != nil {
		t.Errorf("another node's: %v", err)
	}
	if c.take(wire.ID{1}) != v || c.take(wire.ID{1}) != nil {
		t.Error("not taken once")
	}
}

func TestReturns(t *testing.T) {
	r := newReturns(Limits{Pending: 2, PendingPerNode: 1})
	id := wire.ID{1}
	if err := r.add(id, returning{proc(3), "n1", epoch0.Add(time.Minute)}, epoch0); err != nil {
		t.Fatal(err)
	}
	if err := newReturnsWith(id).add(id, returning{proc(4), "n1", epoch0.Add(time.Minute)}, epoch0); !errors.Is(err, overlay.ErrForbidden) {
		t.Errorf("an id twice: %v", err)
	}
	if err := r.add(wire.ID{2}, returning{node: "n1"}, epoch0); !errors.Is(err, overlay.ErrOverloaded) {
		t.Errorf("one too many: %v", err)
	}
	r.end(id, epoch0.Add(10*time.Second))
	if p, ok := r.find(id, epoch0.Add(9*time.Second)); !ok || p != proc(3) {
		t.Errorf("before its end: %v, %v", p, ok)
	}
	if _, ok := r.find(id, epoch0.Add(10*time.Second)); ok {
		t.Error("found after its end")
	}
	if err := r.add(wire.ID{2}, returning{node: "n1"}, epoch0.Add(10*time.Second)); err != nil {
		t.Errorf("the place of one that is over: %v", err)
	}
}

// newReturnsWith returns a table with room that holds id.
func newReturnsWith(id wire.ID) *returns {
	r := newReturns(Limits{Pending: 2})
	r.wait[id] = returning{proc(3), "n1", epoch0.Add(time.Minute)}
	return r
}
