package broker

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/broker/registry"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/launch/offer"
	"github.com/isthmus-grid/isthmus/overlay"
)

func hostOf(site overlay.SiteID, name string, state offer.State, silent time.Duration) offer.Host {
	return offer.Host{Node: overlay.NodeID{Site: site, Name: name}, State: state, Silent: silent, Offer: offer.Offer{Jobs: 1, Processes: 2}}
}

func tell(t *testing.T, h *hosts, holder registry.Holder, now time.Time, list ...offer.Host) {
	t.Helper()
	if err := h.update(list[0].Node.Site, holder, list, now); err != nil {
		t.Fatal(err)
	}
}

func TestHostsLives(t *testing.T) {
	h := newHosts(testLease, 100)
	up, away := hostOf("sitea", "n1", offer.Up, 0), hostOf("sitea", "n2", offer.Away, 5*time.Second)
	tell(t, h, 1, zero, up, away)
	tell(t, h, 2, zero, hostOf("siteb", "n1", offer.Up, 0))
	want := func(when time.Duration, sitea ...offer.Host) {
		t.Helper()
		want := append(sitea, hostOf("siteb", "n1", offer.Up, 0))
		if got := h.all(at(when)); !reflect.DeepEqual(got, want) {
			t.Errorf("after %v\n got %v\nwant %v", when, got, want)
		}
	}
	want(0, up, away)
	want(time.Minute, up, hostOf("sitea", "n2", offer.Away, 65*time.Second))
	h.leave(1, at(time.Minute))
	want(2*time.Minute-1, up, hostOf("sitea", "n2", offer.Away, 124*time.Second)) // the lease is still running
	want(2*time.Minute, hostOf("sitea", "n1", offer.Unknown, time.Minute), hostOf("sitea", "n2", offer.Unknown, 125*time.Second))
	h.expire(at(61*time.Minute - 1))
	want(61*time.Minute-1, hostOf("sitea", "n1", offer.Unknown, time.Hour-time.Second), hostOf("sitea", "n2", offer.Unknown, time.Hour+64*time.Second))
	h.expire(at(61 * time.Minute))
	want(61 * time.Minute)
	if h.count != 1 {
		t.Errorf("%d hosts are counted, 1 is there", h.count)
	}
}

func TestHostsRefusals(t *testing.T) {
	h := newHosts(testLease, 3)
	tell(t, h, 1, zero, hostOf("sitea", "n1", offer.Up, 0), hostOf("sitea", "n2", offer.Up, 0))
	wantErr(t, "another site's", h.update("siteb", 2, []offer.Host{hostOf("sitea", "n1", offer.Up, 0)}, zero),
		overlay.ErrForbidden, "not permitted: sitea/n1 is not of site siteb")
	if err := h.update("siteb", 2, []offer.Host{hostOf("siteb", "n1", offer.Unknown, 0)}, zero); err == nil {
		t.Error("a site's own host may not be unknown to it")
	}
}

// A site that lists hosts without end takes no other site's room: those with the most share what the others
// leave.
func TestHostsHaveShares(t *testing.T) {
	h := newHosts(testLease, 10)
	list := func(site overlay.SiteID, n int) (all []offer.Host) {
		for i := range n {
			all = append(all, hostOf(site, fmt.Sprintf("n%02d", i), offer.Up, 0))
		}
		return all
	}
	want := func(sizes map[overlay.SiteID]int) {
		t.Helper()
		total := 0
		for site, n := range sizes {
			if got := h.bySite(site, zero); len(got) != n || n > 0 && got[n-1].Node.Name != fmt.Sprintf("n%02d", n-1) {
				t.Errorf("%s lists %v, want its first %d", site, got, n)
			}
			total += n
		}
		if h.countAll() != total || len(h.all(zero)) != total {
			t.Errorf("%d hosts are counted, %d listed, want %d", h.countAll(), len(h.all(zero)), total)
		}
	}
	tell(t, h, 1, zero, list("greedy", 10)...)
	tell(t, h, 2, zero, list("b", 2)...)
	want(map[overlay.SiteID]int{"greedy": 8, "b": 2})
	wantErr(t, "too many", h.update("greedy", 1, list("greedy", 20), zero),
		overlay.ErrOverloaded, "overloaded: of the 20 hosts of greedy the first 8 are listed, its share of the limit of 10 (limits.hosts)")
	tell(t, h, 3, zero, list("c", 4)...)
	want(map[overlay.SiteID]int{"greedy": 4, "b": 2, "c": 4})
	tell(t, h, 1, zero, list("greedy", 1)...) // leaves room
	tell(t, h, 2, zero, list("b", 5)...)
	want(map[overlay.SiteID]int{"greedy": 1, "b": 5, "c": 4})
}

// A frontal's sessions with brokers are known while it has one with this broker, and replaced by its
// next report; a report has bounds.
func TestBrokerSessions(t *testing.T) {
	h := newHosts(testLease, 100)
	want := func(want ...BrokerSession) {
		t.Helper()
		if got := h.brokers("sitea"); !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	report := func(sessions ...BrokerSession) {
		tell(t, h, 1, zero, hostOf("sitea", "n1", offer.Up, 0))
		h.setBrokers("sitea", sessions)
	}
	h.setBrokers("sitea", []BrokerSession{{"b2", true}}) // its list was dropped
	want()
	report(BrokerSession{"b1", true}, BrokerSession{"b2", true})
	want(BrokerSession{"b1", true}, BrokerSession{"b2", true})
	report(BrokerSession{"b1", true}, BrokerSession{"b2", false})
	want(BrokerSession{"b1", true}, BrokerSession{"b2", false})
	h.leave(1, zero)
	want()

	got, err := brokerSessions([]*controlpb.BrokerSession{{Broker: "b2", Open: true}, {Broker: "b3"}})
	if err != nil || !slices.Equal(got, []BrokerSession{{"b2", true}, {"b3", false}}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range [][]*controlpb.BrokerSession{{{Broker: "<b>"}}, {{}}, slices.Repeat([]*controlpb.BrokerSession{{Broker: "b"}}, maxSiteBrokers+1)} {
		if got, err := brokerSessions(bad); err == nil {
			t.Errorf("%v was taken for %v", bad, got)
		}
	}
}

// told is one event, for the model, which computes each answer from the complete history.
type told struct {
	when   time.Time
	site   overlay.SiteID
	holder registry.Holder
	list   []offer.Host // nil: the session ended
}

func modelHosts(events []told, now time.Time) (all []offer.Host) {
	for _, site := range []overlay.SiteID{"s0", "s1", "s2"} {
		var last, left *told
		for i, e := range events {
			switch {
			case e.list != nil && e.site == site:
				last, left = &events[i], nil
			case e.list == nil && last != nil && left == nil && e.holder == last.holder:
				left = &events[i]
			}
		}
		if last == nil || left != nil && now.Sub(left.when) >= hostsKept {
			continue
		}
		for _, one := range last.list {
			if one.State == offer.Away {
				one.Silent += now.Sub(last.when)
			}
			if left != nil && now.Sub(left.when) >= testLease {
				if one.State == offer.Up {
					one.Silent = now.Sub(left.when)
				}
				one.State = offer.Unknown
			}
			all = append(all, one)
		}
	}
	return all
}

func TestHostsAsAModelHasThem(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 7))
		h, now := newHosts(testLease, 1000), zero
		var events []told
		for step := range 200 {
			now = now.Add(time.Duration(r.IntN(1500)) * time.Second / time.Duration(1+r.IntN(60))).Truncate(time.Second)
			e := told{when: now, site: overlay.SiteID(fmt.Sprintf("s%d", r.IntN(3))), holder: registry.Holder(1 + r.IntN(8))}
			if r.IntN(3) > 0 {
				e.list = []offer.Host{}
				for n := range r.IntN(4) {
					e.list = append(e.list, hostOf(e.site, fmt.Sprintf("n%d", n), offer.State(1+r.IntN(2)), 0))
				}
				if err := h.update(e.site, e.holder, slices.Clone(e.list), now); err != nil {
					t.Fatal(err)
				}
			} else {
				h.leave(e.holder, now)
			}
			events = append(events, e)
			h.expire(now)
			got, want := h.all(now), modelHosts(events, now)
			if len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) || h.count != len(want) {
				t.Fatalf("seed %d, step %d: %d counted\n got %v\nwant %v", seed, step, h.count, got, want)
			}
		}
	}
}

func TestHostsCalls(t *testing.T) {
	g := newGrid(t)
	g.start()
	stranger := g.peer(frontalA, nil)
	_, err := stranger.sites.Hosts(g.ctx(), &controlpb.HostList{})
	wantStatus(t, "before joining", err, overlay.ErrUnknownSite, "site is not connected: sitea has not joined on this session, or joined again on another")
	stranger.close()

	a, b := g.frontal(openA, nil), g.frontal(closedB, nil)
	mine := offer.ListToPB([]offer.Host{hostOf("sitea", "n1", offer.Up, 0), hostOf("sitea", "n2", offer.Away, time.Second)})
	mine.Brokers = []*controlpb.BrokerSession{{Broker: "main", Open: true}, {Broker: "b2"}}
	if _, err := a.sites.Hosts(g.ctx(), mine); err != nil {
		t.Fatal(err)
	}
	list, err := b.directory.Hosts(g.ctx(), &controlpb.HostsRequest{})
	got, parseErr := offer.ListFromPB(list)
	if err = errors.Join(err, parseErr); err != nil || len(got) != 2 || got[0].State != offer.Up || got[1].State != offer.Away {
		t.Errorf("%v, %v", got, err)
	}
	if s := g.b.Status().Sites; len(s) != 2 || s[0].Hosts != (offer.Counts{Up: 1, Away: 1}) || !slices.Equal(s[0].Brokers, []BrokerSession{{"main", true}, {"b2", false}}) || s[1].Brokers != nil {
		t.Errorf("status: %+v", s)
	}
	mine.Brokers[1].Broker = "no name"
	if _, err := a.sites.Hosts(g.ctx(), mine); err == nil {
		t.Error("a broker without a valid name was taken")
	}
	mine.Brokers, mine.Hosts[0].Site = nil, "siteb"
	if _, err := a.sites.Hosts(g.ctx(), mine); err == nil {
		t.Error("a list in disorder was taken")
	}
	_, err = g.adminPeer().directory.Hosts(g.ctx(), &controlpb.HostsRequest{})
	wantStatus(t, "an admin", err, overlay.ErrForbidden, "not permitted: this call is for a frontal, and this session is that of admin root")
}
