package broker

import (
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/broker/registry"
	"github.com/isthmus-grid/isthmus/internal/account/traffic"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// Proxies and frontals report the traffic that passed them; a proxy gets the sites of the links
// that it asks about, and a frontal can only report for its own site.
func TestCarried(t *testing.T) {
	g := newGrid(t)
	g.start()
	a, b := g.frontal(openA, nil), g.frontal(closedB, nil)
	g.register(a, pointOf("sitea", rank(0), 1))
	g.register(b, pointOf("siteb", rank(1), 4))
	p := g.peer(control.Identity{Role: control.RoleProxy, Name: "p1"}, nil)
	tell := func(p *peer, m *controlpb.TrafficRequest) (*controlpb.TrafficResponse, error) {
		return controlpb.NewTrafficClient(p.s.Conn()).Report(g.ctx(), m)
	}
	ab := &controlpb.PairTraffic{From: "sitea", To: "siteb", Bytes: 100, Links: 1, Waits: 2, Rule: "quota.rate", Rate: 8000}
	resp, err := tell(p, &controlpb.TrafficRequest{Life: 7, Pairs: []*controlpb.PairTraffic{ab}, Ends: []*controlpb.Ends{
		{Job: string(testJob), Asker: 1, Target: 0}, {Job: string(testJob), Asker: 0, Target: 9},
	}})
	if err != nil || len(resp.Sites) != 2 || resp.Sites[0].Asker != "siteb" || resp.Sites[0].Target != "sitea" || resp.Sites[1].Asker != "" {
		t.Errorf("%v, %v", resp, err)
	}
	if _, err := tell(a, &controlpb.TrafficRequest{Pairs: []*controlpb.PairTraffic{ab}}); err != nil {
		t.Error(err)
	}
	flows := g.b.Status().Traffic
	if len(flows) != 2 || flows[0].By != "frontal sitea" || flows[1].By != "proxy p1" || flows[1].Bytes != 100 || flows[1].Rule != "quota.rate" {
		t.Errorf("%+v", flows)
	}

	_, err = tell(a, &controlpb.TrafficRequest{Pairs: []*controlpb.PairTraffic{{From: "siteb", To: "sitec"}}})
	wantStatus(t, "of others", err, overlay.ErrForbidden, "not permitted: frontal sitea tells of bytes from siteb to sitec")
	_, err = tell(a, &controlpb.TrafficRequest{Ends: []*controlpb.Ends{{Job: string(testJob)}}})
	wantStatus(t, "asks", err, overlay.ErrForbidden, "not permitted: frontal sitea asks for the sites of links; a proxy may")
	_, err = tell(p, &controlpb.TrafficRequest{Pairs: []*controlpb.PairTraffic{ab, ab}})
	wantStatus(t, "twice", err, wire.ErrMalformed, "malformed frame: two counts from sitea to siteb")
	admin := g.peer(control.Identity{Role: control.RoleAdmin, Name: "root"}, nil)
	_, err = tell(admin, &controlpb.TrafficRequest{})
	wantStatus(t, "admin", err, overlay.ErrForbidden, "not permitted: this call is for a frontal, and this session is that of admin root")
}

// The pages and the tables show the traffic, what limits it, and where it is unknown.
func TestTrafficIsShown(t *testing.T) {
	s := statusOf(siteOf("a", true, 1), siteOf("b", true, 1), siteOf("c", true, 1), siteOf("d", true, 1))
	s.Sites[2].Profile.Inbound = overlay.InboundOpen
	s.Outcomes = []OutcomeStatus{
		{Asker: "a", Target: "b", Technique: overlay.Relay, Connected: 1, SetupMS: 3, ConnectedAt: time.Unix(90, 0)},
		{Asker: "a", Target: "c", Technique: overlay.Direct, Connected: 1, SetupMS: 3, ConnectedAt: time.Unix(90, 0)},
		{Asker: "b", Target: "c", Technique: overlay.Direct, Connected: 1, SetupMS: 3, ConnectedAt: time.Unix(90, 0)},
	}
	s.Traffic = []traffic.Flow{
		{By: "frontal a", From: "a", To: "b", Bytes: 5_100_000, Rate: 9e6, Links: 1},
		{By: "proxy p1", From: "a", To: "b", Bytes: 3_000_000, Rate: 8e6, Links: 1, Waits: 17, Held: true, Rule: "quota.per_job.rate", RuleRate: 16e6},
		{By: "proxy p2", From: "a", To: "b", Bytes: 2_000_000, Rate: 8e6, Links: 1},
		{By: "proxy p1", From: "b", To: "a", Bytes: 999, Rate: 4e6, Links: 1, Waits: 1, Rule: "quota.rate", RuleRate: 1e9},
		{By: "proxy p1", From: "b", To: "c", Bytes: 12},
		{By: "proxy p1", From: "a", To: "-", Bytes: 77},
	}
	v := viewGrid(s, noHosts, time.Unix(200, 0))
	texts := map[direction]string{}
	for _, r := range v.Pairs {
		texts[direction{r.Asker, r.Target}] = r.Traffic.Text()
		if held := r.Traffic.Held; (r.Asker == "a" && r.Target == "b") != (held == "quota.per_job.rate 16Mbit/s at proxy p1") {
			t.Errorf("%s to %s: held by %q", r.Asker, r.Target, held)
		}
	}
	for pair, want := range map[direction]string{
		{"a", "b"}: "16 Mbit/s, 5.1 MB", // the proxies' rate, the gateway's bytes
		{"b", "a"}: "4 Mbit/s, 999 B",
		{"a", "c"}: "direct: not counted here",
		{"c", "a"}: "direct: not counted here",
		{"b", "c"}: "0 bit/s, 12 B, and direct: not counted here",
		{"a", "d"}: "-",
	} {
		if texts[pair] != want {
			t.Errorf("%v: %q, want %q", pair, texts[pair], want)
		}
	}
	_, text := pageOf(t, "grid.html", v)
	for _, want := range []string{"20 Mbit/s, held back", "Held back by quota.per_job.rate 16Mbit/s at proxy p1", "carried: 16 Mbit/s, 5.1 MB"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q on the page", want)
		}
	}
	for pair, wants := range map[direction][]string{
		{"a", "b"}: {"proxy p2", "now: quota.per_job.rate, 16Mbit/s", "last: quota.rate, 1Gbit/s", "5.1 MB"},
		{"c", "a"}: {"Direct links are not counted here"},
		{"a", "d"}: {"No daemon has reported a link between the two sites."},
	} {
		pv, ok := viewPair(s, nil, pair.asker, pair.target, time.Unix(200, 0))
		if !ok {
			t.Fatal("no such pair")
		}
		_, text := pageOf(t, "pair.html", pv)
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%v: no %q on the page:\n%s", pair, want, text)
			}
		}
	}
	var out strings.Builder
	if err := s.WriteTable(&out, time.Unix(200, 0)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"16 Mbit/s, 5.1 MB", "now: quota.per_job.rate, 16Mbit/s", "direct: not counted here"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestScaled(t *testing.T) {
	for n, want := range map[uint64]string{0: "0 B", 999: "999 B", 1000: "1 kB", 1234: "1.23 kB", 99_949: "99.9 kB", 99_960: "100 kB", 999_499: "999 kB", 999_500: "1 MB", 5_000_000_000: "5 GB"} {
		if got := byteSize(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

// A user gets the lowest of the rates to which the proxy and the policies limit the link.
func TestLimitOfAssignment(t *testing.T) {
	offer := registry.Offer{Named: true, Limit: control.RateLimitToPB(50, "quota.rate"), ProjectLimit: control.RateLimitToPB(20, "quota.per_project.rate")}
	lower := overlay.Allowance{Site: "siteb", Rule: "guests", Owner: "project p", Rate: 10}
	for _, c := range []struct {
		offer   registry.Offer
		project string
		allowed []overlay.Allowance
		rate    uint64
		rule    string
	}{
		{offer, "", nil, 50, "quota.rate"},
		{offer, "p", nil, 20, "quota.per_project.rate"},
		{offer, "p", []overlay.Allowance{lower}, 10, "policy of " + lower.Key()},
		{registry.Offer{}, "p", []overlay.Allowance{{Site: "sitea", Links: 3}, lower}, 10, "policy of " + lower.Key()},
		{registry.Offer{}, "p", nil, 0, ""},
	} {
		in := &signalRequest{principal: overlay.Principal{User: "u", Project: c.project}, allowed: c.allowed}
		if got := in.limit(c.offer); got.GetRate() != c.rate || got.GetRule() != c.rule {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
