package registry

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/broker/decide"
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
		{Need{Prefer4: true, Proxy: decide.Need{Only443: true}}, "six"}, // there is no other
	} {
		if o, err := m.Assign(LeastLoaded, tc.need); err != nil || o.Name != tc.want {
			t.Errorf("%+v: %v, %v, want %s", tc.need, o.Name, err, tc.want)
		}
	}
}

// TestKinds: a kind of proxy counts while one has a session, and for a while after that.
func TestKinds(t *testing.T) {
	m := NewProxies(10)
	start := time.Unix(1000, 0)
	check := func(what string, now time.Time, want ...decide.ProxyKind) {
		t.Helper()
		if got := m.Kinds(now); got == nil || !slices.Equal(got, want) {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
	}
	four := proxyOffer("p1", 443, 0, 2)
	both := proxyOffer("p2", 8443, 0, 2)
	both.Addresses = append(both.Addresses, netip.MustParseAddrPort("[2001:db8::1]:443"))
	only4, with6 := decide.ProxyKind{Port443: true, IPv4: true}, decide.ProxyKind{Port443: true, IPv4: true, IPv6: true}
	check("none", start)
	m.Offer(four, 1)
	m.Offer(both, 2)
	m.Offer(both, 2)
	check("two", start, only4, with6)
	m.Leave(2, start)
	check("one restarts", start.Add(kindLife-1), only4, with6)
	check("and does not come back", start.Add(kindLife), only4)
	m.Offer(both, 3)
	both.Addresses = four.Addresses
	m.Offer(both, 3)
	check("its admin removed an address", start.Add(kindLife), only4)
}

func TestAssign(t *testing.T) {
	m := NewProxies(10)
	_, err := m.Assign(LeastLoaded, Need{})
	wantErr(t, "no proxy", err, overlay.ErrNoRelay, "no proxy is available: no proxy has a session with the broker; start one, or look at its log")
	m.Offer(proxyOffer("p1", 8443, 0, 2), 11)
	_, err = m.Assign(LeastLoaded, Need{Proxy: decide.Need{Only443: true}})
	wantErr(t, "no 443", err, overlay.ErrNoRelay, "no proxy is available: no proxy offers an address of port 443, and a site lets only that out; add one to a proxy's advertise")
	_, err = m.Assign(LeastLoaded, Need{Proxy: decide.Need{IPv6: true, IPv4: true}})
	wantErr(t, "no IPv6", err, overlay.ErrNoRelay, "no proxy is available: one site has nothing but IPv6, the other has IPv4, and no proxy that they can reach advertises an address of each; add both to a proxy's advertise")
	six := netip.MustParseAddrPort("[2001:db8::1]:443")
	m.Offer(Offer{Name: "p3", Addresses: []netip.AddrPort{six}, Capacity: 9}, 13)
	if o, err := m.Assign(LeastLoaded, Need{Proxy: decide.Need{IPv6: true}}); err != nil || o.Name != "p3" {
		t.Errorf("IPv6 alone: %v, %v", o.Name, err)
	}
	if o, err := m.Assign(LeastLoaded, Need{Proxy: decide.Need{IPv6: true, IPv4: true}}); err == nil {
		t.Errorf("both: %v", o.Name)
	}
	m.Offer(Offer{Name: "p3", Addresses: append(proxyOffer("", 443, 0, 0).Addresses, six), Capacity: 9}, 13)
	if o, err := m.Assign(LeastLoaded, Need{Proxy: decide.Need{IPv6: true, IPv4: true}}); err != nil || o.Name != "p3" {
		t.Errorf("both: %v, %v", o.Name, err)
	}
	m.Leave(13, time.Time{})
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
	if o, err := m.Assign(LeastLoaded, Need{Proxy: decide.Need{Only443: true}}); err != nil || o.Name != "p2" {
		t.Errorf("%v, %v", o.Name, err)
	}
	m.Leave(12, time.Time{}) // dead
	m.Offer(proxyOffer("p1", 8443, 0, 2), 13)
	m.Leave(11, time.Time{}) // the session that 13 replaced
	if o, err := m.Assign(RoundRobin, Need{}); err != nil || o.Name != "p1" {
		t.Errorf("%v, %v", o.Name, err)
	}
}

// silentAndGood returns proxies of which the silent one claims the most, and a function that fails the test unless the
// node gets the wanted one.
func silentAndGood(t *testing.T) (x *Proxies, gets func(site overlay.SiteID, node, want string, now time.Time)) {
	x = NewProxies(10)
	offerOf(t, x, "silent", 1<<31, 1)
	offerOf(t, x, "good", 100, 2)
	return x, func(site overlay.SiteID, node, want string, now time.Time) {
		t.Helper()
		x.proxies["good"].pending, x.proxies["silent"].pending = 1, 0 // and so it is the fuller one
		if got, err := x.Assign(LeastLoaded, Need{Site: site, Node: node, Now: now}); err != nil || got.Name != want {
			t.Errorf("%s/%s gets %s, %v, want %s", site, node, got.Name, err, want)
		}
	}
}

func offerOf(t *testing.T, x *Proxies, name string, capacity int, holder Holder) {
	t.Helper()
	if _, err := x.Offer(Offer{Name: name, Capacity: capacity}, holder); err != nil {
		t.Fatal(err)
	}
}

// A proxy that claims any capacity and carries nothing is left to last by the site that has learned so, for ever
// longer, and by no other; it does not become new by a new session. The site is one node, or a frontal that names none.
func TestSilentProxy(t *testing.T) {
	for _, node := range []string{"", "a1"} {
		x, gets := silentAndGood(t)
		by, now := overlay.NodeID{Site: "a", Name: node}, time.Unix(1_000_000, 0)
		gets("a", "a1", "silent", now)
		for _, length := range []time.Duration{firstFailing, 2 * firstFailing, 4 * firstFailing} {
			for range 20 {
				x.Failed(by, "silent", now)
			}
			gets("a", "a1", "good", now)
			gets("b", "a1", "silent", now)
			x.Leave(1, time.Time{})
			offerOf(t, x, "silent", 1<<31, 1)
			now = now.Add(length - 1)
			gets("a", "a1", "good", now)
			now = now.Add(1)
			gets("a", "a1", "silent", now)
		}
		x.Failed(by, "silent", now)
		x.Leave(2, time.Time{})
		if got, err := x.Assign(LeastLoaded, Need{Site: "a", Node: "a1", Now: now}); err != nil || got.Name != "silent" {
			t.Errorf("the only one: %s, %v", got.Name, err)
		}
	}
}

// What one node says of a proxy counts for that node, however often it says so; a second one's word at that time counts
// for the site.
func TestOneNodesWordOfAProxy(t *testing.T) {
	x, gets := silentAndGood(t)
	now := time.Unix(1_000_000, 0)
	failed := func(node string) { x.Failed(overlay.NodeID{Site: "a", Name: node}, "silent", now) }
	var length time.Duration
	for range 20 { // of a hostile node
		failed("a1")
		failed("a1")
		length = x.failing[failingKey{"a", "silent"}].nodes["a1"].length
		gets("a", "a1", "good", now)
		gets("a", "a2", "silent", now)
		now = now.Add(length)
	}
	if length != longFailing {
		t.Errorf("left to last for %v, want %v", length, longFailing)
	}
	failed("a2") // the other's time is over
	gets("a", "a2", "good", now)
	gets("a", "a3", "silent", now)
	failed("a1")
	gets("a", "a3", "good", now)
	gets("b", "a3", "silent", now)
	now = now.Add(firstFailing)
	gets("a", "a3", "silent", now)
	failed("a3") // that of a1 is not
	gets("a", "a4", "good", now)
	now = now.Add(2*firstFailing - 1)
	gets("a", "a4", "good", now)
	now = now.Add(1)
	gets("a", "a4", "silent", now)
}

// What is remembered of failures is bounded, by site and in all, and of any number of nodes that say so each has its relief.
func TestFailuresAreBounded(t *testing.T) {
	x, gets := silentAndGood(t)
	now := time.Unix(1_000_000, 0)
	for day := range 2 {
		for i := range 10 * maxWitnesses {
			node := fmt.Sprint("day", day, "n", i)
			x.Failed(overlay.NodeID{Site: "a", Name: node}, "silent", now)
			gets("a", node, "good", now)
		}
		if n := len(x.failing[failingKey{"a", "silent"}].nodes); n != maxWitnesses {
			t.Errorf("%d nodes are remembered", n)
		}
		now = now.Add(2 * firstFailing)
	}
	for i := range maxFailing + 10 {
		x.Failed(overlay.NodeID{Site: overlay.SiteID(fmt.Sprint("s", i)), Name: "n1"}, "silent", now)
	}
	x.Failed(overlay.NodeID{Site: "a", Name: "a1"}, "invented", now)
	if n := len(x.failing); n != maxFailing {
		t.Errorf("%d failures are remembered", n)
	}
	now = now.Add(2 * longFailing)
	x.Failed(overlay.NodeID{Site: "new"}, "silent", now)
	if n := len(x.failing); n != 1 {
		t.Errorf("%d failures are remembered when the others are forgotten", n)
	}
}

// A proxy gets as many links as others until sites have reported that it carries more: its own word for its
// capacity, and for its links, does not count beyond what it was assigned.
func TestCapacityIsMeasured(t *testing.T) {
	x := NewProxies(10)
	offer := func(name string, capacity, live int, holder Holder) {
		t.Helper()
		if _, err := x.Offer(Offer{Name: name, Capacity: capacity, Live: live}, holder); err != nil {
			t.Fatal(err)
		}
	}
	shares := func(n int) (large int) {
		t.Helper()
		for range n {
			got, err := x.Assign(LeastLoaded, Need{})
			if err != nil {
				t.Fatal(err)
			}
			if got.Name == "large" {
				large++
			}
		}
		return large
	}
	offer("large", 1<<32-1, 0, 1)
	offer("small", 1000, 0, 2)
	if n := shares(200); n != 100 {
		t.Errorf("of 200 links %d go to the one that claims more", n)
	}
	offer("large", 1<<32-1, 1<<31, 1)
	x.Worked("large")
	x.Worked("gone")
	offer("large", 1<<32-1, 0, 1)
	offer("small", 1000, 0, 2)
	if n := shares(264); n != 200 {
		t.Errorf("of 264 links %d go to the one that carried 100 and says more", n)
	}
	offer("large", 80, 70, 1)
	offer("small", 1000, 63, 2)
	if n := shares(1); n != 1 {
		t.Error("the fuller one is taken")
	}
	offer("large", 80, 80, 1)
	offer("small", 1000, 640, 2)
	if n := shares(10); n != 0 {
		t.Error("a full one is taken")
	}
}

// In place of a proxy that is in doubt another one is assigned, or none: not itself, and none that failed.
func TestOtherProxy(t *testing.T) {
	x := NewProxies(10)
	now := time.Unix(1_000_000, 0)
	for i, name := range []string{"p1", "p2", "p3"} {
		if _, err := x.Offer(Offer{Name: name, Capacity: 10, Limited: true}, Holder(i+1)); err != nil {
			t.Fatal(err)
		}
	}
	site := overlay.NodeID{Site: "a"}
	x.Failed(site, "p3", now)
	for range 5 {
		if got, err := x.Assign(LeastLoaded, Need{Site: "a", Now: now, OtherThan: "p1"}); err != nil || got.Name != "p2" {
			t.Errorf("in place of p1: %s, %v", got.Name, err)
		}
	}
	x.Failed(site, "p2", now)
	for _, need := range []Need{{Site: "a", Now: now, OtherThan: "p1"}, {Site: "b", Owner: "project p", OtherThan: "p1"}} {
		if got, err := x.Assign(LeastLoaded, need); !errors.Is(err, overlay.ErrNoRelay) {
			t.Errorf("%+v: %s, %v", need, got.Name, err)
		}
	}
	if got, err := x.Assign(LeastLoaded, Need{Site: "a", Now: now}); err != nil || got.Name != "p1" {
		t.Errorf("after the two others failed: %s, %v", got.Name, err)
	}
}
