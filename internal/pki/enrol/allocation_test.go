package enrol

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/overlay"
)

// scheduler makes the grid's CA issue a site's scheduler certificate.
func (g *grid) scheduler(site string) *ca.Scheduler {
	g.t.Helper()
	f, err := g.ca.Write(filepath.Join(g.dir, "scheduler-"+site), control.Identity{Role: control.RoleScheduler, Site: overlay.SiteID(site)}, time.Now().Add(50*time.Minute))
	if err != nil {
		g.t.Fatal(err)
	}
	s, err := ca.LoadScheduler(f.Cert, f.Key, f.CA)
	if err != nil {
		g.t.Fatal(err)
	}
	return s
}

func must(t *testing.T, text string, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

var ofAlice = ca.Allocation{ID: "4711", Nodes: "n[1-3],gpu7", Account: "alice"}

// Each node of an allocation enrols once, with its own name, for the allocation's account and until
// its end, whether the CA's administrator or the site's scheduler signed the token.
func TestAllocationEnrols(t *testing.T) {
	g := newGrid(t, "tg")
	ends := time.Now().Add(10 * time.Minute).Truncate(time.Second)
	s := g.scheduler("sitea")
	byScheduler, err := s.Token(ofAlice, ends, time.Now())
	tokens := map[string]string{"scheduler": must(t, byScheduler, err)}
	byOwner, err := g.ca.Token(ca.AllocationToken("sitea", ca.Allocation{ID: "4712", Nodes: "n[1-3],gpu7", Account: "alice"}, ends), time.Now())
	tokens["owner"] = must(t, byOwner, err)
	for by, token := range tokens {
		read, err := ca.ReadToken(token)
		if err != nil {
			t.Fatal(err)
		}
		job := read.Allocation.ID
		for _, host := range []string{"n1", "gpu7"} {
			got, err := g.ask(token, host)
			if err != nil {
				t.Fatalf("%s, %s: %v", by, host, err)
			}
			c := g.credentials(got)
			if id := c.Identity().String(); id != "helper sitea/alloc-"+job+"."+host {
				t.Errorf("%s: enrolled as %s", by, id)
			}
			if !c.Leaf().NotAfter.Equal(ends) || control.AccountOf(c.Leaf()) != "alice" {
				t.Errorf("%s: valid until %v, want %v, for account %q", by, c.Leaf().NotAfter, ends, control.AccountOf(c.Leaf()))
			}
			_, err = g.server.Renew(got.Chain)
			refused(t, "renewal", err, "is not renewed")
		}
		_, err = g.ask(token, "n1")
		refused(t, "a node again", err, "the token was used by helper sitea/alloc-"+job+".n1 already")
		_, err = g.ask(token, "n4")
		refused(t, "a node outside the list", err, "host n4 is not one of allocation "+job)
	}
	g.stop()
	g.start(true)
	_, err = g.ask(tokens["scheduler"], "gpu7")
	refused(t, "a node again after a restart", err, "used by helper sitea/alloc-4711.gpu7 already")

	// Revoking the allocation covers both existing and future enrolments.
	got, err := g.ask(tokens["scheduler"], "n2")
	if err != nil {
		t.Fatal(err)
	}
	g.revoke(time.Now(), "helper sitea/alloc-4711")
	if _, err := g.creds.Verify(got.Chain); err == nil || !strings.Contains(err.Error(), "was revoked at") {
		t.Errorf("after the allocation was revoked: %v", err)
	}
	_, err = g.ask(tokens["scheduler"], "n3")
	refused(t, "another node after that", err, "was revoked at")
	if _, err := g.ask(tokens["owner"], "n3"); err != nil {
		t.Errorf("a node of the other allocation: %v", err)
	}
}

// What a token of an allocation does not permit, as the broker decides it.
func TestAllocationRefusals(t *testing.T) {
	g := newGrid(t, "tg")
	now := time.Now()
	sitea, siteb := g.scheduler("sitea"), g.scheduler("siteb")
	enrol := func(token, identity string) error {
		id, err := control.ParseIdentity(identity)
		if err != nil {
			t.Fatal(err)
		}
		request, _, err := ca.Request(id)
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = g.server.Enrol(t.Context(), token, request)
		return err
	}
	token, err := sitea.Token(ofAlice, now.Add(10*time.Minute), now)
	good := must(t, token, err)
	for _, c := range []struct{ what, identity, want string }{
		{"a permanent node", "helper sitea/n1", "the token is for allocation 4711, not for node n1"},
		{"another allocation's node", "helper sitea/alloc-4712.n1", "the token is for allocation 4711, not for node alloc-4712.n1"},
		{"a node outside the list", "helper sitea/alloc-4711.n4", "host n4 is not one of allocation 4711 (n[1-3],gpu7)"},
		{"a longer name", "helper sitea/alloc-4711.n1.x", "host n1.x is not one of"},
		{"another site's node", "helper siteb/alloc-4711.n1", "the token is for allocation 4711 of sitea, not for helper siteb/alloc-4711.n1"},
		{"the site's frontal", "frontal sitea", "the token is for allocation 4711 of sitea, not for frontal sitea"},
	} {
		refused(t, c.what, enrol(good, c.identity), c.want)
	}

	old, err := sitea.Token(ofAlice, now.Add(-time.Minute), now.Add(-time.Hour))
	refused(t, "after the end", enrol(must(t, old, err), "helper sitea/alloc-4711.n1"), "the token expired at")

	// Signed without authority: the chain of one token with the claims of another.
	other, err := siteb.Token(ofAlice, now.Add(10*time.Minute), now)
	a, b := strings.Split(good, "."), strings.Split(must(t, other, err), ".")
	refused(t, "with another site's signature and chain", enrol(a[0]+"."+a[1]+"."+b[2]+"."+b[3], "helper sitea/alloc-4711.n1"), "the scheduler of siteb signed it; it may for its own site's allocations")
	refused(t, "with another signature", enrol(a[0]+"."+a[1]+"."+b[2]+"."+a[3], "helper sitea/alloc-4711.n1"), "forged or damaged")
	plain := strings.Split(g.token("helper sitea/n1", nil), ".")
	refused(t, "another token with a scheduler's chain", enrol(plain[0]+"."+plain[1]+"."+a[2]+"."+a[3], "helper sitea/n1"), "scheduler sitea signed the token; a scheduler signs those of its site's allocations")
	long, err := sitea.Token(ofAlice, now.Add(2*time.Hour), now)
	refused(t, "longer than the scheduler's certificate", enrol(must(t, long, err), "helper sitea/alloc-4711.n1"), "the token outlives the certificate of its scheduler")

	// An ordinary token does not permit the name of an allocation's node.
	any := g.token("helper sitea/*", nil)
	refused(t, "any node as one of an allocation", enrol(any, "helper sitea/alloc-4711.n1"), "such names are those of allocations' nodes")

	g.revoke(now.Add(time.Second), "scheduler sitea")
	refused(t, "of a revoked scheduler", enrol(good, "helper sitea/alloc-4711.n1"), "who signed the token")
}
