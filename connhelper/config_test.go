package connhelper

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/carrier/multihome"
	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/daemon/daemontest"
	"github.com/isthmus-grid/isthmus/internal/policy/netrule"
	"github.com/isthmus-grid/isthmus/launch/nodeservice"
	"github.com/isthmus-grid/isthmus/overlay"
)

func TestSample(t *testing.T) { daemontest.Sample[Config](t, "isthmus-helper") }

// An address at which no other node can dial this one is refused, in either key.
func TestOwnAddressIsChecked(t *testing.T) {
	const good = "frontal: 127.0.0.1:7440\ntls: {cert: c, key: k, ca: a}\n"
	for text, want := range map[string]string{
		"":                         "",
		"address: 10.1.0.11":       "",
		"address: '2001:db8::1'":   "",
		"advertise: 198.51.100.11": "",
		"address: 127.0.0.1":       "address: 127.0.0.1 (loopback) is not an address that other nodes can dial; give one that they can, or remove the key",
		"address: '::1'":           "address: ::1 (loopback) is not an address",
		"address: 0.0.0.0":         "address: 0.0.0.0 (unspecified) is not an address",
		"address: 169.254.3.4":     "address: 169.254.3.4 (link-local) is not an address",
		"advertise: 127.0.0.53":    "advertise: 127.0.0.53 (loopback) is not an address",
		"advertise: 224.0.0.1":     "advertise: 224.0.0.1 (multicast) is not an address",
		"{address: 127.0.0.1, allow_loopback: true, frontal: '127.0.0.1:1', tls: {cert: c, key: k, ca: a}}": "",
		"{address: 0.0.0.0, allow_loopback: true, frontal: '127.0.0.1:1', tls: {cert: c, key: k, ca: a}}":   "address: 0.0.0.0 (unspecified) is not an address",
	} {
		if !strings.HasPrefix(text, "{") {
			text = good + text
		}
		_, err := daemon.Parse[Config]("h.yaml", []byte(text))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// A node's own address is one that it has and that others can send to, where there is one.
func TestOwnAddress(t *testing.T) {
	at := netip.MustParseAddr
	lan, loopback, none := at("10.1.0.11"), at("127.0.0.1"), netip.Addr{}
	has := func(ip netip.Addr) bool { return ip == lan || ip == loopback }
	outward := func(ip netip.Addr) netip.Addr {
		if ip == loopback {
			return lan
		}
		return ip
	}
	alone := func(ip netip.Addr) netip.Addr { return ip }
	for name, c := range map[string]struct {
		set, facing netip.Addr
		oneHost     bool
		outward     func(netip.Addr) netip.Addr
		want        netip.Addr
		doubt       string
	}{
		"as the frontal is reached":               {none, lan, false, outward, lan, ""},
		"a frontal on this host":                  {none, loopback, false, outward, lan, ""},
		"a frontal on this host, which is a grid": {none, loopback, true, outward, loopback, ""},
		"a host without any other":                {none, loopback, false, alone, loopback, "from a loopback address, and this host has no other"},
		"as set":                                  {lan, loopback, false, outward, lan, ""},
		"another host's":                          {at("10.9.9.9"), lan, false, outward, lan, "this host does not have 10.9.9.9"},
		"another host's, beside the frontal":      {at("10.9.9.9"), loopback, false, outward, lan, "this host does not have 10.9.9.9"},
	} {
		got, doubt := ownAddress(c.set, c.facing, c.oneHost, has, c.outward)
		if got != c.want || !strings.Contains(doubt, c.doubt) || (doubt == "") != (c.doubt == "") {
			t.Errorf("%s: %v, %q; want %v, %q", name, got, doubt, c.want, c.doubt)
		}
	}
}

// A node that offers jobs needs a store on which programs can be started: its settings are wrong
// otherwise, for whoever reads them.
func TestStoreOnWhichNothingRuns(t *testing.T) {
	if nodeservice.CheckStore("/proc") == nil {
		t.Skip("/proc is not mounted noexec here")
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		jobs  int
		store string
		cache string // $CACHE_DIRECTORY
		wrong bool
	}{
		{1, "/proc/store", "", true},
		{1, "", "/proc/cache", true},
		{1, t.TempDir(), "/proc/cache", false},
		{0, "/proc/store", "", false},
	} {
		t.Setenv("CACHE_DIRECTORY", tc.cache)
		text := fmt.Sprintf("{frontal: 'a:1', tls: {cert: %s, key: %[1]s, ca: %[1]s}, offer: {jobs: %d}, node_service: {store: %q}}", file, tc.jobs, tc.store)
		c, err := daemon.Parse[Config]("helper.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		err = c.CheckFiles() // which finds the certificate wrong as well
		if is := err != nil && strings.Contains(err.Error(), "node_service.store") && strings.Contains(err.Error(), "noexec"); is != tc.wrong {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}

// A node that reaches its frontal over IPv6 listens for other sites over IPv4 as well, where these may
// dial it there.
func TestNeedsIPv4Port(t *testing.T) {
	four, six, none := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1"), netip.Addr{}
	inside := overlay.SiteProfile{IPv6: true, Inbound: overlay.InboundOpen}
	change := func(f func(*overlay.SiteProfile)) overlay.SiteProfile { p := inside; f(&p); return p }
	for _, tc := range []struct {
		what         string
		local, other netip.Addr
		profile      overlay.SiteProfile
		want         bool
	}{
		{"over IPv6", six, four, inside, true},
		{"over IPv6, a range of ports", six, four, change(func(p *overlay.SiteProfile) { p.Inbound = overlay.InboundPorts }), true},
		{"over IPv4", four, six, inside, false},
		{"without IPv4", six, none, inside, false},
		{"a site that lets nobody in", six, four, change(func(p *overlay.SiteProfile) { p.Inbound = overlay.InboundNone }), false},
		{"a site of IPv6 alone", six, four, change(func(p *overlay.SiteProfile) { p.IPv6Only = true }), false},
		{"a profile that is about IPv6", six, four, change(func(p *overlay.SiteProfile) { p.IPv6 = false }), false},
		{"a node behind its gateway", six, four, change(func(p *overlay.SiteProfile) { p.GatewayOnly = true }), false},
	} {
		if got := needsIPv4Port(tc.local, tc.other, tc.profile); got != tc.want {
			t.Errorf("%s: %v", tc.what, got)
		}
	}
}

// A helper knows the networks that its host is in, except for a grid on one host.
func TestHostAddresses(t *testing.T) {
	if all := multihome.Prefixes(); !slices.ContainsFunc(all, func(p netip.Prefix) bool { return p.Addr().IsLoopback() }) {
		t.Skipf("no loopback address among %v", all)
	}
	want := append([]netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}, netrule.Networks(multihome.Prefixes())...)
	if got, err := (Options{}).networks([]string{"198.51.100.0/24"}); err != nil || !slices.Equal(got, want) {
		t.Errorf("its own networks and the gateway's are %v, %v, want %v", got, err, want)
	}
	if got, err := (Options{AllowLoopback: true}).networks([]string{"198.51.100.0/24"}); err != nil || got != nil {
		t.Errorf("a grid on one host has own networks %v, %v", got, err)
	}
}

// A process of another site is not dialled on the networks of the gateway, which the frontal names; a proxy may be there.
func TestNetworksOfTheGateway(t *testing.T) {
	d := &outbound{}
	f := &frontal{networks: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("192.0.2.0/24")}}
	for _, tc := range []struct {
		addr    string
		foreign bool
		ok      bool
	}{
		{"198.51.100.80:443", true, false}, {"192.0.2.80:443", true, false}, {"203.0.113.80:443", true, true}, {"198.51.100.80:443", false, true},
	} {
		if err := d.checkAddress(f, tc.addr, journey{foreign: tc.foreign, proxy: !tc.foreign}); (err == nil) != tc.ok {
			t.Errorf("%s, foreign %t: %v", tc.addr, tc.foreign, err)
		}
	}
}
