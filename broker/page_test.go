package broker

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/isthmus-grid/isthmus/broker/registry"
	"github.com/isthmus-grid/isthmus/internal/account/traffic"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/launch/offer"
	"github.com/isthmus-grid/isthmus/overlay"
)

// hostile is what an untrusted peer may send where a name is expected.
const hostile = `"><script>alert(1)</script><img src=x onerror=alert(2)>'&{{.Broker}}javascript:` + "\n\x00\xff"

func siteOf(name string, connected bool, processes int) SiteStatus {
	return SiteStatus{
		Profile:   overlay.SiteProfile{Site: overlay.SiteID(name), Inbound: overlay.InboundNone, Filter: overlay.FilterStateful, Egress: overlay.EgressAny, UDP: true},
		Connected: connected, Since: time.Unix(100, 0), Processes: processes, Hosts: offer.Counts{Up: 2},
	}
}

func statusOf(sites ...SiteStatus) Status {
	return Status{Broker: "b1", Started: time.Unix(50, 0), Sites: sites}
}

// noHosts is for pages that need none.
func noHosts(overlay.SiteID) []offer.Host { return nil }

// pageOf renders a template and returns what a browser would parse: all elements, and all of the
// text.
func pageOf(t *testing.T, name string, view any) (elements []*html.Node, text string) {
	t.Helper()
	w := httptest.NewRecorder()
	(&Broker{log: slog.New(slog.DiscardHandler)}).render(w, name, view)
	if w.Code != http.StatusOK {
		t.Fatal(w.Code, w.Body)
	}
	root, err := html.Parse(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	for n := range root.Descendants() {
		switch n.Type {
		case html.ElementNode:
			elements = append(elements, n)
		case html.TextNode:
			text += n.Data
		}
	}
	return elements, text
}

// Untrusted names of sites, users and projects, and faults, are rendered as text.
func TestPageEscapes(t *testing.T) {
	a, b := siteOf("a"+hostile, true, 3), siteOf("b"+hostile, false, 1)
	s := statusOf(a, b)
	s.Broker = hostile
	s.Outcomes = []OutcomeStatus{{Asker: a.Profile.Site, Target: b.Profile.Site, Technique: overlay.Relay, Failed: 1, Reason: hostile, FailedAt: time.Unix(90, 0)}}
	s.Jobs = []JobStatus{{Job: hostile, Processes: map[overlay.SiteID]int{a.Profile.Site: 3},
		For: []registry.JobPrincipal{{Site: a.Profile.Site, Principal: overlay.Principal{User: hostile, Project: hostile}, Processes: 3}}}}
	s.Proxies = []ProxyStatus{{Name: hostile, Addresses: []string{hostile}, Capacity: 3}}
	s.Traffic = []traffic.Flow{{By: "proxy " + hostile, From: a.Profile.Site, To: b.Profile.Site, Links: 1, Rate: 1, Held: true, Rule: hostile}}
	s.Counters.Faults = map[string]uint64{hostile: 1}
	now := time.Unix(200, 0)
	pair, ok := viewPair(s, []outcome{{outcomeKey{a.Profile.Site, b.Profile.Site, overlay.Relay}, time.Unix(90, 0), 0, hostile}}, a.Profile.Site, b.Profile.Site, now)
	if !ok {
		t.Fatal("no such pair")
	}
	hosts := func(site overlay.SiteID) []offer.Host {
		return []offer.Host{{Node: overlay.NodeID{Site: site, Name: hostile}, State: offer.Away}}
	}
	for name, view := range map[string]any{"grid.html": viewGrid(s, hosts, now), "pair.html": pair} {
		elements, text := pageOf(t, name, view)
		scripts := 0
		for _, e := range elements {
			if e.Data == "script" {
				scripts++
			}
			if e.Data == "img" {
				t.Errorf("%s: an image got in", name)
			}
			for _, attr := range e.Attr {
				if strings.HasPrefix(attr.Key, "on") || attr.Key == "style" {
					t.Errorf("%s: <%s> has %s=%q", name, e.Data, attr.Key, attr.Val)
				}
				if attr.Key == "href" && !strings.HasPrefix(attr.Val, "/") {
					t.Errorf("%s: <%s> leads to %q", name, e.Data, attr.Val)
				}
			}
		}
		if scripts != 1 {
			t.Errorf("%s: %d scripts, want that of the page alone", name, scripts)
		}
		if !strings.Contains(text, "<script>alert(1)</script>") {
			t.Errorf("%s: the name is not shown as it is: %.300s", name, text)
		}
	}
}

// Links to a pair lead to that pair, whatever the names.
func TestPageLinks(t *testing.T) {
	s := statusOf(siteOf("a&target=c#?", true, 3), siteOf("b+ %", true, 1))
	elements, _ := pageOf(t, "grid.html", viewGrid(s, noHosts, time.Unix(200, 0)))
	seen := 0
	for _, e := range elements {
		i := slices.IndexFunc(e.Attr, func(a html.Attribute) bool { return a.Key == "href" && strings.HasPrefix(a.Val, "/pair") })
		if i < 0 {
			continue
		}
		u, err := url.Parse(e.Attr[i].Val)
		if err != nil {
			t.Fatal(err)
		}
		pair := []string{u.Query().Get("asker"), u.Query().Get("target")}
		slices.Sort(pair)
		if !slices.Equal(pair, []string{"a&target=c#?", "b+ %"}) {
			t.Errorf("a link leads to %q", pair)
		}
		seen++
	}
	if want := len(mapWidths) + 2; seen != want { // one in each drawing of the map, two in the table
		t.Errorf("%d links to pairs, want %d", seen, want)
	}
}

// The map has a row for each pair of sites, which shows the worse of the two
// directions, and stays small in a large grid.
func TestMap(t *testing.T) {
	s := statusOf(siteOf("a", true, 1), siteOf("b", true, 1), siteOf("c", false, 1))
	s.Outcomes = []OutcomeStatus{
		{Asker: "a", Target: "b", Technique: overlay.Direct, Connected: 1, SetupMS: 3, ConnectedAt: time.Unix(90, 0)},
		{Asker: "b", Target: "a", Technique: overlay.Relay, Connected: 1, SetupMS: 40, ConnectedAt: time.Unix(90, 0), FailedAt: time.Unix(80, 0), Failed: 3, Reason: "old"},
		{Asker: "a", Target: "c", Technique: overlay.Relay, Failed: 1, Reason: "no answer", FailedAt: time.Unix(90, 0)},
		{Asker: "a", Target: "gone", Technique: overlay.Relay, Failed: 1, Reason: "unknown", FailedAt: time.Unix(90, 0)},
	}
	v := viewGrid(s, noHosts, time.Unix(200, 0))
	var lines []string
	for _, p := range v.Map.Drawings[0].Pairs {
		lines = append(lines, fmt.Sprintf("%s-%s %s %q", p.Asker, p.Target, p.Kind, p.Title))
	}
	want := []string{
		`b-a relay "b to a: relay, set up in 40 ms"`,
		`a-c failing "a to c fails: relay: no answer"`,
		`b-c planned "b to c: no link yet; simultaneous-open is tried first"`,
	}
	if !slices.Equal(lines, want) {
		t.Errorf("rows:\n%s\nwant:\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	if len(v.Pairs) != 6 || v.Pairs[0].Asker != "a" || v.Pairs[0].Now != "direct" {
		t.Errorf("pairs: %+v", v.Pairs)
	}

	var many []SiteStatus
	var outcomes []OutcomeStatus
	for i := range 1000 {
		many = append(many, siteOf(fmt.Sprintf("s%03d", i), true, i))
		for j := range 5 {
			outcomes = append(outcomes, OutcomeStatus{Asker: overlay.SiteID(fmt.Sprintf("s%03d", i)), Target: overlay.SiteID(fmt.Sprintf("s%03d", (i+j+1)%1000)), Technique: overlay.Relay, Connected: 1, ConnectedAt: time.Unix(90, 0)})
		}
	}
	large := statusOf(many...)
	large.Outcomes = outcomes
	for i := range 20 {
		large.Proxies = append(large.Proxies, ProxyStatus{Name: fmt.Sprintf("p%02d", i), Live: i, Capacity: 64})
	}
	v = viewGrid(large, noHosts, time.Unix(200, 0))
	m := v.Map.Drawings[len(mapWidths)-1]
	if len(m.Sites) != maxMapSites || v.Map.LeftSites != 1000-maxMapSites || m.Sites[0].ID != "s976" || len(v.Pairs) != maxRows || len(v.SiteRows) != maxRows {
		t.Errorf("%d sites drawn from %v on, %d left, %d pairs and %d sites listed", len(m.Sites), m.Sites[0].ID, v.Map.LeftSites, len(v.Pairs), len(v.SiteRows))
	}
	if len(m.Proxies) != maxMapProxies || v.Map.LeftProxies != 20-maxMapProxies || m.Proxies[0].Name != "p12" {
		t.Errorf("%d proxies drawn from %v on, %d left", len(m.Proxies), m.Proxies[0].Name, v.Map.LeftProxies)
	}
}

// hostsOf returns hosts n0, n1, ... of any site, in the given states.
func hostsOf(states ...offer.State) hostLister {
	return func(site overlay.SiteID) (all []offer.Host) {
		for i, state := range states {
			all = append(all, offer.Host{Node: overlay.NodeID{Site: site, Name: fmt.Sprintf("n%d", i)}, State: state})
		}
		return all
	}
}

// The map has the broker, its sessions, the hosts of each site and the proxies with the pairs that
// they relay; the page says the same in words.
func TestMapOfDaemons(t *testing.T) {
	a, b, c := siteOf("a", true, 1), siteOf("b", true, 1), siteOf("c", false, 1)
	hosts := hostsOf(offer.Up, offer.Away, offer.Up)
	a.Hosts, b.Hosts, c.Hosts = offer.Count(hosts("a")), offer.Count(hosts("b")), offer.Count(hosts("c"))
	s := statusOf(a, b, c)
	s.Proxies = []ProxyStatus{{Name: "p1", Live: 2, Capacity: 8}, {Name: "p2", Live: 8, Capacity: 8}, {Name: "p3", Live: 1, Capacity: 8, Draining: true}}
	relayed := OutcomeStatus{Technique: overlay.Relay, Connected: 1, ConnectedAt: time.Unix(90, 0)}
	for _, pair := range []direction{{"a", "b"}, {"b", "c"}, {"c", "a"}} {
		relayed.Asker, relayed.Target = pair.asker, pair.target
		s.Outcomes = append(s.Outcomes, relayed)
	}
	s.Outcomes[2].Technique = overlay.Direct
	s.Traffic = []traffic.Flow{
		{By: "proxy p1", From: "a", To: "b", Bytes: 900},
		{By: "proxy p2", From: "b", To: "a", Bytes: 90, Links: 1, Rate: 8e6, Held: true},
		{By: "proxy p1", From: "a", To: "c", Bytes: 9},
	}
	v := viewGrid(s, hosts, time.Unix(200, 0))
	for i, m := range v.Map.Drawings {
		if m.Width != mapWidths[i] || len(m.Brokers) != 1 || m.Brokers[0].Name != "b1" || m.Brokers[0].Note != "2 of 3 sites, 3 proxies" {
			t.Errorf("drawing of width %d has brokers %+v", m.Width, m.Brokers)
		}
		var sessions, proxies, rows, sites []string
		for _, l := range m.Brokers[0].Sessions {
			sessions = append(sessions, l.Class)
		}
		for _, p := range m.Proxies {
			proxies = append(proxies, fmt.Sprintf("%s %s %v", p.Name, p.Note, p.Load))
		}
		for _, p := range m.Pairs {
			rows = append(rows, fmt.Sprintf("%s-%s %s %s %q", p.A, p.B, p.Label, p.Proxy, p.Details))
		}
		for _, s := range m.Sites {
			sites = append(sites, fmt.Sprintf("%s %s %d: %s", s.ID, s.Note, s.Drawn, s.Title))
		}
		for _, c := range []struct{ got, want []string }{
			{sessions, []string{"open", "open", "closed"}},
			{proxies, []string{"p1 2 of 8 links 0.25", "p2 full: 8 links 1", "p3 drains: 1 link 0.125"}},
			{rows, []string{`a-b relay p2 ["8 Mbit/s" "held back"]`, `b-c relay  []`, `a-c direct  []`}},
			{sites, []string{
				"a 1 process 3: a: connected; 1 process; hosts: 2 up; 1 away: n1",
				"b 1 process 3: b: connected; 1 process; hosts: 2 up; 1 away: n1",
				"c away 3: c: away; 1 process; hosts: 2 up; 1 away: n1",
			}},
		} {
			if !slices.Equal(c.got, c.want) {
				t.Errorf("width %d:\n%q, want\n%q", m.Width, c.got, c.want)
			}
		}
	}
	_, text := pageOf(t, "grid.html", v)
	for _, want := range []string{"proxy p2", "full: 8 links", "n0"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q on the page", want)
		}
	}
	if got, want := strings.Count(text, "2 up; 1 away: n1"), len(s.Sites)*(len(mapWidths)+1); got != want {
		t.Errorf("%d texts say which hosts are up, want %d: for each site one in each drawing and one in the table", got, want)
	}
}

// Other brokers are on the map with the sessions that frontals report, and beyond maxMapBrokers are
// counted.
func TestMapOfBrokers(t *testing.T) {
	a, b, c := siteOf("a", true, 1), siteOf("b", true, 1), siteOf("c", false, 1)
	a.Brokers = []BrokerSession{{"b1", true}, {"b3", true}, {"b2", false}}
	b.Brokers = []BrokerSession{{"b1", true}, {"b3", true}}
	v := viewGrid(statusOf(a, b, c), noHosts, time.Unix(200, 0))
	m := v.Map.Drawings[0]
	var got []string
	for _, b := range m.Brokers {
		var sessions []string
		for _, l := range b.Sessions {
			sessions = append(sessions, l.Class)
		}
		got = append(got, fmt.Sprintf("%s %s %v", b.Name, b.Note, sessions))
	}
	if want := []string{"b1 2 of 3 sites, 0 proxies [open open closed]", "b2 0 of 3 sites [closed]", "b3 2 of 3 sites [open open]"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if _, text := pageOf(t, "grid.html", v); !strings.Contains(text, "connected to b3, not connected to b2") {
		t.Errorf("the page does not say it in words: %s", text)
	}
	for i := range maxSiteBrokers {
		c.Brokers = append(c.Brokers, BrokerSession{fmt.Sprintf("x%d", i), true})
	}
	v = viewGrid(statusOf(c), noHosts, time.Unix(200, 0))
	if n := len(v.Map.Drawings[0].Brokers); n != maxMapBrokers || v.Map.LeftBrokers != 1+maxSiteBrokers-maxMapBrokers {
		t.Errorf("%d brokers drawn, %d left", n, v.Map.LeftBrokers)
	}
}

// The names of hosts that are not up are bounded.
func TestHostsText(t *testing.T) {
	states := slices.Repeat([]offer.State{offer.Unknown}, maxHostNames+1)
	got := hostsText(offer.Counts{Unknown: len(states)}, hostsOf(states...)("a"))
	if want := "0 up; 9 unknown: n0, n1, n2, n3, n4, n5, n6, n7, ..."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := hostsText(offer.Counts{Up: 3, Away: 1}, nil); got != "3 up; 1 away" {
		t.Errorf("without a list: %q", got)
	}
}

// The page is for users of this host, and loads nothing from elsewhere.
func TestPageHandler(t *testing.T) {
	authority, _, err := ca.New("test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	creds, err := authority.Credentials(control.Identity{Role: control.RoleBroker, Name: "b1"})
	if err != nil {
		t.Fatal(err)
	}
	b, err := New(DefaultConfig(), creds, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.registry.Join(siteOf("a", true, 0).Profile, 1, time.Now()); err != nil {
		t.Fatal(err)
	}
	get := func(open bool, host, path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", path, nil)
		r.Host = host
		b.page(open).ServeHTTP(w, r)
		return w
	}
	for _, c := range []struct {
		open       bool
		host, path string
		status     int
		has        string
	}{
		{false, "127.0.0.1:9480", "/", 200, "Grid of broker"},
		{false, "[::1]:9480", "/", 200, "Grid of broker"},
		{false, "localhost", "/page/style.css", 200, "prefers-color-scheme"},
		{false, "localhost", "/page/refresh.js", 200, "DOMParser"},
		{false, "localhost", "/page/grid.html", 404, ""},
		{false, "localhost", "/status.json", 200, `"broker":`},
		{false, "localhost", "/pair?asker=a&target=b", 404, "no such pair"},
		{false, "localhost", "/other", 404, ""},
		{false, "rebound.example:9480", "/", 403, "for this host only"},
		{true, "grid.example", "/", 200, "Grid of broker"},
	} {
		w := get(c.open, c.host, c.path)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.has) {
			t.Errorf("%s%s: %d %.80q, want %d %q", c.host, c.path, w.Code, w.Body, c.status, c.has)
		}
		if csp := w.Header().Get("Content-Security-Policy"); w.Code != 403 && (!strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe")) {
			t.Errorf("%s: Content-Security-Policy %q", c.path, csp)
		}
	}
}

func TestStatusListenIsForThisHost(t *testing.T) {
	for _, c := range []struct {
		at   string
		open bool
		ok   bool
	}{{"127.0.0.1:9480", false, true}, {"[::1]:9480", false, true}, {"0.0.0.0:9480", false, false}, {"192.0.2.1:9480", false, false}, {"192.0.2.1:9480", true, true}} {
		cfg := DefaultConfig()
		cfg.StatusListen, cfg.StatusOpen = netip.MustParseAddrPort(c.at), c.open
		if err := cfg.Check(); (err == nil) != c.ok {
			t.Errorf("%s, open %v: %v", c.at, c.open, err)
		}
	}
}

// A failure of a technique other than the one that connects is not shown as trouble of the pair, in
// whatever order the two were reported.
func TestFailureBesideTheOneThatConnects(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	relay := func(connected, failed int64) OutcomeStatus {
		o := OutcomeStatus{Technique: overlay.Relay, Connected: 1, ConnectedAt: at(connected)}
		if failed > 0 {
			o.Failed, o.FailedAt, o.Reason = 1, at(failed), "no answer"
		}
		return o
	}
	open := OutcomeStatus{Technique: overlay.SimultaneousOpen, Failed: 2, FailedAt: at(90), Reason: "timed out"}
	for name, c := range map[string]struct {
		outcomes              []OutcomeStatus
		kind, trouble, beside string
	}{
		"beside, told later":     {[]OutcomeStatus{open, relay(80, 0)}, "relay", "", "simultaneous-open: timed out"},
		"beside, told before":    {[]OutcomeStatus{open, relay(95, 0)}, "relay", "", "simultaneous-open: timed out"},
		"nothing ever connected": {[]OutcomeStatus{open}, "failing", "simultaneous-open: timed out", ""},
		"the one that connected": {[]OutcomeStatus{open, relay(80, 85)}, "failing", "relay: no answer", ""},
		"it recovered":           {[]OutcomeStatus{relay(80, 70)}, "relay", "", ""},
	} {
		r := rowOfPair(siteOf("a", true, 1), siteOf("b", true, 1), c.outcomes, nil)
		if r.Kind != c.kind || r.Trouble != c.trouble || r.Beside != c.beside {
			t.Errorf("%s: %s, trouble %q, beside %q", name, r.Kind, r.Trouble, r.Beside)
		}
	}
}

// The line of a site's firewall says that its NAT is full.
func TestFirewallOfFullNAT(t *testing.T) {
	p := overlay.SiteProfile{NAT: overlay.NAT{Mapping: overlay.EndpointIndependent, Filtering: overlay.AddressDependent}}
	if got := firewall(p); got != "nothing in, any out, NAT" {
		t.Error(got)
	}
	p.Sessions = 60
	if got := firewall(p); got != "nothing in, any out, NAT without room for new connections" {
		t.Error(got)
	}
}
