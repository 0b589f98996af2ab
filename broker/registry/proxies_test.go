package registry

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/isthmus-grid/isthmus/overlay"
)

func proxyOffer(name string, port uint16, live, capacity int) Offer {
	return Offer{Name: name, Addresses: []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr("198.51.100.1"), port)}, Live: live, Capacity: capacity}
}

// A link of a site that may have IPv4 alone goes through a proxy that has it, as long as there is one.
func TestAssignPrefersIPv4(t *testing.T) {
	m := NewProxies(10)
	m.Offer(proxyOffer("four", 8443, 1, 2), 11)
	m.Offer(Offer{Name: "six", Addresses: []netip.AddrPort{netip.MustParseAddrPort("[2001:db8::1]:443")}, Capacity: 9}, 12)
	for _, tc := range []struct {
		need Need
		want string
	}{
		{Need{}, "six"}, // less busy
		{Need{Prefer4: true}, "four"},
		{Need{Prefer4: true, Only443: true}, "six"}, // there is no other
	} {
		if o, err := m.Assign(LeastLoaded, tc.need); err != nil || o.Name != tc.want {
			t.Errorf("%+v: %v, %v, want %s", tc.need, o.Name, err, tc.want)
		}
	}
}

func TestAssign(t *testing.T) {
	m := NewProxies(10)
	_, err := m.Assign(LeastLoaded, Need{})
	wantErr(t, "no proxy", err, overlay.ErrNoRelay, "no proxy is available: no proxy has a session with the broker; start one, or look at its log")
	m.Offer(proxyOffer("p1", 8443, 0, 2), 11)
	_, err = m.Assign(LeastLoaded, Need{Only443: true})
	wantErr(t, "no 443", err, overlay.ErrNoRelay, "no proxy is available: none of the 1 proxies offers an address of port 443, and a site lets only that out")
	_, err = m.Assign(LeastLoaded, Need{IPv6: true, IPv4: true})
	wantErr(t, "no IPv6", err, overlay.ErrNoRelay, "no proxy is available: a site has nothing but IPv6, and none of the 1 proxies that it could use advertises an address of each version of IP that the two sites have; add both to a proxy's advertise")
	six := netip.MustParseAddrPort("[2001:db8::1]:443")
	m.Offer(Offer{Name: "p3", Addresses: []netip.AddrPort{six}, Capacity: 9}, 13)
	if o, err := m.Assign(LeastLoaded, Need{IPv6: true}); err != nil || o.Name != "p3" {
		t.Errorf("IPv6 alone: %v, %v", o.Name, err)
	}
	if o, err := m.Assign(LeastLoaded, Need{IPv6: true, IPv4: true}); err == nil {
		t.Errorf("both: %v", o.Name)
	}
	m.Offer(Offer{Name: "p3", Addresses: append(proxyOffer("", 443, 0, 0).Addresses, six), Capacity: 9}, 13)
	if o, err := m.Assign(LeastLoaded, Need{IPv6: true, IPv4: true}); err != nil || o.Name != "p3" {
		t.Errorf("both: %v, %v", o.Name, err)
	}
	m.Leave(13)
	m.Offer(proxyOffer("p2", 443, 0, 2), 12)
	var names []string
	for range 4 {
		o, err := m.Assign(LeastLoaded, Need{})
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, o.Name)
	}
	if !slices.Equal(names, []string{"p1", "p2", "p1", "p2"}) {
		t.Errorf("chosen %v", names)
	}
	_, err = m.Assign(RoundRobin, Need{})
	wantErr(t, "full", err, overlay.ErrOverloaded, "overloaded: all 2 proxies are full or draining; start another or raise their capacity")
	m.Offer(proxyOffer("p2", 443, 1, 2), 12) // one link ended
	if o, err := m.Assign(LeastLoaded, Need{Only443: true}); err != nil || o.Name != "p2" {
		t.Errorf("%v, %v", o.Name, err)
	}
	m.Leave(12) // dead
	m.Offer(proxyOffer("p1", 8443, 0, 2), 13)
	m.Leave(11) // the session that 13 replaced
	if o, err := m.Assign(RoundRobin, Need{}); err != nil || o.Name != "p1" {
		t.Errorf("%v, %v", o.Name, err)
	}
}
