package registry

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

func nameOf(name, port string, owner overlay.ProcessName, generation overlay.Generation) overlay.Publication {
	return overlay.Publication{Name: name, Port: port, Process: owner, Generation: generation}
}

func publish(t *testing.T, m *Registry, h Holder, p overlay.Publication) {
	t.Helper()
	if err := m.Publish(h, []overlay.Publication{p})[0]; err != nil {
		t.Fatal(err)
	}
}

// namesWorld is two sites, with ranks 0 and 1 of the job in the first.
func namesWorld(t *testing.T) *Registry {
	t.Helper()
	m := New(testLease, testLimits)
	join(t, m, "sitea", 1, zero)
	join(t, m, "siteb", 2, zero)
	register(t, m, 1, pointOf("sitea", rank(0), 5))
	register(t, m, 1, pointOf("sitea", rank(1), 5))
	return m
}

func mustFind(t *testing.T, m *Registry, name, port string) {
	t.Helper()
	if p, err := m.LookupName(t.Context(), name, false); err != nil || p.Port != port {
		t.Errorf("%s: %q, %v; want %q", name, p.Port, err, port)
	}
}

func mustNotFind(t *testing.T, m *Registry, name, text string) {
	t.Helper()
	_, err := m.LookupName(t.Context(), name, false)
	wantErr(t, name, err, overlay.ErrUnknownName, text)
}

func TestANameBelongsToOneProcess(t *testing.T) {
	m := namesWorld(t)
	mustNotFind(t, m, "x", `name is not published: "x"`)
	publish(t, m, 1, nameOf("x", "p1", rank(0), 5))
	mustFind(t, m, "x", "p1")
	publish(t, m, 1, nameOf("x", "p2", rank(0), 5)) // its own name
	mustFind(t, m, "x", "p2")
	err := m.Publish(1, []overlay.Publication{nameOf("x", "p3", rank(1), 5)})[0]
	wantErr(t, "another's", err, overlay.ErrNameTaken,
		fmt.Sprintf(`name is published by another process now: "x" belongs to rank 0 of job %s until that unpublishes it or ends; choose another name`, testJob))
	wantErr(t, "unpublish another's", m.Unpublish(1, nameOf("x", "", rank(1), 5)), overlay.ErrUnknownName,
		fmt.Sprintf(`name is not published: "x" belongs to rank 0 of job %s`, testJob))
	mustFind(t, m, "x", "p2")
	if err := m.Unpublish(1, nameOf("x", "", rank(0), 5)); err != nil {
		t.Error(err)
	}
	mustNotFind(t, m, "x", `name is not published: "x"`)
	publish(t, m, 1, nameOf("x", "p3", rank(1), 5))
	mustFind(t, m, "x", "p3")
	if n := m.Inventory().Names; n != 1 {
		t.Errorf("%d names", n)
	}
}

// Only the session that registered a process publishes for it.
func TestNamesOfOtherSitesProcesses(t *testing.T) {
	m := namesWorld(t)
	for _, tc := range []struct {
		what   string
		holder Holder
		p      overlay.Publication
		class  error
	}{
		{"another site", 2, nameOf("x", "p", rank(0), 5), overlay.ErrUnknownProcess},
		{"no site", 9, nameOf("x", "p", rank(0), 5), overlay.ErrUnknownSite},
		{"another life", 1, nameOf("x", "p", rank(0), 4), overlay.ErrStale},
		{"nobody", 1, nameOf("x", "p", rank(7), 5), overlay.ErrUnknownProcess},
	} {
		for call, err := range map[string]error{"publish": m.Publish(tc.holder, []overlay.Publication{tc.p})[0], "unpublish": m.Unpublish(tc.holder, tc.p)} {
			if err == nil || !strings.HasPrefix(err.Error(), tc.class.Error()) {
				t.Errorf("%s by %s: %v, want %v", call, tc.what, err, tc.class)
			}
		}
	}
}

// A name is removed with its process, however that ends.
func TestANameEndsWithItsProcess(t *testing.T) {
	for _, tc := range []struct {
		what string
		end  func(t *testing.T, m *Registry)
		died string
	}{
		{"withdrawn", func(t *testing.T, m *Registry) { m.Withdraw(1, rank(0), 5) }, ""},
		{"died", func(t *testing.T, m *Registry) { m.Died(1, rank(0), 5) }, fmt.Sprintf("; rank 0 of job %s, which had published it, has died", testJob)},
		{"another life", func(t *testing.T, m *Registry) { register(t, m, 1, pointOf("sitea", rank(0), 6)) }, ""},
		{"another life elsewhere", func(t *testing.T, m *Registry) { register(t, m, 2, pointOf("siteb", rank(0), 6)) }, ""},
		{"the site's lease", func(t *testing.T, m *Registry) {
			m.Leave(1, zero)
			mustFind(t, m, "x", "p")
			m.Expire(at(testLease))
		}, ""},
	} {
		t.Run(tc.what, func(t *testing.T) {
			m := namesWorld(t)
			publish(t, m, 1, nameOf("x", "p", rank(0), 5))
			tc.end(t, m)
			mustNotFind(t, m, "x", `name is not published: "x"`+tc.died)
			if len(m.names.perJob)+len(m.names.perOwner) > 0 {
				t.Errorf("left behind: %v, %v", m.names.perJob, m.names.perOwner)
			}
			join(t, m, "sitea", 3, at(testLease))
			register(t, m, 3, pointOf("sitea", rank(1), 5))
			publish(t, m, 3, nameOf("x", "again", rank(1), 5))
			mustFind(t, m, "x", "again")
		})
	}
}

// A frontal that rejoins determines which names are left.
func TestNamesThatAreNotPublishedAgain(t *testing.T) {
	m := namesWorld(t)
	publish(t, m, 1, nameOf("x", "p", rank(0), 5))
	publish(t, m, 1, nameOf("y", "p", rank(0), 5))
	join(t, m, "sitea", 3, zero)
	register(t, m, 3, pointOf("sitea", rank(0), 5))
	publish(t, m, 3, nameOf("y", "p", rank(0), 5))
	mustFind(t, m, "x", "p")
	m.Expire(at(testLease))
	mustNotFind(t, m, "x", `name is not published: "x"`)
	mustFind(t, m, "y", "p")
}

func TestNamesHaveBounds(t *testing.T) {
	m := namesWorld(t)
	for i := range overlay.MaxNamesPerJob {
		publish(t, m, 1, nameOf(fmt.Sprint("n", i), "p", rank(uint32(i%2)), 5))
	}
	err := m.Publish(1, []overlay.Publication{nameOf("one more", "p", rank(0), 5)})[0]
	wantErr(t, "one more", err, overlay.ErrOverloaded, fmt.Sprintf("overloaded: job %s has published 64 names, the limit for a job", testJob))
	if err := m.Unpublish(1, nameOf("n0", "", rank(0), 5)); err != nil {
		t.Error(err)
	}
	publish(t, m, 1, nameOf("one more", "p", rank(0), 5))
	for i := range 3 * maxObituary {
		name := fmt.Sprint("mortal", i)
		register(t, m, 2, pointOf("siteb", overlay.ProcessName{Job: otherJob}, overlay.Generation(i)))
		publish(t, m, 2, nameOf(name, "p", overlay.ProcessName{Job: otherJob}, overlay.Generation(i)))
		m.Died(2, overlay.ProcessName{Job: otherJob}, overlay.Generation(i))
	}
	if len(m.names.obituaries) != maxObituary || len(m.names.oldest) != maxObituary {
		t.Errorf("%d obituaries, %d in order", len(m.names.obituaries), len(m.names.oldest))
	}
}

func TestWaitingForAName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := namesWorld(t)
		found := make(chan string)
		for range 3 {
			go func() {
				p, err := m.LookupName(t.Context(), "x", true)
				found <- fmt.Sprint(p.Port, err)
			}()
		}
		synctest.Wait()
		if n := m.Inventory().Waiting; n != 3 {
			t.Errorf("%d wait", n)
		}
		publish(t, m, 1, nameOf("x", "p", rank(0), 5))
		for range 3 {
			if got := <-found; got != "p<nil>" {
				t.Error(got)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := m.LookupName(ctx, "y", true)
		wantErr(t, "in vain", err, overlay.ErrUnknownName, `name is not published: "y"`)
		if n := m.Inventory().Waiting; n != 0 || len(m.names.waiters) != 0 {
			t.Errorf("%d wait, for %v", n, m.names.waiters)
		}
	})
}

// The names of one site are bounded separately, and removed names make room.
func TestNamesOfASite(t *testing.T) {
	n := newNames(2)
	publish := func(site overlay.SiteID, rank uint32) error {
		p := overlay.Publication{Name: fmt.Sprint(site, rank), Process: overlay.ProcessName{Job: testJob, Rank: rank}}
		return n.publish(p, site, 1)
	}
	for rank := range uint32(2) {
		if err := publish("greedy", rank); err != nil {
			t.Fatal(err)
		}
	}
	wantErr(t, "a third", publish("greedy", 2), overlay.ErrOverloaded, "overloaded: the limit of 2 published names for greedy is reached (limits.names_per_site); try again later")
	if err := publish("other", 3); err != nil {
		t.Errorf("another site: %v", err)
	}
	n.ended(overlay.ProcessName{Job: testJob, Rank: 1}, true)
	if err := publish("greedy", 4); err != nil {
		t.Errorf("after one has gone: %v", err)
	}
}
