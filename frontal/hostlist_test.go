package frontal

import (
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/frontal/directory"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/launch/offer"
)

// The helpers' offers reach the broker, and the broker's list reaches every helper that requests
// it, also while the broker is unreachable.
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
		if r.broker.listed > 1+int(time.Since(r.f.start)/directory.HostsAge(0)) {
			t.Errorf("the broker was asked %d times", r.broker.listed)
		}
	})

	a.s.Close()
	told("the broker is told that a node is away", offer.Away, offer.Up)
	r.broker.stop()
	r.until("the frontal has no broker", func() bool { return !r.f.up.Up() })
	r.f.hosts.AskAgain()
	got := b.hosts()
	if m, err := b.dir.Hosts(b.ctx(), &controlpb.HostsRequest{}); err != nil || !strings.Contains(m.Stale, "no session with the broker") {
		t.Errorf("while the broker is away: stale %q, %v", m.GetStale(), err)
	}
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

// A node without an offer, or with an invalid one, is not listed, but its helper works normally.
func TestHostsLeftOut(t *testing.T) {
	r := newRig(t, nil)
	for node, o := range map[string]*controlpb.HostOffer{"old": nil, "mad": {Jobs: 1 << 31}} {
		h := r.helper(node)
		if _, err := h.nodes.Enter(h.ctx(), &controlpb.EnterRequest{Offer: o}); err != nil {
			t.Error(err)
		}
	}
	if list := r.f.hosts.Own(); len(list) != 0 {
		t.Errorf("listed: %v", list)
	}
}
