package directory

import (
	"reflect"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/launch/offer"
)

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

func TestHostsAge(t *testing.T) {
	for hosts, want := range map[int]time.Duration{0: 500 * time.Millisecond, 1000: 750 * time.Millisecond, offer.MaxHosts: 5 * time.Second} {
		if got := HostsAge(hosts); got != want {
			t.Errorf("a list of %d hosts is kept %v, want %v", hosts, got, want)
		}
	}
}
