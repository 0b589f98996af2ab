package frontal

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/carrier/multihome"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/daemon/daemontest"
	"github.com/isthmus-grid/isthmus/internal/policy/netrule"
	"github.com/isthmus-grid/isthmus/overlay"
)

func TestSampleSettings(t *testing.T) { daemontest.Sample[Config](t, "isthmus-frontal") }

// TestSettingsAreChecked changes one line of valid settings at a time.
func TestSettingsAreChecked(t *testing.T) {
	const good = `site: sitea
broker: broker.example.org:443
tls: {cert: c, key: k, ca: a}
listen: 10.1.0.1:7440
data_listen: 10.1.0.1:7441
public_listen: 192.0.2.1:20000
profile:
  inbound: ports
  ports: {first: 20000, last: 20999}
  gateway_only: true
`
	if _, err := daemon.Parse[Config]("f.yaml", []byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ old, new, want string }{
		{"site: sitea", "site: Site A", `site: site name "Site A": byte 0 is 'S'`},
		{"broker.example.org:443", "broker.example.org", "broker: want host:port"},
		{"data_listen: 10.1.0.1:7441\n", "", "data_listen: with profile.gateway_only the gateway carries the nodes' data; give the address to accept it on"},
		{"data_listen: 10.1.0.1", "data_listen: 0.0.0.0", "data_listen: 0.0.0.0:7441 is not an address that nodes could dial"},
		{"data_listen: 10.1.0.1", "data_listen: 127.0.0.1", "data_listen: 127.0.0.1:7441 (loopback) is not an address that other hosts can dial"},
		{"data_listen: 10.1.0.1", "data_listen: 169.254.3.4", "data_listen: 169.254.3.4:7441 (link-local) is not an address"},
		{"192.0.2.1:20000", "127.0.0.1:20000", "public_address: 127.0.0.1:20000 (loopback) is not an address that other sites can dial"},
		{"192.0.2.1:20000", "192.0.2.1:20000\npublic_address: '[::1]:20000'", "public_address: [::1]:20000 (loopback) is not an address"},
		{"public_listen: 192.0.2.1:20000\n", "", "public_listen: profile.inbound is ports for a gateway_only site; give the address on which the gateway accepts inbound connections"},
		{"192.0.2.1:20000", "192.0.2.1:443", "public_listen: port 443 is outside profile.ports 20000-20999"},
		{"192.0.2.1:20000", "0.0.0.0:20000", "public_address: public_listen is 0.0.0.0:20000; give the address at which other sites reach it"},
		{"gateway_only: true", "gateway_only: false", "data_listen: only a site with profile.gateway_only: true needs it"},
		{"gateway_only: true", "gateway_only: false", "public_listen: only a site with profile.gateway_only: true and inbound connections needs it"},
		{"inbound: ports", "inbound: open", "profile: ports 20000-20999 are given, but inbound is open"},
		{"gateway_only: true", "gateway_only: true\n  egress: http-proxy", "http_proxy.address: profile.egress is http-proxy, so the proxy must be named"},
		{"profile:", "encryption: {plain_with: [Site B]}\nprofile:", `encryption.plain_with: site name "Site B": byte 0 is 'S'`},
		{"profile:", "encryption: {plain_with: [sitea]}\nprofile:", "encryption.plain_with: sitea is this site; use encryption.same_site for traffic within it"},
		{"profile:", "encryption: {between: true}\nprofile:", "between"},
		{"profile:", "http_proxy: {address: proxy}\nprofile:", "http_proxy.address: want host:port"},
		{"public_listen: 192.0.2.1:20000\nprofile:\n  inbound: ports\n  ports: {first: 20000, last: 20999}", "public_address: 192.0.2.1:20000\nprofile:", "public_address: it needs public_listen, which is not set"},
	} {
		_, err := daemon.Parse[Config]("f.yaml", []byte(strings.Replace(good, tc.old, tc.new, 1)))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: got %v, want %q", tc.new, err, tc.want)
		}
	}
}

// Helpers receive what the admin sets.
func TestEncryption(t *testing.T) {
	const base = "site: sitea\nbroker: broker.example.org:443\ntls: {cert: c, key: k, ca: a}\nlisten: 10.1.0.1:7440\n"
	for text, want := range map[string]overlay.Encryption{
		"": overlay.DefaultEncryption(),
		"encryption: {other_sites: false, same_site: true}": {SameSite: true},
		"encryption: {plain_with: [siteb, sitec]}":          {OtherSites: true, PlainWith: []overlay.SiteID{"siteb", "sitec"}},
	} {
		c, err := daemon.Parse[Config]("f.yaml", []byte(base+text))
		if err != nil {
			t.Fatal(err)
		}
		if got := control.EncryptionFromPB(control.EncryptionToPB(c.Encryption.policy())); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
	if got := control.EncryptionFromPB(nil); !reflect.DeepEqual(got, overlay.DefaultEncryption()) {
		t.Errorf("a frontal that says nothing: %+v", got)
	}
}

// Neither gateway nor helpers look for processes of other sites on the networks that the gateway is in, but on one host.
func TestGatewayNetworks(t *testing.T) {
	own := netrule.Networks(multihome.Prefixes())
	if len(own) == 0 {
		t.Skip("this host is in no network")
	}
	for listen, want := range map[string][]netip.Prefix{"127.0.0.1:7440": nil, "10.1.0.1:7440": own} {
		c := Config{Listen: netip.MustParseAddrPort(listen)}
		if got := c.networks(); !slices.Equal(got, want) || !slices.Equal(c.gateway().Rule.Own, want) {
			t.Errorf("listen %s: %v, the gateway has %v, want %v", listen, got, c.gateway().Rule.Own, want)
		}
	}
}
