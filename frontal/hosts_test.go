package frontal

import (
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/launch/offer"
	"github.com/isthmus-grid/isthmus/overlay"
)

func hostOf(site overlay.SiteID, node string, state offer.State, silent time.Duration) offer.Host {
	return offer.Host{Node: overlay.NodeID{Site: site, Name: node}, State: state, Silent: silent, Offer: offer.Offer{Jobs: 1, Processes: 4}}
}

func TestSiteHosts(t *testing.T) {
	h, zero := newSiteHosts("sitea"), time.Unix(1_000_000, 0)
	o := offer.Offer{Jobs: 1, Processes: 4}
	enter := func(node string, session any, o offer.Offer, changes bool) {
		t.Helper()
		if changed, err := h.enter(node, session, o); err != nil || changed != changes {
			t.Errorf("%s on %v: changed %v, want %v; %v", node, session, changed, changes, err)
		}
	}
	enter("n2", 1, o, true)
	enter("n1", 2, o, true)
	enter("n1", 2, o, false)                              // again, on the same session
	enter("n1", 3, o, false)                              // a session takes the place of another
	enter("n1", 3, offer.Offer{Jobs: 2}, true)            // another offer
	enter("n1", 3, o, true)                               // as before
	if h.leave("n1", 2, zero) || h.leave("n3", 2, zero) { // the one that was replaced
		t.Error("the end of a session that is no node's changed the list")
	}
	if !h.leave("n1", 3, zero) || h.leave("n1", 3, zero.Add(time.Hour)) {
		t.Error("a node leaves once")
	}
	want := []offer.Host{hostOf("sitea", "n1", offer.Away, 61*time.Second), hostOf("sitea", "n2", offer.Up, 0)}
	if got := h.list(zero.Add(61 * time.Second)); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	h.expire(zero.Add(hostsKept - 1))
	if len(h.of) != 2 {
		t.Error("forgotten too early")
	}
	h.expire(zero.Add(hostsKept))
	if got := h.list(zero.Add(hostsKept)); !reflect.DeepEqual(got, want[1:]) {
		t.Errorf("after an hour: %v", got)
	}
	h.max = 1
	enter("n2", 4, o, false)
	if _, err := h.enter("n9", 5, o); err == nil {
		t.Error("more than the most")
	}
}

func TestHostsWith(t *testing.T) {
	own := []offer.Host{hostOf("sitea", "n1", offer.Up, 0)}
	list := []offer.Host{
		hostOf("sitea", "n0", offer.Up, 0), hostOf("sitea", "n1", offer.Away, time.Hour),
		hostOf("siteb", "n1", offer.Up, 0), hostOf("siteb", "n2", offer.Away, time.Second),
	}
	for _, tc := range []struct {
		age  time.Duration
		want []offer.Host
	}{
		{0, []offer.Host{own[0], list[2], list[3]}},
		{hostsDoubt - time.Second, []offer.Host{own[0], list[2], hostOf("siteb", "n2", offer.Away, hostsDoubt)}},
		{hostsDoubt, []offer.Host{own[0], hostOf("siteb", "n1", offer.Unknown, hostsDoubt), hostOf("siteb", "n2", offer.Unknown, hostsDoubt+time.Second)}},
	} {
		if got := hostsWith(list, tc.age, "sitea", own); !reflect.DeepEqual(got, tc.want) {
			t.Errorf("after %v:\n got %v\nwant %v", tc.age, got, tc.want)
		}
	}
}

// What helpers offer reaches the broker, and what the broker lists reaches
// them, whoever of them asks and while the broker is away.
func TestHostsPassThrough(t *testing.T) {
	r := newRig(t, nil)
	far := []offer.Host{hostOf("sitea", "n1", offer.Away, time.Hour), hostOf("siteb", "n1", offer.Up, 0)}
	r.broker.locked(func() { r.broker.hosts = offer.ListToPB(far) })
	a, b := r.helper("n1"), r.helper("n2")
	for _, h := range []*fakeHelper{a, b} {
		if _, err := h.nodes.Enter(h.ctx(), &controlpb.EnterRequest{Offer: hostOf("sitea", h.node, offer.Up, 0).Offer.ToPB()}); err != nil {
			t.Fatal(err)
		}
	}
	told := func(what string, states ...offer.State) {
		t.Helper()
		r.until(what, func() (ok bool) {
			r.broker.locked(func() {
				if len(r.broker.told) == 0 {
					return
				}
				list, err := offer.ListFromPB(r.broker.told[len(r.broker.told)-1])
				if err != nil {
					t.Error(err)
				}
				ok = len(list) == len(states)
				for i := range list {
					ok = ok && list[i].State == states[i]
				}
			})
			return ok
		})
	}
	told("the broker is told of both nodes", offer.Up, offer.Up)

	all := []offer.Host{hostOf("sitea", "n1", offer.Up, 0), hostOf("sitea", "n2", offer.Up, 0), far[1]}
	var askers sync.WaitGroup
	for range 20 {
		askers.Go(func() {
			if got := b.hosts(); !reflect.DeepEqual(got, all) {
				t.Errorf("got %v, want %v", got, all)
			}
		})
	}
	askers.Wait()
	r.broker.locked(func() {
		if r.broker.listed > 1+int(time.Since(r.f.start)/hostsAge) {
			t.Errorf("the broker was asked %d times", r.broker.listed)
		}
	})

	a.s.Close()
	told("the broker is told that a node is away", offer.Away, offer.Up)
	r.broker.stop()
	r.until("the frontal has no broker", func() bool { return !r.f.up.Up() })
	r.f.hosts.askAgain()
	got := b.hosts()
	if len(got) != 3 || got[0].State != offer.Away || got[1].State != offer.Up || got[2] != far[1] {
		t.Errorf("while the broker is away: %v", got)
	}

	r.broker.locked(func() { r.broker.told = nil })
	r.broker.start()
	told("a new broker is told", offer.Away, offer.Up)
}

func (h *fakeHelper) hosts() []offer.Host {
	m, err := h.dir.Hosts(h.ctx(), &controlpb.HostsRequest{})
	if err != nil {
		h.r.t.Error(err)
		return nil
	}
	list, err := offer.ListFromPB(m)
	if err != nil {
		h.r.t.Error(err)
	}
	return list
}

// A node that does not say what it offers, or nonsense, is not listed, and not
// kept from its work either.
func TestHostsLeftOut(t *testing.T) {
	r := newRig(t, nil)
	for node, o := range map[string]*controlpb.HostOffer{"old": nil, "mad": {Jobs: 1 << 31}} {
		h := r.helper(node)
		if _, err := h.nodes.Enter(h.ctx(), &controlpb.EnterRequest{Offer: o}); err != nil {
			t.Error(err)
		}
	}
	if list := r.f.hosts.ownList(); len(list) != 0 {
		t.Errorf("listed: %v", list)
	}
}
