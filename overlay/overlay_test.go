package overlay

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestCheckName(t *testing.T) {
	for _, tc := range []struct{ name, fault string }{
		{"a", ""},
		{"gw-1.lan_x", ""},
		{strings.Repeat("n", MaxNameLen), ""},
		{"", "empty"},
		{"-a", `byte 0 is '-'`},
		{"Upper", `byte 0 is 'U'`},
		{"a/b", `byte 1 is '/'`},
		{"a\nb", `byte 1 is '\n'`},
		{strings.Repeat("n", MaxNameLen+1), "at most 63"},
	} {
		err := CheckName("site", tc.name)
		if tc.fault == "" && err != nil || tc.fault != "" && (err == nil || !strings.Contains(err.Error(), tc.fault)) {
			t.Errorf("CheckName(%q) = %v, want %q", tc.name, err, tc.fault)
		}
	}
}

func TestJobID(t *testing.T) {
	digest := strings.Repeat("0f", 16)
	good := JobID("my-run-" + digest)
	if err := CheckJobID(good); err != nil {
		t.Fatal(err)
	}
	if got := good.Name(); got != "my-run" {
		t.Errorf("Name() = %q", got)
	}
	for _, bad := range []JobID{"", "my-run", JobID(digest), JobID("-" + digest), JobID("a-" + digest[1:]), JobID("a-" + strings.ToUpper(digest))} {
		if CheckJobID(bad) == nil {
			t.Errorf("CheckJobID(%q) = nil", bad)
		}
	}
}

func TestParseNodeID(t *testing.T) {
	b1 := NodeID{"siteb", "b1"}
	if b1.Key() != "siteb/b1" {
		t.Errorf("Key() = %q", b1.Key())
	}
	for _, text := range []string{"b1@siteb", "siteb/b1", b1.String(), b1.Key()} {
		if n, err := ParseNodeID(text); err != nil || n != b1 {
			t.Errorf("ParseNodeID(%q) = %v, %v", text, n, err)
		}
	}
	for _, bad := range []string{"", "b1", "/b1", "siteb/", "siteb/b/1", "@siteb", "b1@", "b1@site@b", "siteb/b1@siteb", "b1@siteb/b1", "*@siteb"} {
		if _, err := ParseNodeID(bad); err == nil || !strings.Contains(err.Error(), "want NODE@SITE") {
			t.Errorf("ParseNodeID(%q): %v", bad, err)
		}
	}
}

// The number of a technique says nothing of its place among the others.
func TestRegister(t *testing.T) {
	before := Techniques()
	const added Technique = 20
	undo := Register(added, "test", AskerDials, 15)
	if got, want := Techniques(), slices.Insert(slices.Clone(before), 1, added); !slices.Equal(got, want) {
		t.Errorf("techniques %v, want %v", got, want)
	}
	var parsed Technique
	if err := parsed.UnmarshalText([]byte("test")); err != nil || parsed != added || added.Kind() != AskerDials {
		t.Errorf("parsed %v, %v, kind %v", parsed, err, added.Kind())
	}
	for i, a := range []Technique{0, Direct, added, PortRange, Relay, 31, 200} { // the last two are none
		for j, b := range []Technique{0, Direct, added, PortRange, Relay, 31, 200} {
			if a.Compare(b) != cmp.Compare(i, j) || a.PreferredTo(b) != (i < j) {
				t.Errorf("%v beside %v: %d", a, b, a.Compare(b))
			}
		}
	}
	for _, bad := range []func(){
		func() { Register(added, "other", AskerDials, 16) },
		func() { Register(21, "test", AskerDials, 16) },
		func() { Register(21, "other", AskerDials, 15) },
		func() { Register(21, "other", 0, 16) },
		func() { Register(MaxTechniques, "other", AskerDials, 16) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("a technique was added in place of another, or out of range")
				}
			}()
			bad()
		}()
	}
	if undo(); added.Valid() || !slices.Equal(Techniques(), before) {
		t.Errorf("afterwards %v", Techniques())
	}
}

// Every enumeration must parse what it prints, and reject other words.
func TestTextForms(t *testing.T) {
	for _, tech := range Techniques() {
		b, err := tech.MarshalText()
		var back Technique
		if err != nil || back.UnmarshalText(b) != nil || back != tech {
			t.Errorf("%v: %q, %v, back %v", tech, b, err, back)
		}
	}
	if _, err := Technique(0).MarshalText(); err == nil {
		t.Error("the zero technique has a text form")
	}
	for i := range inboundNames {
		roundTrip(t, Inbound(i), new(Inbound))
	}
	for i := range filterNames {
		roundTrip(t, Filter(i), new(Filter))
	}
	for i := range refusalNames {
		roundTrip(t, Refusal(i), new(Refusal))
	}
	for i := range natNames {
		roundTrip(t, NATBehaviour(i), new(NATBehaviour))
	}
	for i := range egressNames {
		roundTrip(t, Egress(i), new(Egress))
	}
}

func roundTrip[V comparable, P interface {
	*V
	UnmarshalText([]byte) error
}](t *testing.T, v V, back P) {
	t.Helper()
	text, err := any(v).(interface{ MarshalText() ([]byte, error) }).MarshalText()
	if err != nil || back.UnmarshalText(text) != nil || *back != v {
		t.Errorf("%v: text %q, back %v, %v", v, text, *back, err)
	}
	if back.UnmarshalText([]byte("nonsense")) == nil {
		t.Errorf("%T accepts nonsense", v)
	}
}

func TestProfileCheck(t *testing.T) {
	nat := NAT{Mapping: EndpointIndependent, Filtering: AddressAndPortDependent}
	for _, tc := range []struct {
		p     SiteProfile
		fault string
	}{
		{SiteProfile{}, ""},
		{SiteProfile{Inbound: InboundPorts, Ports: Ports{20000, 20999}, NAT: nat}, ""},
		{SiteProfile{Inbound: InboundPorts}, "port range 0-0"},
		{SiteProfile{Inbound: InboundPorts, Ports: Ports{9, 8}}, "port range 9-8"},
		{SiteProfile{Inbound: InboundOpen, Ports: Ports{1, 2}}, "set inbound: ports"},
		{SiteProfile{NAT: NAT{Mapping: EndpointIndependent}}, "give both or neither"},
	} {
		err := tc.p.Check()
		if tc.fault == "" && err != nil || tc.fault != "" && (err == nil || !strings.Contains(err.Error(), tc.fault)) {
			t.Errorf("%+v: %v, want %q", tc.p, err, tc.fault)
		}
	}
}

func TestProfileIdle(t *testing.T) {
	p := SiteProfile{Site: "a", IdleTCP: 110, IdleUDP: 25}
	far, near := NodeID{Site: "b", Name: "n1"}, NodeID{Site: "a", Name: "n2"}
	for _, tc := range []struct {
		path Path
		want time.Duration
	}{
		{Path{Technique: Direct, Peer: far}, 110 * time.Second},
		{Path{Technique: Direct, Peer: far, Via: ViaAsker}, 110 * time.Second},
		{Path{Technique: Relay, Proxy: "p1", Peer: far}, 110 * time.Second},
		{Path{Technique: Relay, Proxy: "p1"}, 110 * time.Second}, // the peer's site is unknown
		{Path{Technique: HolePunching, Peer: far}, 25 * time.Second},
		{Path{Technique: Direct, Peer: near}, 0},
		{Path{Peer: near}, 0},
	} {
		if got := p.Idle(tc.path); got != tc.want {
			t.Errorf("%v to %v: %v, want %v", tc.path, tc.path.Peer, got, tc.want)
		}
	}
	if got := (SiteProfile{Site: "a"}).Idle(Path{Technique: Direct, Peer: far}); got != 0 {
		t.Errorf("not measured: %v", got)
	}
}

func TestPathString(t *testing.T) {
	for want, p := range map[string]Path{
		"same node":                           {},
		"direct":                              {Technique: Direct},
		"relay through p1, via both gateways": {Technique: Relay, Proxy: "p1", Via: ViaAsker | ViaTarget},
	} {
		if got := p.String(); got != want {
			t.Errorf("%+v prints %q, want %q", p, got, want)
		}
	}
}

// The text form of a node service's job names its node, and nothing else is parsed as one.
func TestServiceJob(t *testing.T) {
	a1 := NodeID{"sitea", "a-1.x"}
	id := ServiceJob(a1)
	for want, p := range map[string]ProcessName{
		"the node service of " + a1.String():             {Job: id},
		"caller 7 of the node service of " + a1.String(): {Job: id, Rank: 7},
	} {
		if p.String() != want {
			t.Errorf("%q, want %q", p, want)
		}
	}
	if back, ok := id.ServiceNode(); !ok || back != a1 || CheckJobID(id) != nil || id.Name() != "node-service" {
		t.Errorf("%s: %v, %v, %q", id, back, ok, id.Name())
	}
	for _, bad := range []JobID{"node:", "node:sitea", "node:sitea:", "node::a1", "node:sitea:a1:a2", "node:sitea/a1", "Node:sitea:a1", "node:sitea:a1-27ce6cf407a4806050cf7ce0f69f4473"} {
		// The last is an ordinary node name.
		if node, ok := bad.ServiceNode(); ok != (CheckJobID(bad) == nil) || ok && ServiceJob(node) != bad {
			t.Errorf("%q is read as that of %v", bad, node)
		}
	}
}

// A generation of the future is rejected, whatever its size, and a new one is later than the
// previous one.
func TestGeneration(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	latest := Generation(now.Add(MaxAhead).UnixMicro())
	for g, ok := range map[Generation]bool{0: true, 1: true, latest: true, latest + 1: false, 1 << 62: false, 1 << 63: false, 1<<64 - 1: false} {
		if err := g.Check(now); (err == nil) != ok || err != nil && !errors.Is(err, ErrForbidden) {
			t.Errorf("%d: %v", g, err)
		}
	}
	for _, old := range []Generation{0, 5, Generation(now.UnixMicro()), latest} {
		if g := NewGeneration(now, old); g <= old || g < Generation(now.UnixMicro()) {
			t.Errorf("after %d: %d", old, g)
		}
	}
}
