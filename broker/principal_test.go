package broker

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-grid/isthmus/broker/registry"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/pki/grant"
	"github.com/isthmus-grid/isthmus/internal/pki/ticket"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// The principals of a link's ends reach the target's side, the proxy that supports such tickets,
// and the status.
func TestPrincipalsReachEverybody(t *testing.T) {
	told := make(chan *controlpb.Signal, 10)
	next := events(accepted, connected)
	g := newGrid(t)
	g.start()
	b := g.frontal(closedB, nil)
	c := g.frontal(closedC, func(in *controlpb.Signal, s grpc.ServerStreamingServer[controlpb.SignalEvent]) error {
		told <- in
		return next(in, s)
	})
	asker, target := pointOf("siteb", rank(0), 1), pointOf("sitec", rank(1), 3)
	asker.Principal, target.Principal = overlay.AccountAt("bob", "siteb"), overlay.AccountAt("carol", "sitec")
	g.register(b, asker)
	g.register(c, target)
	proxy := g.proxy("p1", "192.0.2.7:443")
	for _, named := range []bool{false, true} {
		offer := offerOf("p1", "192.0.2.7:443")
		offer.NamedTickets = named
		if _, err := proxy.relays.Offer(g.ctx(), offer); err != nil {
			t.Fatal(err)
		}
		list, err := signal(g.ctx(), b, relayRequest())
		if err != nil {
			t.Fatalf("%v\n%s", err, g.logs)
		}
		in := <-told
		from, errFrom := control.PrincipalFromPB(in.AskerPrincipal)
		to, errTo := control.PrincipalFromPB(in.TargetPrincipal)
		if from != asker.Principal || to != target.Principal || errFrom != nil || errTo != nil {
			t.Errorf("the target was told of %v (%v) and %v (%v)", from, errFrom, to, errTo)
		}
		want := overlay.Principal{}
		if named {
			want = asker.Principal
		}
		checker := ticket.NewChecker("p1", 100, ticket.Key(offer.TicketKey))
		for _, a := range []*controlpb.Assignment{list[0].Relay, in.Relay} {
			frame, err := wire.Read(strings.NewReader(string(a.Ticket)))
			if err != nil {
				t.Fatal(err)
			}
			tk := frame.(*wire.Ticket)
			if err := checker.Check(tk, proxyClock()); err != nil || tk.Principal != want {
				t.Errorf("named %v: the ticket is for %v (%v), want %v", named, tk.Principal, err, want)
			}
		}
	}
	want := []registry.JobPrincipal{{Site: "siteb", Principal: asker.Principal, Processes: 1}, {Site: "sitec", Principal: target.Principal, Processes: 1}}
	if jobs := g.b.Status().Jobs; len(jobs) != 1 || !slices.Equal(jobs[0].For, want) {
		t.Errorf("the status has %+v, want %+v", jobs, want)
	}
}

// A process whose grant has expired gets no new links, in either direction; its registration stays,
// and may be renewed.
func TestGrantIsOver(t *testing.T) {
	g, b, c := pairGrid(t, events(accepted, connected), nil)
	g.proxy("p1", "192.0.2.7:443")
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().Truncate(time.Second)
	text, err := grant.Issue(grant.Claims{Job: testJob, Project: "climate", Issued: now.Add(-time.Minute), Expires: now}, [][]byte{der}, key)
	if err != nil {
		t.Fatal(err)
	}
	judged := 0
	g.b.grants.holder = func([][]byte) (grant.Holder, error) {
		judged++
		return grant.Holder{User: "alice", Projects: []string{"climate"}}, nil
	}
	for _, at := range []time.Time{now.Add(-30 * time.Second), now.Add(-30*time.Second + rememberGrant/2), now.Add(-time.Second), now.Add(-time.Second)} {
		principal, until, err := g.b.grants.judge(string(text), testJob, at)
		if err != nil || !until.Equal(now) || principal != (overlay.Principal{User: "alice", Project: "climate"}) {
			t.Fatalf("%v until %v, %v", principal, until, err)
		}
	}
	if judged != 2 {
		t.Errorf("judged %d times, want at the beginning and when it was forgotten", judged)
	}
	g.b.grants.forget()
	if _, _, err := g.b.grants.judge(string(text), testJob, now.Add(-time.Second)); err != nil || judged != 3 {
		t.Errorf("judged %d times, %v; want once more after something was revoked", judged, err)
	}
	point := pointOf("siteb", rank(0), 1)
	point.Grant = string(text)
	register := func() error {
		t.Helper()
		r, err := b.directory.Register(g.ctx(), &controlpb.RegisterRequest{Points: []*controlpb.AccessPoint{control.RegistrationToPB(signed(point))}})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Faults) == 0 {
			return nil
		}
		return control.FaultErr(r.Faults[0])
	}
	if err := register(); !errors.Is(err, overlay.ErrForbidden) || !strings.Contains(err.Error(), "the grant of alice for climate expired at ") {
		t.Errorf("registered late: %v", err)
	}
	resolve := func(what, want string) {
		t.Helper()
		r, err := c.directory.Resolve(g.ctx(), question(rank(0)))
		if err != nil {
			t.Fatal(err)
		}
		if err := control.FaultErr(r.Answers[0].Fault); !errors.Is(err, overlay.ErrForbidden) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	g.b.registry.Withdraw(holderOf(t, g.b, b.id.Site), rank(0), 1) // an earlier generation
	if err := register(); err == nil {
		t.Error("registered late, again")
	}
	resolve("the other rank of one that was refused", "the grant of alice for climate expired at ")
	shown := point
	if err := g.b.read(&shown, now.Add(-time.Second)); err != nil || shown.Grant != "" {
		t.Fatalf("%+v, %v", shown, err)
	}
	holder := holderOf(t, g.b, b.id.Site)
	if errs := g.b.registry.Register(holder, []overlay.AccessPoint{shown}); errs[0] != nil {
		t.Fatal(errs[0])
	}
	if err := register(); err != nil {
		t.Errorf("renewed: %v", err)
	}
	const want = " works for alice for climate expired at "
	if err := control.FromStatus(signalErr(g.ctx(), b, relayRequest())); !errors.Is(err, overlay.ErrForbidden) || !strings.Contains(err.Error(), want) {
		t.Errorf("signalled: %v", err)
	}
	resolve("resolved", want)
	g.b.registry.Withdraw(holder, rank(0), 1)
	resolve("resolved after it left", want)
}

func holderOf(t *testing.T, b *Broker, site overlay.SiteID) registry.Holder {
	t.Helper()
	s, err := b.registry.Site(site)
	if err != nil {
		t.Fatal(err)
	}
	return s.Holder
}
