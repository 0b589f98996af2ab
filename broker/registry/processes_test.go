package registry

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/broker/decide"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/overlay"
)

const testLease = time.Minute

var (
	testLimits = Limits{Sites: 10, Processes: 100, PerSite: 100, Waiting: 100}
	testKey    = keyOf("run:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8")
	testJob    = testKey.ID()
	otherKey   = keyOf("run:HxECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8")
	otherJob   = otherKey.ID()
	zero       = time.Unix(1_000_000, 0)
)

func at(d time.Duration) time.Time { return zero.Add(d) }

func rank(r uint32) overlay.ProcessName { return overlay.ProcessName{Job: testJob, Rank: r} }

func keyOf(text string) jobkey.Key {
	k, err := jobkey.Parse(text)
	if err != nil {
		panic(err)
	}
	return k
}

func pointOf(site overlay.SiteID, name overlay.ProcessName, generation overlay.Generation) overlay.AccessPoint {
	return overlay.AccessPoint{
		Process: name, Generation: generation, Node: overlay.NodeID{Site: site, Name: "n1"},
		Local: netip.MustParseAddrPort("10.1.0.1:4001"), Public: netip.MustParseAddrPort("192.0.2.1:4001"),
	}
}

func lookup(m *Registry, name overlay.ProcessName) Entry {
	return m.Lookup(nil, []overlay.ProcessName{name})[0]
}

func join(t *testing.T, m *Registry, site overlay.SiteID, h Holder, now time.Time) {
	t.Helper()
	if _, err := m.Join(overlay.SiteProfile{Site: site}, h, now); err != nil {
		t.Fatal(err)
	}
}

func register(t *testing.T, m *Registry, h Holder, p overlay.AccessPoint) {
	t.Helper()
	if err := m.Register(h, []overlay.AccessPoint{p})[0]; err != nil {
		t.Fatal(err)
	}
}

func wantErr(t *testing.T, what string, err, class error, text string) {
	t.Helper()
	if !errors.Is(err, class) || err.Error() != text {
		t.Errorf("%s:\n got %v\nwant %s (class %v)", what, err, text, class)
	}
}

func TestRegisterGenerations(t *testing.T) {
	m := New(testLease, testLimits)
	join(t, m, "sitea", 1, zero)
	join(t, m, "siteb", 2, zero)
	register(t, m, 1, pointOf("sitea", rank(0), 5))
	register(t, m, 1, pointOf("sitea", rank(0), 5)) // renewed
	err := m.Register(1, []overlay.AccessPoint{pointOf("sitea", rank(0), 4)})[0]
	wantErr(t, "older life", err, overlay.ErrStale,
		fmt.Sprintf("access point is stale: rank 0 of job %s is registered in generation 5 by sitea; generation 4 from sitea is not newer", testJob))
	err = m.Register(2, []overlay.AccessPoint{pointOf("siteb", rank(0), 5)})[0]
	wantErr(t, "same life elsewhere", err, overlay.ErrStale,
		fmt.Sprintf("access point is stale: rank 0 of job %s is registered in generation 5 by sitea; generation 5 from siteb is not newer", testJob))
	if e := lookup(m, rank(0)); e.Point != pointOf("sitea", rank(0), 5) {
		t.Errorf("entry %+v", e)
	}
	register(t, m, 2, pointOf("siteb", rank(0), 6))
	if e := lookup(m, rank(0)); e.Point != pointOf("siteb", rank(0), 6) || e.Site.Profile.Site != "siteb" {
		t.Errorf("after the move: %+v", e)
	}
	inv := m.Inventory()
	if inv.Sites[0].Processes != 0 || inv.Sites[1].Processes != 1 {
		t.Errorf("counts after the move: %+v", inv.Sites)
	}
	m.Withdraw(1, rank(0), 6) // not the owner's session
	m.Withdraw(2, rank(0), 5) // an older generation
	if lookup(m, rank(0)).Site == nil {
		t.Error("withdrawn by who may not, or in an older generation")
	}
	m.Withdraw(2, rank(0), 6)
	if lookup(m, rank(0)).Site != nil || len(m.Inventory().Jobs) != 0 {
		t.Error("still there after it was withdrawn")
	}
}

// A query for a process that died returns that, until the process registers again or its job is
// over.
func TestDied(t *testing.T) {
	m := New(testLease, testLimits)
	join(t, m, "sitea", 1, zero)
	register(t, m, 1, pointOf("sitea", rank(0), 5))
	register(t, m, 1, pointOf("sitea", rank(1), 5))
	m.Died(1, rank(1), 4) // an older generation
	if e := lookup(m, rank(1)); e.Died || e.Site == nil {
		t.Errorf("died in an older generation: %+v", e)
	}
	m.Died(1, rank(1), 5)
	if e := lookup(m, rank(1)); !e.Died || e.Site != nil {
		t.Errorf("after the death: %+v", e)
	}
	if _, err := m.Await(t.Context(), rank(1)); !errors.Is(err, overlay.ErrEnded) {
		t.Errorf("waiting for the dead: %v", err)
	}
	register(t, m, 1, pointOf("sitea", rank(1), 6))
	m.Withdraw(1, rank(1), 6)
	if e := lookup(m, rank(1)); e.Died {
		t.Error("it came back and left, and still counts as dead")
	}
	m.Died(1, rank(0), 5)
	if e := lookup(m, rank(0)); e.Died || len(m.jobs) != 0 {
		t.Errorf("a job of which nobody is left is remembered: %+v", e)
	}
}

// For a process that left, the registry keeps its former place, and for one that was refused the
// reason, until it registers or its job is over; waiters return at once.
func TestAbsent(t *testing.T) {
	m := New(testLease, Limits{Sites: 2, Processes: 3, PerSite: 3, Waiting: 10})
	join(t, m, "sitea", 1, zero)
	why := errors.New("no grant")
	m.Refused(rank(1), why)
	if e := lookup(m, rank(1)); e.Refused != nil {
		t.Error("a job of which nobody is registered is remembered")
	}
	for i := range uint32(3) {
		register(t, m, 1, pointOf("sitea", rank(i), 5))
	}
	m.Withdraw(1, rank(1), 5)
	m.Died(1, rank(2), 5)
	for i := range uint32(2) {
		if e := lookup(m, rank(1+i)); e.Site != nil || e.Former == nil || *e.Former != pointOf("sitea", rank(1+i), 5) {
			t.Errorf("rank %d left: %+v", 1+i, e)
		}
	}
	m.Refused(rank(0), why) // which is registered
	if e := lookup(m, rank(0)); e.Site == nil || e.Refused != nil {
		t.Errorf("refused while it is registered: %+v", e)
	}
	m.Refused(rank(1), why)
	if e, err := m.Await(t.Context(), rank(1)); e.Refused != why || e.Former != nil || err != nil {
		t.Errorf("waiting for one that was refused: %+v, %v", e, err)
	}
	m.Refused(rank(3), why)
	m.Refused(rank(4), why)
	if e := lookup(m, rank(4)); e.Refused != nil || m.absent != 3 {
		t.Errorf("%d are remembered, and %+v", m.absent, e)
	}
	register(t, m, 1, pointOf("sitea", rank(1), 6))
	if e := lookup(m, rank(1)); e.Former != nil || e.Refused != nil || m.absent != 2 {
		t.Errorf("it came back: %+v of %d", e, m.absent)
	}
	m.Withdraw(1, rank(0), 5)
	m.Withdraw(1, rank(1), 6)
	if e := lookup(m, rank(1)); e.Former != nil || m.absent != 0 || len(m.jobs) != 0 {
		t.Errorf("of a job that is over: %+v of %d in %d", e, m.absent, len(m.jobs))
	}
}

func TestRegisterRefusals(t *testing.T) {
	m := New(testLease, Limits{Sites: 2, Processes: 3, PerSite: 2})
	err := m.Register(1, []overlay.AccessPoint{pointOf("sitea", rank(0), 1)})[0]
	wantErr(t, "before joining", err, overlay.ErrUnknownSite, "site is not connected: sitea has not joined on this session, or joined again on another")
	join(t, m, "sitea", 1, zero)
	join(t, m, "siteb", 2, zero)
	_, err = m.Join(overlay.SiteProfile{Site: "sitec"}, 3, zero)
	wantErr(t, "a third site", err, overlay.ErrOverloaded, "overloaded: the broker already knows 2 sites, its limit")
	err = m.Register(1, []overlay.AccessPoint{pointOf("siteb", rank(0), 1)})[0]
	wantErr(t, "foreign node", err, overlay.ErrForbidden,
		fmt.Sprintf("not permitted: rank 0 of job %s runs at siteb/n1, but this session is that of sitea", testJob))
	for r := range uint32(2) {
		register(t, m, 1, pointOf("sitea", rank(r), 1))
	}
	errs := m.Register(1, []overlay.AccessPoint{pointOf("sitea", rank(1), 2), pointOf("sitea", rank(2), 1)})
	if errs[0] != nil {
		t.Errorf("renewing at the limit: %v", errs[0])
	}
	wantErr(t, "site's limit", errs[1], overlay.ErrOverloaded, "overloaded: sitea already has 2 processes registered, the limit for a site")
	register(t, m, 2, pointOf("siteb", rank(2), 1))
	err = m.Register(2, []overlay.AccessPoint{pointOf("siteb", rank(3), 1)})[0]
	wantErr(t, "broker's limit", err, overlay.ErrOverloaded, "overloaded: 3 processes are registered, the broker's limit")
}

// A frontal that rejoins within the lease loses only what it does not register again.
func TestLease(t *testing.T) {
	m := New(testLease, testLimits)
	join(t, m, "sitea", 1, zero)
	register(t, m, 1, pointOf("sitea", rank(0), 1))
	register(t, m, 1, pointOf("sitea", rank(1), 1))
	if n := m.Expire(at(time.Hour)); n != 0 {
		t.Errorf("%d processes of a present site expired", n)
	}
	m.Leave(1, at(time.Hour))
	if s, err := m.Site("sitea"); err != nil || s.Holder != 0 || !s.Since.Equal(at(time.Hour)) {
		t.Errorf("away: %+v, %v", s, err)
	}
	if n := m.Expire(at(time.Hour + testLease - 1)); n != 0 || lookup(m, rank(0)).Site == nil {
		t.Errorf("%d processes expired within the lease", n)
	}
	join(t, m, "sitea", 2, at(time.Hour+testLease/2))
	register(t, m, 2, pointOf("sitea", rank(0), 1))
	if n := m.Expire(at(time.Hour + testLease)); n != 0 {
		t.Errorf("%d processes expired though the site came back", n)
	}
	if n := m.Expire(at(time.Hour + testLease/2 + testLease)); n != 1 {
		t.Errorf("%d processes expired, want the one not registered again", n)
	}
	if lookup(m, rank(0)).Site == nil || lookup(m, rank(1)).Site != nil {
		t.Error("the wrong one expired")
	}
	m.Leave(2, at(2*time.Hour))
	if n := m.Expire(at(2*time.Hour + testLease)); n != 1 {
		t.Errorf("%d expired at the end of the lease, want 1", n)
	}
	_, err := m.Site("sitea")
	wantErr(t, "forgotten site", err, overlay.ErrUnknownSite, "site is not connected: sitea has not joined; does its frontal run, and reach the broker?")
}

func TestSecondFrontalReplacesTheFirst(t *testing.T) {
	m := New(testLease, testLimits)
	join(t, m, "sitea", 1, zero)
	if old, err := m.Join(overlay.SiteProfile{Site: "sitea"}, 1, zero); old != 0 || err != nil {
		t.Errorf("a changed profile replaced session %d, %v", old, err)
	}
	if old, err := m.Join(overlay.SiteProfile{Site: "sitea"}, 2, zero); old != 1 || err != nil {
		t.Errorf("replaced session %d, %v, want 1", old, err)
	}
	m.Leave(1, zero) // its end comes later and has no effect
	if s, err := m.Site("sitea"); err != nil || s.Holder != 2 {
		t.Errorf("site %+v, %v", s, err)
	}
}

func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(testLease, testLimits)
		join(t, m, "sitea", 1, zero)
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				if e, err := m.Await(t.Context(), rank(7)); err != nil || e.Point.Generation != 3 {
					t.Errorf("%+v, %v", e, err)
				}
			})
		}
		synctest.Wait() // all five are waiting
		if n := m.Inventory().Waiting; n != 5 {
			t.Errorf("%d wait", n)
		}
		register(t, m, 1, pointOf("sitea", rank(7), 3))
		wg.Wait()
		if e, err := m.Await(t.Context(), rank(7)); err != nil || e.Site == nil {
			t.Errorf("registered already: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := m.Await(ctx, rank(8))
		wantErr(t, "nobody came", err, overlay.ErrUnknownProcess,
			fmt.Sprintf("process is not registered: waited for rank 8 of job %s, which did not register", testJob))
		m.Withdraw(1, rank(7), 3)
		if inv := m.Inventory(); inv.Waiting != 0 || len(inv.Jobs) != 0 || len(m.jobs) != 0 {
			t.Errorf("left behind: %+v, %d jobs", inv, len(m.jobs))
		}
	})
}

// Waiters for a process that registers and leaves at once, or is refused, are woken.
func TestAwaitOfOneThatIsGone(t *testing.T) {
	why := errors.New("no grant")
	for name, happen := range map[string]func(m *Registry){
		"left":    func(m *Registry) { register(t, m, 1, pointOf("sitea", rank(7), 3)); m.Withdraw(1, rank(7), 3) },
		"refused": func(m *Registry) { m.Refused(rank(7), why) },
	} {
		synctest.Test(t, func(t *testing.T) {
			m := New(testLease, testLimits)
			join(t, m, "sitea", 1, zero)
			register(t, m, 1, pointOf("sitea", rank(0), 3))
			got := make(chan Entry, 1)
			go func() {
				e, err := m.Await(t.Context(), rank(7))
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				got <- e
			}()
			synctest.Wait()
			happen(m)
			if e := <-got; (e.Site != nil) != (name == "left") || (e.Refused == why) != (name == "refused") {
				t.Errorf("%s: %+v", name, e)
			}
			if m.waiting != 0 {
				t.Errorf("%s: %d wait", name, m.waiting)
			}
		})
	}
}

func TestAwaitIsBounded(t *testing.T) {
	m := New(testLease, Limits{})
	_, err := m.Await(t.Context(), rank(0))
	wantErr(t, "no room to wait", err, overlay.ErrOverloaded, "overloaded: 0 callers wait for processes, the broker's limit")
}

// The memory of ten thousand processes, without sessions.
func TestMemoryPerProcess(t *testing.T) {
	const n = 10_000
	heap := func() uint64 {
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	before := heap()
	m := New(testLease, Limits{Sites: 50, Processes: n, PerSite: n})
	for s := range 50 {
		site := overlay.SiteID(fmt.Sprintf("site%d", s))
		join(t, m, site, Holder(s+1), zero)
		for r := range n / 50 {
			p := pointOf(site, overlay.ProcessName{Job: overlay.JobID(strings.Clone(string(testJob))), Rank: uint32(s*n/50 + r)}, 1)
			p.Node.Name = fmt.Sprintf("node%d", r)
			register(t, m, Holder(s+1), p)
		}
	}
	per := (heap() - before) / n
	t.Logf("%d bytes a process", per)
	if per > 512 {
		t.Errorf("%d bytes a process", per)
	}
	runtime.KeepAlive(m)
}

func TestMemoryIsRaceFree(t *testing.T) {
	m, proxies := New(testLease, Limits{Sites: 10, Processes: 1000, PerSite: 1000, Waiting: 1000}), NewProxies(10)
	var wg sync.WaitGroup
	for g := range 4 {
		site, h := overlay.SiteID(fmt.Sprintf("site%d", g)), Holder(g+1)
		wg.Go(func() {
			for i := range 200 {
				now := at(time.Duration(i) * time.Minute)
				m.Join(overlay.SiteProfile{Site: site}, h, now)
				m.Register(h, []overlay.AccessPoint{pointOf(site, rank(uint32(i%8)), overlay.Generation(i))})
				proxies.Offer(proxyOffer(string(site), 443, 0, 10), h+100)
				proxies.Assign(LeastLoaded, Need{Proxy: decide.Need{Only443: true}})
				m.Lookup(nil, []overlay.ProcessName{rank(0), rank(1)})
				if i%10 == 0 {
					m.Leave(h, now)
					m.Leave(h+100, now)
				}
				m.Expire(now)
				m.Withdraw(h, rank(uint32(i%8)), overlay.Generation(i))
				m.Inventory()
			}
		})
		wg.Go(func() {
			for i := range 200 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Microsecond)
				m.Await(ctx, rank(uint32(i%8)))
				cancel()
			}
		})
	}
	wg.Wait()
	for g := range 4 {
		m.Leave(Holder(g+1), at(0))
		proxies.Leave(Holder(g+101), at(0))
	}
	m.Expire(at(24 * time.Hour))
	if m.processes != 0 || len(m.jobs) != 0 || len(m.sites) != 0 || len(m.holders) != 0 || len(proxies.proxies) != 0 || m.waiting != 0 {
		t.Errorf("left behind: %d processes, %d jobs, %d sites, %d holders, %d proxies, %d waiting",
			m.processes, len(m.jobs), len(m.sites), len(m.holders), len(proxies.proxies), m.waiting)
	}
}

func BenchmarkLookup(b *testing.B) {
	m := New(testLease, Limits{Sites: 1, Processes: 10000, PerSite: 10000})
	m.Join(overlay.SiteProfile{Site: "sitea"}, 1, zero)
	for r := range uint32(10000) {
		m.Register(1, []overlay.AccessPoint{pointOf("sitea", rank(r), 1)})
	}
	var buf [1]Entry
	b.ReportAllocs()
	for i := uint32(0); b.Loop(); i++ {
		m.Lookup(buf[:0], []overlay.ProcessName{rank(i % 10000)})
	}
}
