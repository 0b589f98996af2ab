package broker

import (
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/pki/ticket"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// TestReserve: both ends get a ticket for the same relay, which is valid for as long as they are
// told, and neither end dials it.
func TestReserve(t *testing.T) {
	told := make(chan *controlpb.Signal, 1)
	g, b, _ := pairGrid(t, func(in *controlpb.Signal, s grpc.ServerStreamingServer[controlpb.SignalEvent]) error {
		if s != nil {
			t.Error("the target was signalled")
		}
		told <- in
		return nil
	}, nil)
	g.proxy("p1", "192.0.2.7:443")
	got, err := b.directory.Reserve(g.ctx(), relayRequest())
	if err != nil {
		t.Fatalf("%v\n%s", err, g.logs)
	}
	in := testkit.Receive(t, "the target's end", told)
	if in.AskerSite != "siteb" || in.AskerNode != "n1" || in.AskerGeneration != 1 || in.TargetGeneration != 3 || in.LifeMs != got.LifeMs {
		t.Errorf("the target was told %v", in)
	}
	if got.TargetSite != "sitec" || got.TargetNode != "n1" || got.Reason == "" || got.LifeMs != uint32(ticket.MaxLife.Milliseconds()) {
		t.Errorf("the asker was told %v", got)
	}
	for end, a := range []*controlpb.Assignment{got.Relay, in.Relay} {
		frame, err := wire.Read(strings.NewReader(string(a.Ticket)))
		if err != nil {
			t.Fatal(err)
		}
		tk := frame.(*wire.Ticket)
		if tk.End != uint8(end) || string(tk.Link[:]) != string(linkID) || tk.Asker != 0 || tk.Target != 1 || a.Proxy != "p1" {
			t.Errorf("end %d: ticket %+v for %s", end, tk, a.Proxy)
		}
		for _, after := range []time.Duration{0, ticket.MaxLife - time.Minute} {
			if err := ticket.NewChecker("p1", 100, ticket.Key(offerOf("", "").TicketKey)).Check(tk, proxyClock().Add(after)); err != nil {
				t.Errorf("end %d after %v: %v", end, after, err)
			}
		}
	}
	if logs := g.logs.String(); !strings.Contains(logs, "msg=reserve") || !strings.Contains(logs, "proxy=p1 link=30313233343536373839616263646566 result=reserved") {
		t.Errorf("no line about the reserve in:\n%s", logs)
	}
}

// TestNoReserve: what is refused to a signalling request is refused to a reserve, and a side that
// does not know of reserves has none.
func TestNoReserve(t *testing.T) {
	g := newGrid(t)
	g.start()
	b, c := g.frontal(closedB, nil), g.frontal(closedC, nil)
	g.register(b, pointOf("siteb", rank(0), 1))
	g.register(c, pointOf("sitec", rank(1), 3))
	ask := func(p *peer, change func(*controlpb.SignalRequest)) error {
		req := relayRequest()
		change(req)
		_, err := p.directory.Reserve(g.ctx(), req)
		return control.FromStatus(err)
	}
	as := func(*controlpb.SignalRequest) {}
	if err := ask(b, as); !errors.Is(err, overlay.ErrNoRelay) {
		t.Errorf("without a proxy: %v", err)
	}
	g.proxy("p1", "192.0.2.7:443")
	for what, tc := range map[string]struct {
		by     *peer
		change func(*controlpb.SignalRequest)
		class  error
	}{
		"a target of an older frontal": {b, as, wire.ErrVersion},
		"another site's process":       {c, as, overlay.ErrForbidden},
		"another life":                 {b, func(r *controlpb.SignalRequest) { r.TargetGeneration = 2 }, overlay.ErrStale},
		"another technique":            {b, func(r *controlpb.SignalRequest) { r.Technique = uint32(overlay.HolePunching) }, wire.ErrMalformed},
	} {
		if err := ask(tc.by, tc.change); !errors.Is(err, tc.class) {
			t.Errorf("%s: %v", what, err)
		}
	}
	noRelay := closedC
	noRelay.Forbidden = []overlay.Technique{overlay.Relay}
	if _, err := c.sites.Join(g.ctx(), joining(noRelay)); err != nil {
		t.Fatal(err)
	}
	if err := ask(b, as); !errors.Is(err, overlay.ErrNoPath) {
		t.Errorf("a site that forbids relays: %v", err)
	}
}
