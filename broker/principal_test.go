package broker

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/ticket"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// Whom the ends of a link serve reaches the target's side, the proxy that knows
// such tickets, and the status.
func TestPrincipalsReachEverybody(t *testing.T) {
	told := make(chan *controlpb.Introduction, 1)
	next := events(accepted, connected)
	g := newGrid(t)
	g.start()
	b := g.frontal(closedB, nil)
	c := g.frontal(closedC, func(in *controlpb.Introduction, s grpc.ServerStreamingServer[controlpb.IntroduceEvent]) error {
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
		list, err := introduce(g.ctx(), b, relayRequest())
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
			if err := checker.Check(tk, time.Now()); err != nil || tk.Principal != want {
				t.Errorf("named %v: the ticket is for %v (%v), want %v", named, tk.Principal, err, want)
			}
		}
	}
	want := []JobPrincipal{{"siteb", asker.Principal, 1}, {"sitec", target.Principal, 1}}
	if jobs := g.b.Status().Jobs; len(jobs) != 1 || !slices.Equal(jobs[0].For, want) {
		t.Errorf("the status has %+v, want %+v", jobs, want)
	}
}
