package connhelper

import (
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/launch/offer"
	"github.com/isthmus-grid/isthmus/launch/reserve"
)

func TestOfferSettings(t *testing.T) {
	cores := runtime.NumCPU()
	byDefault := daemon.Defaults[Config]().Offer
	if o := byDefault.Offer(); o != (offer.Offer{}) || byDefault.Check() != nil {
		t.Errorf("by default: %+v, %v", o, byDefault.Check())
	}
	if ok, _ := byDefault.Policy().Allows(reserve.Requester{Identity: "alice@sitea/n1", Site: "sitea"}); ok {
		t.Error("by default somebody is let in")
	}
	byDefault.Jobs = 1
	if err := byDefault.Check(); err == nil || !strings.Contains(err.Error(), "allow: jobs is 1, but no submitter is allowed; set allow, for example allow: [{site: sitea}]") {
		t.Errorf("an offer to nobody: %v", err)
	}
	o := byDefault.Offer()
	if o.Memory < 1<<20 {
		t.Errorf("the machine is said to have %d bytes of memory", o.Memory)
	}
	if o.Jobs != 1 || o.Processes != cores || o.CPU != cores*1000 || o.Power < 1 || o.Power > offer.MaxPower {
		t.Errorf("one job, on %d cores: %+v", cores, o)
	}
	given := OfferSettings{Jobs: 2, Processes: 3, Memory: 1 << 30, CPU: 1.5, Power: 700,
		Allow: []OfferRule{{Identity: "alice@*/*"}}, Deny: []OfferRule{{Site: "siteb"}}}
	want := reserve.Policy{Jobs: 2, Processes: 3, Memory: 1 << 30, CPU: 1500,
		Allow: []reserve.Rule{{Identity: "alice@*/*"}}, Deny: []reserve.Rule{{Site: "siteb"}}}
	if got := given.Policy(); !reflect.DeepEqual(got, want) || got.Check() != nil {
		t.Errorf("got %+v, want %+v; %v", got, want, got.Check())
	}
	if p := given.Offer().Power; p != 700 {
		t.Errorf("power %d, want the owner's", p)
	}
	given.Jobs = 0
	if got := given.Offer(); got != (offer.Offer{}) {
		t.Errorf("jobs: 0 offers %+v", got)
	}
}

func TestOfferRuleCheck(t *testing.T) {
	for _, tc := range []struct {
		rule OfferRule
		want string // part of the error; empty: none
	}{
		{OfferRule{Site: "siteb"}, ""},
		{OfferRule{Identity: "*@siteb/n1"}, ""},
		{OfferRule{}, "site: a rule must have a condition"},
		{OfferRule{Site: "a/b"}, "site: site name"},
		{OfferRule{Identity: "alice"}, "identity: want USER@SITE/NODE"},
		{OfferRule{Identity: "alice@siteb"}, "identity: want USER@SITE/NODE"},
		{OfferRule{Identity: "[a@*/*"}, "identity: a pattern of which nothing can be made"},
	} {
		err := tc.rule.Check()
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want %q", tc.rule, err, tc.want)
		}
	}
}

// What the frontal lists is checked and passed on; invalid lists are not.
func TestHosts(t *testing.T) {
	f := newFakeFrontal(t, open)
	f.helper("a1")
	h := f.last
	want := []offer.Host{{Node: h.Node(), State: offer.Up, Offer: offer.Offer{Jobs: 1, Processes: 2}}}
	f.mu.Lock()
	f.hosts = offer.ListToPB(want)
	f.hosts.Stale = "the broker is away"
	f.mu.Unlock()
	if got, err := h.Hosts(t.Context()); err != nil || !reflect.DeepEqual(got, offer.List{Hosts: want, Stale: f.hosts.Stale}) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	f.mu.Lock()
	f.hosts.Hosts = append(f.hosts.Hosts, &controlpb.Host{Site: "sitea"})
	f.mu.Unlock()
	if len(f.offered) != 1 || f.offered[0] == nil {
		t.Errorf("the frontal was told %v", f.offered)
	}
	if got, err := h.Hosts(t.Context()); err == nil || !strings.Contains(err.Error(), "malformed") {
		t.Errorf("nonsense became %v, %v", got, err)
	}
}

// TestAdvice: what the settings deny is reported together with the line that permits it.
func TestAdvice(t *testing.T) {
	for _, tc := range []struct {
		name    string
		jobs    int
		starter daemon.Path
		says    []string // none: nothing is denied
	}{
		{"no jobs", 0, "", []string{"offer.jobs", "offer: {jobs: 1, allow: [{site: sitea}]}"}},
		{"no starter", 1, "", []string{"node_service.starter", "node_service: {starter: /run/isthmus-starter/starter.sock}"}},
		{"all there", 1, "/run/isthmus-starter/starter.sock", nil},
	} {
		var c Config
		c.Offer.Jobs, c.NodeService.Starter = tc.jobs, tc.starter
		var text string
		for _, f := range c.Advice() {
			text += f.Key + ": " + f.Err.Error()
		}
		for _, want := range tc.says {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q does not say %q", tc.name, text, want)
			}
		}
		if tc.says == nil && text != "" {
			t.Errorf("%s: %q", tc.name, text)
		}
	}
}
