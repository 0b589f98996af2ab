package doctor

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/nat/probe"
	"github.com/isthmus-grid/isthmus/overlay"
)

var (
	now  = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	addr = netip.MustParseAddrPort
	ip   = netip.MustParseAddr
)

// healthy returns a node's observations when nothing is wrong.
func healthy() Observations {
	seen := addr("10.1.0.11:30000")
	to1, to2 := addr("203.0.113.2:3478"), addr("203.0.113.3:3478")
	reflector := func(at string) Reflector {
		return Reflector{At: addr(at), Connect: Connection{To: addr(at), From: seen, Outcome: Connected}, Seen: seen, Bulk: Bulk{Tried: true, Passed: true}}
	}
	return Observations{
		Self: "helper sitea/a1", Start: now, Helper: true,
		Local: Local{Socket: "/run/isthmus/helper.sock", Files: []File{
			{Path: "helper.pem", Whose: "helper sitea/a1", NotBefore: now.Add(-time.Hour), NotAfter: now.Add(90 * 24 * time.Hour)},
			{Path: "ca.pem", Whose: "the grid's CA", NotBefore: now.Add(-time.Hour), NotAfter: now.Add(900 * 24 * time.Hour)}}},
		Services: []Service{{
			What: "frontal", Address: "gw.sitea:7440",
			Resolve: Resolution{Name: "gw.sitea", Addrs: []netip.Addr{ip("10.1.0.1")}},
			Connect: Connection{To: addr("10.1.0.1:7440"), From: seen, Outcome: Connected, Took: time.Millisecond},
			TLS: Handshake{Tried: true, Done: true, Version: "TLS 1.3", Chain: []Cert{{
				Subject: "CN=frontal sitea", Issuer: "CN=grid CA", Identity: "frontal sitea", OfGrid: true, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour)}}},
			Hello: Hello{Got: true, Oldest: 1, Newest: 1, OwnOldest: 1, OwnNewest: 1, Software: "isthmus/0.1"},
		}},
		Session: Session{Tried: true, At: "gw.sitea:7440", Listed: true, BrokerTime: now, Sent: now.Add(-10 * time.Millisecond), Got: now.Add(10 * time.Millisecond),
			Profile: &overlay.SiteProfile{Site: "sitea"}},
		Reflectors: []Reflector{reflector("203.0.113.2:443"), reflector("203.0.113.3:443"), reflector("203.0.113.2:3478")},
		UDP:        Datagrams{Servers: []netip.AddrPort{to1, to2}, Local: seen, Seen: map[netip.AddrPort]netip.AddrPort{to1: seen, to2: seen}},
		Inbound:    Inbound{Tried: true, To: seen, From: "203.0.113.3:443", Outcome: Connected, Arrived: true},
	}
}

// cases are failures, with the expected findings. Parts of evidence, meaning, device and fix are
// separated by |.
var cases = []struct {
	name   string
	spoil  func(*Observations)
	class  Class
	status Status
	says   string
}{
	{"healthy", func(*Observations) {}, OK, Passed, ""},

	{"name unknown", connectTo(func(s *Service) { s.Resolve = Resolution{Name: "gw", Err: "no such host", NotFound: true} }), Name, Failed, "no such host|written wrongly"},
	{"name servers away", connectTo(func(s *Service) { s.Resolve = Resolution{Name: "gw", Err: "i/o timeout"} }), Name, Failed, "i/o timeout|name servers do not answer"},
	{"dropped at the gateway", outcome(Connection{Outcome: Silent, Hops: []Hop{{1, ip("10.1.0.1")}}}), TCPDropped, Failed, "1: 10.1.0.1|look the same|10.1.0.1, this host's gateway"},
	{"dropped far away", outcome(Connection{Outcome: Silent, Hops: []Hop{{1, ip("10.1.0.1")}, {3, ip("198.51.100.1")}}}), TCPDropped, Failed, "3: 198.51.100.1|site's gateway lets the SYN out"},
	{"dropped at once", outcome(Connection{Outcome: Silent}), TCPDropped, Failed, "no router|own firewall"},
	{"reset", outcome(Connection{Outcome: Reset}), TCPRefused, Failed, "a reset from|cannot be distinguished"},
	{"port unreachable", outcome(Connection{Outcome: Reset, Reply: "port unreachable", Replier: ip("10.1.0.1")}), TCPRefused, Failed, "10.1.0.1 sent ICMP port unreachable|10.1.0.1: it sent the error"},
	{"prohibited", outcome(Connection{Outcome: ICMPError, Reply: "communication administratively prohibited", Replier: ip("192.0.2.1")}), Unreachable, Failed, "192.0.2.1 sent ICMP communication|a firewall refuses"},
	{"host unreachable", outcome(Connection{Outcome: ICMPError, Err: "no route to host"}), Unreachable, Failed, "no route to host|reports the same"},
	{"no route", outcome(Connection{Outcome: Routeless, Err: "network is unreachable"}), NoRoute, Failed, "at once|routing table"},
	{"not permitted", outcome(Connection{Outcome: NoPermit, Err: "operation not permitted"}), Unreachable, Failed, "operation not permitted|this host"},

	{"one broker of two dropped", spare(Connection{Outcome: Silent}, true), TCPDropped, Warning, "broker2:443|no answer to a SYN|another broker is reached"},
	{"both brokers dropped", spare(Connection{Outcome: Silent}, false), TCPDropped, Failed, "no answer to a SYN"},

	{"proxy wants credentials", proxied("it requires credentials (407 Proxy Authentication Required)"), HTTPProxy, Failed, "407|requires credentials|password_file"},
	{"proxy wants NTLM", proxied("it offers only NTLM for credentials (407 No), and Basic is the only scheme that there is here"), HTTPProxy, Failed, "NTLM|they have Basic only|accept Basic"},
	{"proxy forbids", proxied("it does not allow the tunnel (403 Forbidden)"), HTTPProxy, Failed, "403|allow CONNECT to broker:443"},
	{"proxy cannot connect", proxied("it cannot connect (502 Bad Gateway)"), HTTPProxy, Failed, "502|behind the HTTP proxy"},
	{"no proxy there", proxied("its answer is not HTTP"), HTTPProxy, Failed, "not an HTTP proxy"},

	{"inspected", leaf(func(c *Cert) { c.OfGrid, c.Identity, c.Issuer = false, "", "CN=Inspection" }), Intercepted, Failed, "CN=Inspection|a device in between|or the address"},
	{"other grid", leaf(func(c *Cert) { c.OfGrid = false }), Certificate, Failed, "grid with another CA"},
	{"other daemon", leaf(func(c *Cert) { c.Identity = "broker b1" }), Settings, Failed, "this is broker b1"},
	{"peer expired", leaf(func(c *Cert) { c.NotAfter = now.Add(-time.Hour) }), Certificate, Failed, "expired|the clocks of this host and its issuer differ by at least 1h0m0s: set them by NTP"},
	{"peer not yet valid", leaf(func(c *Cert) { c.NotBefore = now.Add(2 * time.Hour) }), Clock, Failed, "2026-05-01T14:00:00Z|the clocks of this host and its issuer differ by at least 2h0m0s: set them by NTP"},
	{"no TLS", handshaken(Handshake{Tried: true, Err: "tls: first record does not look like a TLS handshake"}), TLSBroken, Failed, "does not speak TLS"},
	{"reset in TLS", handshaken(Handshake{Tried: true, Err: "read: connection reset by peer"}), TLSBroken, Failed, "reset when TLS began"},
	{"silent TLS", stalledWith(Segments{Tried: true, Stalled: []int{0, 1360, 536}}), TLSBroken, Failed, "neither with segments of full size, 1360, 536|look the same"},
	{"black hole", stalledWith(Segments{Tried: true, Passed: []int{1220, 536}, Stalled: []int{0, 1360}, PathMTU: 1500}), MTU, Failed, "at most 1220|full size, 1360|black hole|1260 or less"},
	{"busy", stalledWith(Segments{Tried: true, Passed: []int{0, 536}}), TLSBroken, Failed, "second try went through|was busy"},

	{"too new", connectTo(func(s *Service) { s.Hello.Oldest, s.Hello.Newest = 2, 3 }), Version, Failed, "2 to 3|upgrade the older"},
	{"version in words", refusing("helper speaks control versions 2 to 3; upgrade"), Version, Failed, "upgrade"},
	{"own expired there", refusing("the certificate of helper sitea/a1 expired at x"), Certificate, Failed, "finds this daemon's certificate expired"},
	{"own early there", refusing("the certificate of helper sitea/a1 is not valid before x"), Clock, Failed, "not valid yet"},
	{"own foreign there", refusing("the certificate of helper sitea/a1 was not issued by this grid's CA"), Certificate, Failed, "another CA"},
	{"not wanted", refusing("helper b/b1 belongs to another site"), Refused, Failed, "frontal sitea: helper b/b1 belongs"},
	{"hung up", connectTo(func(s *Service) { s.Hello = Hello{OwnOldest: 1, OwnNewest: 1, Err: "EOF"} }), Refused, Failed, "EOF|without a reason"},

	{"own certificate missing", func(o *Observations) { o.Local.Files[0].Err = "no such file" }, Certificate, Failed, "no such file"},
	{"own certificate expired", func(o *Observations) { o.Local.Files[0].NotAfter = now.Add(-time.Hour) }, Certificate, Failed, "has expired|the clocks of this host and its issuer differ by at least 1h0m0s: set them by NTP"},
	{"own certificate early", func(o *Observations) { o.Local.Files[0].NotBefore = now.Add(2 * time.Hour) }, Clock, Failed, "the clocks of this host and its issuer differ by at least 2h0m0s: set them by NTP"},
	{"own certificate expired just now", func(o *Observations) { o.Local.Files[0].NotAfter = now.Add(-10 * time.Minute) }, Expiring, Warning, "counts for 20m0s more|the clocks of this host and its issuer differ by at least 10m0s: set them by NTP"},
	{"own certificate ends soon", func(o *Observations) {
		o.Local.Files[0].NotBefore, o.Local.Files[0].NotAfter = now.Add(-1000*time.Hour), now.Add(time.Hour)
	}, Expiring, Warning, "within a week"},
	{"settings that deny", func(o *Observations) {
		o.Settings, o.Denied = "/etc/isthmus/helper.yaml", []string{"offer.jobs: 0, write\noffer: {jobs: 1}"}
	}, Denied, Warning, "/etc/isthmus/helper.yaml|offer: {jobs: 1}|reload"},
	{"helper away", func(o *Observations) { o.Local.SocketErr, o.Local.SocketAbsent = "no such file", true }, HelperSocket, Failed, "no helper runs"},
	{"socket forbidden", func(o *Observations) { o.Local.SocketErr, o.Local.SocketDenied = "permission denied", true }, HelperSocket, Failed, "may not use|public: true"},
	{"helper stopped", func(o *Observations) { o.Local.SocketErr, o.Local.SocketSilent = "no answer within 2s", true }, HelperSocket, Failed, "does not answer"},
	{"helper dead", func(o *Observations) { o.Local.SocketErr = "connection refused" }, HelperSocket, Failed, "has ended"},

	{"two hosts with one certificate", func(o *Observations) {
		o.Session.Keeps, o.Session.Refused = addr("10.1.0.11:40000"), addr("10.1.0.12:50000")
	}, Contested, Failed, "10.1.0.11:40000, whose session goes on|10.1.0.12:50000, which is refused|disk was copied|certificate of its own"},

	{"gateway alone", func(o *Observations) {
		o.Session.Listed, o.Session.Gone, o.Session.ListErr = false, true, "frontal sitea has no session"
	}, BrokerAway, Failed, "frontal sitea has no session|doctor on the gateway"},
	{"clock an hour off", clockOffBy(time.Hour), Clock, Failed, "1h0m0s ahead of"},
	{"clock ten minutes off", clockOffBy(10 * time.Minute), Clock, Warning, "10m0s ahead of|the clocks of this host and the broker differ by at least"},
	{"clock ten seconds off", clockOffBy(-10 * time.Second), Clock, Warning, "10s behind"},
	{"clock a second off", clockOffBy(time.Second), OK, Passed, ""},

	{"443 blocked", at(0, Connection{Outcome: Silent}), TCPDropped, Failed, "203.0.113.2:443"},
	{"only 443", at(2, Connection{Outcome: Silent}), Egress443, Warning, "port 443 answers|cannot be distinguished"},
	{"only TLS", func(o *Observations) { o.Reflectors[0].Err, o.Reflectors[0].TLS = "timed out", true }, EgressTLS, Warning, "one inside of TLS did|inspects connections|without inspection"},
	{"only TLS through the HTTP proxy", func(o *Observations) {
		v := &o.Reflectors[0]
		v.Via, v.Tunnel, v.Err, v.TLS = "proxy:3128", Tunnel{Asked: true, Open: true, Status: 200}, "EOF", true
	}, EgressTLS, Warning, "lets only TLS through them|the HTTP proxy proxy:3128"},
	{"bulk lost", func(o *Observations) { o.Reflectors[0].Bulk = Bulk{Tried: true, Smaller: 536, PathMTU: 1500} }, MTU, Failed, "not all were acknowledged|536 bytes they were|black hole|mtu none|profile.mtu: 576"},
	{"all bulk lost", func(o *Observations) { o.Reflectors[0].Bulk = Bulk{Tried: true} }, TCPDropped, Failed, "neither in full-size segments nor in segments of 536"},
	{"black hole that the profile knows", func(o *Observations) {
		o.Session.Profile.MTU, o.Path = 1400, sized(0)
		o.Reflectors[0].Bulk = Bulk{Tried: true, Smaller: 1360, PathMTU: 1500}
	}, MTU, Warning, "1360 bytes they were|to 203.0.113.3:443 full-size ones arrive|those of 1500, 1420 are lost on the path|knows it (mtu 1400)|nothing for the grid"},
	{"black hole that the daemons measure", func(o *Observations) {
		o.MeasuresMTU, o.Path = true, sized(0)
		o.Reflectors[0].Bulk = Bulk{Tried: true, Smaller: 536}
	}, MTU, Warning, "profile.mtu: auto|MTU of 1400 or less"},
	{"black hole that nobody can measure", func(o *Observations) {
		o.MeasuresMTU = true
		o.Reflectors[0].Bulk = Bulk{Tried: true, Smaller: 1240}
	}, MTU, Failed, "profile.mtu: 1280"},
	{"profile too large", func(o *Observations) {
		o.Session.Profile.MTU, o.Path = 1480, sized(0)
		o.Reflectors[0].Bulk = Bulk{Tried: true, Smaller: 536}
	}, MTU, Failed, "mtu 1480|profile.mtu: 1400"},
	{"large datagrams lost", func(o *Observations) { o.Path = sized(0) }, MTU, Warning, "full-size segments of TCP arrive|MSS clamp"},
	{"a router tells", func(o *Observations) { o.Path = sized(1400) }, OK, Passed, ""},
	{"no size told", func(o *Observations) { o.Path = &probe.PathReport{Sizes: &probe.PathSizes{Lost: []int{1280}}} }, OK, Passed, ""},
	{"slow datagrams", func(o *Observations) {
		o.Path = &probe.PathReport{To: addr("203.0.113.2:3478"), Rate: limitedAt(1_000_000)}
	}, UDPSlow, Warning, "about 1 Mb/s|was not measured|without a rate limit"},
	{"no window scaling", func(o *Observations) {
		for i := range o.Reflectors {
			o.Reflectors[i].Options = &probe.TCPOptions{SACK: true, Timestamps: true}
		}
	}, TCPOptions, Warning, "has window scaling|64 KiB a round trip|not to modify TCP options"},
	{"no SACK at one host", func(o *Observations) {
		o.Reflectors[0].Options = &probe.TCPOptions{Scale: true, Timestamps: true}
		o.Reflectors[1].Options = &probe.TCPOptions{Scale: true, SACK: true, Timestamps: true}
	}, OK, Passed, ""},
	{"no SACK and timestamps", func(o *Observations) {
		o.Reflectors[0].Options = &probe.TCPOptions{Scale: true}
	}, TCPOptions, Warning, "has SACK or timestamps|losses cost"},
	{"stranger answers", func(o *Observations) { o.Reflectors[0].Err = "EOF" }, Refused, Warning, "no reflector"},
	{"nat", func(o *Observations) { o.Reflectors[0].Seen = addr("192.0.2.1:30000") }, NAT, Warning, "sees 192.0.2.1:30000"},
	{"nat of a carrier", func(o *Observations) {
		o.Helper, o.Reflectors[0].Connect.From, o.Reflectors[0].Seen = false, addr("100.64.1.2:30000"), addr("192.0.2.1:30000")
	}, NAT, Warning, "changed twice|100.64.1.2 is of the space"},
	{"IPv6", func(o *Observations) { o.IPv6 = []Reflector{overSix("[2001:db8::1]:9")} }, OK, Passed, ""},
	{"nothing but IPv6", onlyOverSix, OK, Passed, ""},
	{"nothing but IPv6, and no proxy with both", func(o *Observations) {
		onlyOverSix(o)
		o.Session.NoDual = true
	}, NoDualProxy, Warning, "no proxy that the broker names|nothing joins it with a site that has IPv4 alone|list both in advertise"},
	{"IPv6 translated", func(o *Observations) { o.IPv6 = []Reflector{overSix("[2001:db8::2]:9")} }, NAT, Warning, "IPv6 address"},
	{"behind an HTTP proxy", func(o *Observations) { o.Straight = &Connection{Outcome: Silent, To: addr("203.0.113.2:443")} }, EgressProxy, Warning, "only the HTTP proxy leads out"},
	{"HTTP proxy for nothing", func(o *Observations) { o.Straight = &Connection{Outcome: Connected, To: addr("203.0.113.2:443")} }, EgressProxy, Warning, "for nothing"},
	{"gateway only", gatewayOnlyWith(Connection{Outcome: Routeless, Err: "network is unreachable"}), GatewayOnly, Warning, "network is unreachable|by design"},
	{"gateway only for nothing", gatewayOnlyWith(Connection{Outcome: Connected}), GatewayOnly, Warning, "detour"},

	{"no UDP", func(o *Observations) { o.UDP.Seen = nil }, UDPBlocked, Warning, "none of 2|all down would look the same"},
	{"UDP refused here", func(o *Observations) {
		o.UDP.Seen, o.UDP.Errs = nil, map[netip.AddrPort]string{addr("203.0.113.2:3478"): "sendto: operation not permitted"}
	}, UDPBlocked, Warning, "own firewall"},
	{"one server down", func(o *Observations) { delete(o.UDP.Seen, addr("203.0.113.3:3478")) }, UDPBlocked, Warning, "while others answered|datagrams do leave"},
	{"symmetric", func(o *Observations) { o.UDP.Seen[addr("203.0.113.3:3478")] = addr("192.0.2.1:4000") }, NATSymmetric, Warning, "another port for each"},
	{"full", func(o *Observations) { o.Session.Profile.Sessions = 60 }, NATFull, Warning, "no new connections through beyond about 60 of a node"},
	{"full with two of each node", func(o *Observations) { o.Session.Profile.Sessions = 2 }, NATFull, Warning, "about 2 of a node|leave nodes without any|gateway_only: true at the frontal|or ask for more sessions"},
	{"TCP symmetric, UDP not", mappedTo("192.0.2.1:4000", "192.0.2.1:4001"), NATSymmetric, Warning,
		"203.0.113.2:443 sees 192.0.2.1:4000, 203.0.113.3:443 sees 192.0.2.1:4001|TCP mappings depend on the destination, UDP's do not|simultaneous open is not possible from here, hole punching over UDP is|RFC 5382, REQ-1"},
	{"TCP symmetric, no UDP", func(o *Observations) {
		mappedTo("192.0.2.1:4000", "192.0.2.1:4001")(o)
		delete(o.UDP.Seen, addr("203.0.113.3:3478"))
		o.UDP.Servers = o.UDP.Servers[:1]
	}, NATSymmetric, Warning, "whether UDP's do could not be determined|else they are relayed"},
	{"both symmetric", func(o *Observations) {
		mappedTo("192.0.2.1:4000", "192.0.2.1:4001")(o)
		o.UDP.Seen[addr("203.0.113.3:3478")] = addr("192.0.2.1:4000")
	}, NATSymmetric, Warning, "neither direct TCP by simultaneous open nor hole punching"},
	{"UDP symmetric, TCP not", func(o *Observations) {
		mappedTo("192.0.2.1:4000", "192.0.2.1:4000")(o)
		o.UDP.Seen[addr("203.0.113.3:3478")] = addr("192.0.2.1:4000")
	}, NATSymmetric, Warning, "another port for each|TCP's mappings do not depend"},
	{"neither symmetric", mappedTo("192.0.2.1:4000", "192.0.2.1:4000"), OK, Passed, ""},
	{"symmetric, with IPv6", func(o *Observations) {
		o.IPv6 = []Reflector{overSix("[2001:db8::1]:9")}
		o.UDP.Seen[addr("203.0.113.3:3478")] = addr("192.0.2.1:4000")
	}, NATSymmetric, Warning, "over IPv6 (2001:db8::1)"},
	{"inbound dropped by flags", func(o *Observations) {
		o.Session.Profile.Filter = overlay.FilterStateless
		o.Inbound.Outcome, o.Inbound.Arrived = Silent, false
	}, InboundDropped, Warning, "CAP_NET_RAW"},
	{"inbound dropped", func(o *Observations) { o.Inbound.Outcome, o.Inbound.Arrived = Silent, false }, InboundDropped, Warning, "reports silent"},
	{"inbound behind a NAT", func(o *Observations) {
		o.Reflectors[0].Seen = addr("192.0.2.1:30000")
		o.Inbound.Outcome, o.Inbound.Arrived = Silent, false
	}, InboundDropped, Warning, "a NAT on the way, which forwards nothing"},
	{"inbound reset", func(o *Observations) { o.Inbound.Outcome, o.Inbound.Arrived = Reset, false }, InboundRefused, Warning, "reports reset"},
	{"inbound caught", func(o *Observations) { o.Inbound.Arrived = false }, InboundRefused, Warning, "in this host's name"},

	{"pair away", func(o *Observations) {
		o.Pair = &Pair{A: "a", B: "b", Plan: &overlay.Plan{Steps: []overlay.Step{{Technique: overlay.Relay}}}, Absent: []string{"b"}}
	}, SiteAway, Failed, "knows b from before"},
	{"a broker's full disk", func(o *Observations) {
		o.Pair = &Pair{A: "a", B: "b", Plan: &overlay.Plan{Steps: []overlay.Step{{Technique: overlay.Relay}}}, Store: "no space left on device"}
	}, StoreFault, Warning, "no space left on device"},
	{"pair impossible", func(o *Observations) {
		o.Pair = &Pair{A: "a", B: "b", Plan: &overlay.Plan{Rejected: []overlay.Rejection{{Technique: overlay.Relay, Reason: "b lets nothing out"}}}}
	}, NoPath, Failed, "b lets nothing out"},
	{"pair unknown", func(o *Observations) { o.Pair = &Pair{A: "a", B: "b", Err: "unknown site b", Asked: true} }, SiteAway, Failed, "unknown site b"},
}

// sized returns a path on which packets of 1400 bytes pass; told is the size that a router
// reported.
func sized(told int) *probe.PathReport {
	return &probe.PathReport{
		To:    addr("203.0.113.2:3478"),
		Sizes: &probe.PathSizes{To: addr("203.0.113.2:3478"), Interface: 1500, Passed: []int{1400, 1280}, Lost: []int{1500, 1420}, Reported: told},
		Rate:  []probe.RateStep{{Rate: 3_000_000, Echoed: true, Sent: 100, Answered: 100, Offered: 3_000_000, Delivered: 3_000_000}},
	}
}

// limitedAt returns the steps that show a limit in both directions.
func limitedAt(rate uint64) []probe.RateStep {
	step := func(rate, through uint64, echoed bool) probe.RateStep {
		return probe.RateStep{Rate: rate, Echoed: echoed, Sent: 100, Answered: 50, Offered: rate, Delivered: through}
	}
	return []probe.RateStep{step(rate/4, rate/4, true), step(3*rate, rate, true), step(3*rate, rate, true), step(3*rate, rate, false)}
}

// overSix returns a public host that sees a host with the address 2001:db8::1.
func overSix(as string) Reflector {
	at, from := addr("[2001:db8:ffff::3]:443"), addr("[2001:db8::1]:9")
	return Reflector{At: at, Connect: Connection{To: at, From: from, Outcome: Connected}, Seen: addr(as), Bulk: Bulk{Tried: true, Passed: true}}
}

// onlyOverSix takes the routes over IPv4 away.
func onlyOverSix(o *Observations) {
	o.IPv6 = []Reflector{overSix("[2001:db8::1]:9")}
	for i := range o.Reflectors {
		o.Reflectors[i].Connect = Connection{Outcome: Routeless, Err: "network is unreachable"}
	}
}

// TestNoDual: a proxy with both versions of IP has its IPv6 address in a list of its own, as the broker has.
func TestNoDual(t *testing.T) {
	own, four, six := "198.51.100.1:443", "203.0.113.2:443", "[2001:db8:ffff::2]:443"
	own6 := "[2001:db8:ffff::1]:443"
	for name, tc := range map[string]struct {
		list *controlpb.ReflectorsResponse
		want bool
	}{
		"both":               {&controlpb.ReflectorsResponse{Own: []string{own, own6}, Tcp: []string{own, four}, Tcp6: []string{own6, six}}, false},
		"the broker alone":   {&controlpb.ReflectorsResponse{Own: []string{own, own6}, Tcp: []string{own, four}, Tcp6: []string{own6}}, true},
		"a proxy of each":    {&controlpb.ReflectorsResponse{Own: []string{own}, Tcp: []string{own, four, six}}, true},
		"an older broker":    {&controlpb.ReflectorsResponse{Tcp: []string{own, four}, Tcp6: []string{own6}}, false},
		"nothing was listed": {nil, false},
	} {
		if got := hasNoDual(tc.list); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func connectTo(change func(*Service)) func(*Observations) {
	return func(o *Observations) {
		change(&o.Services[0])
		o.Session = Session{}
		o.Reflectors, o.UDP, o.Inbound = nil, Datagrams{}, Inbound{}
	}
}

func outcome(c Connection) func(*Observations) {
	c.To = addr("10.1.0.1:7440")
	return connectTo(func(s *Service) { s.Connect, s.TLS, s.Hello = c, Handshake{}, Hello{} })
}

// spare adds a second broker to a gateway, to which it cannot connect; reached is whether it
// reaches the first.
func spare(c Connection, reached bool) func(*Observations) {
	return func(o *Observations) {
		o.Helper = false
		o.Services[0].What, o.Services[0].Address = "broker", "broker1:443"
		o.Services[0].TLS.Chain[0].Identity = "broker b1"
		c.To = addr("203.0.113.9:443")
		second := Service{What: "broker", Address: "broker2:443", Resolve: o.Services[0].Resolve, Connect: c}
		if !reached {
			outcome(c)(o)
		}
		o.Services = append(o.Services, second)
	}
}

func proxied(words string) func(*Observations) {
	return connectTo(func(s *Service) {
		s.What, s.Address, s.Via = "broker", "broker:443", "proxy:3128"
		s.Tunnel, s.TLS = Tunnel{Asked: true, Err: words}, Handshake{}
	})
}

func leaf(change func(*Cert)) func(*Observations) {
	return connectTo(func(s *Service) { change(&s.TLS.Chain[0]) })
}

func handshaken(h Handshake) func(*Observations) { return connectTo(func(s *Service) { s.TLS = h }) }

func stalledWith(seg Segments) func(*Observations) {
	return connectTo(func(s *Service) { s.TLS, s.Segment = Handshake{Tried: true, Silent: true, Err: "timeout"}, seg })
}

func refusing(words string) func(*Observations) {
	return connectTo(func(s *Service) {
		s.Hello = Hello{OwnOldest: 1, OwnNewest: 1, Refusal: words, RefusedBy: "frontal sitea"}
	})
}

// mappedTo makes two reflectors see one port of the host.
func mappedTo(first, second string) func(*Observations) {
	return func(o *Observations) {
		o.Inbound.Mapped = []Mapping{{addr("203.0.113.2:443"), addr(first)}, {addr("203.0.113.3:443"), addr(second)}}
	}
}

func clockOffBy(off time.Duration) func(*Observations) {
	return func(o *Observations) { o.Session.BrokerTime = now.Add(-off) }
}

func at(i int, c Connection) func(*Observations) {
	return func(o *Observations) {
		c.To = o.Reflectors[i].At
		o.Reflectors[i] = Reflector{At: c.To, Connect: c}
	}
}

func gatewayOnlyWith(c Connection) func(*Observations) {
	return func(o *Observations) {
		o.Session.Profile.GatewayOnly = true
		o.Reflectors = []Reflector{{At: addr("203.0.113.2:443"), Connect: c}}
	}
}

func TestDiagnose(t *testing.T) {
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			o := healthy()
			tc.spoil(&o)
			r := Conclude(o)
			if r.Class != tc.class {
				t.Fatalf("class %s, want %s; %+v", r.Class, tc.class, r.Findings)
			}
			if want := map[bool]int{true: tc.class.ExitCode()}[tc.status == Failed]; r.Exit != want {
				t.Errorf("status %d, want %d", r.Exit, want)
			}
			for _, f := range r.Findings {
				if f.Status != NotChecked && f.Evidence == "" || f.Meaning == "" {
					t.Errorf("a finding without evidence or meaning: %+v", f)
				}
				if f.Class != tc.class || f.Status != tc.status || tc.class == OK {
					continue
				}
				if f.Fix == "" {
					t.Errorf("nothing to do about %+v", f)
				}
				all := strings.Join([]string{f.Target, f.Evidence, f.Meaning, f.Device, f.Fix}, " ")
				for part := range strings.SplitSeq(tc.says, "|") {
					if !strings.Contains(all, part) {
						t.Errorf("it does not say %q:\n%+v", part, f)
					}
				}
				return
			}
			if tc.class != OK {
				t.Errorf("no finding of class %s and status %s: %+v", tc.class, tc.status, r.Findings)
			}
		})
	}
}

// Every class occurs in some case.
func TestEveryClassIsReached(t *testing.T) {
	reached := map[Class]bool{}
	for _, tc := range cases {
		reached[tc.class] = true
	}
	exits := map[int]Class{}
	for _, row := range ClassTable() {
		if !reached[row.Class] {
			t.Errorf("no case for class %s", row.Class)
		}
		if row.Exit == 0 {
			continue
		}
		if other, taken := exits[row.Exit]; taken || row.Exit < 10 || row.Exit > 63 {
			t.Errorf("%s ends with status %d, and so does %s", row.Class, row.Exit, other)
		}
		exits[row.Exit] = row.Class
	}
}

// A failure hides those in the layers above: of several the lowest layer is named.
func TestTheLowestLayerIsNamed(t *testing.T) {
	failed := func(c Class) Finding { return Finding{Status: Failed, Class: c} }
	warned := func(c Class) Finding { return Finding{Status: Warning, Class: c} }
	for _, tc := range []struct {
		all  []Finding
		want Class
	}{
		{nil, OK},
		{[]Finding{warned(NAT), warned(UDPBlocked)}, UDPBlocked},
		{[]Finding{warned(NAT), failed(NoPath)}, NoPath},
		{[]Finding{failed(HelperSocket), failed(TCPDropped)}, TCPDropped},
		{[]Finding{failed(TLSBroken), failed(Clock)}, Clock},
	} {
		if got := Overall(tc.all); got != tc.want {
			t.Errorf("%+v: %s, want %s", tc.all, got, tc.want)
		}
	}
}

func TestFirewallRequest(t *testing.T) {
	o := healthy()
	at(1, Connection{Outcome: Silent})(&o)
	delete(o.UDP.Seen, addr("203.0.113.2:3478"))
	o.Inbound.Outcome, o.Inbound.Arrived = Silent, false
	got := map[string]string{}
	for _, r := range FirewallRequest(o) {
		if r.Source == "" || r.Destination == "" || r.Reason == "" {
			t.Errorf("incomplete: %+v", r)
		}
		got[strings.Join([]string{r.Protocol, r.Direction, r.Source, r.Destination, r.Port}, " ")] = r.Seen
	}
	for rule, seen := range map[string]string{
		"TCP inside 10.1.0.11 gw.sitea 7440":      passes,
		"TCP outbound 10.1.0.11 203.0.113.2 443":  passes,
		"TCP outbound 10.1.0.11 203.0.113.3 443":  blocked,
		"UDP outbound 10.1.0.11 203.0.113.2 3478": blocked,
		"UDP outbound 10.1.0.11 203.0.113.3 3478": passes,
		"TCP inbound the peers' sites 10.1.0.11 a range of your choice, about 100 per node (profile.ports)": blocked,
	} {
		if got[rule] != seen {
			t.Errorf("%s: %q, want %q; all: %v", rule, got[rule], seen, got)
		}
	}
	var b strings.Builder
	if err := Conclude(o).Print(&b, true); err != nil || !strings.Contains(b.String(), "Please open (nothing works without):\n  TCP outbound, from 10.1.0.11 to 203.0.113.3, port 443") {
		t.Errorf("%v:\n%s", err, b.String())
	}
	o.Path, o.IPv6 = sized(0), []Reflector{overSix("[2001:db8::1]:9")}
	o.Path.Rate = limitedAt(1_000_000)
	o.Reflectors[0].Bulk = Bulk{Tried: true, Smaller: 1360}
	o.Reflectors[0].Seen = addr("192.0.2.1:30000")
	further := fmt.Sprint(FirewallRequest(o))
	for _, part := range []string{"{any router 10.1.0.11 type 3 code 4 ICMP inbound", "{2001:db8::1 the peers' sites (IPv6) 1024-65535 UDP", "please without a limit", "forward them too"} {
		if !strings.Contains(further, part) {
			t.Errorf("no %q in %s", part, further)
		}
	}
	o.Session.Profile.GatewayOnly = true
	if rules := FirewallRequest(o); len(rules) != 1 || rules[0].Direction != "inside" {
		t.Errorf("a node behind its gateway asks for %+v", rules)
	}
}

func FuzzAnswer(f *testing.F) {
	transaction := []byte("0123456789ab")
	good := append([]byte{1, 1, 0, 12, 0x21, 0x12, 0xA4, 0x42}, transaction...)
	good = append(good, 0, 0x20, 0, 8, 0, 1, 0x21^0x75, 0x12^0x30, 0x21^10, 0x12^1, 0xA4, 0x42^11)
	if got, err := answer(good, transaction); err != nil || got != addr("10.1.0.11:30000") {
		f.Fatalf("%v, %v", got, err)
	}
	if got, err := answer(good, []byte("another one!")); err == nil {
		f.Fatalf("the answer to another question reads as %v", got)
	}
	f.Add(good)
	f.Fuzz(func(t *testing.T, b []byte) {
		if a, err := answer(b, transaction); err == nil && !a.Addr().IsValid() {
			t.Errorf("%x: no address and no error", b)
		}
	})
}
