package offer

import (
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
)

func host(site, node string, s State, silent time.Duration, o Offer) Host {
	return Host{Node: overlay.NodeID{Site: overlay.SiteID(site), Name: node}, State: s, Silent: silent, Offer: o}
}

var sample = []Host{
	host("a", "n1", Up, 0, Offer{1, 4, 8 << 30, 4000, 900}),
	host("a", "n2", Away, 61*time.Second, Offer{Jobs: 2, Processes: 1}),
	host("b", "n1", Unknown, time.Hour, Offer{}),
}

func TestListRoundTrip(t *testing.T) {
	got, err := ListFromPB(ListToPB(sample))
	if err != nil || !reflect.DeepEqual(got, sample) {
		t.Errorf("%+v became %+v, %v", sample, got, err)
	}
	if c := Count(sample); c != (Counts{1, 1, 1}) {
		t.Errorf("counts %+v", c)
	}
}

// A host's note is printed on terminals, whoever wrote it.
func TestNotes(t *testing.T) {
	for from, want := range map[string]string{
		"two hosts": "two hosts", "\x1b[2Ja\nb": "?[2Ja?b", strings.Repeat("é", 300): strings.Repeat("é", 250), "\xff": "\uFFFD",
	} {
		h := host("a", "n1", Up, 0, Offer{})
		h.Note = from
		if sent := ListToPB([]Host{h}); sent.Hosts[0].Note != want {
			t.Errorf("%q is sent as %q", from, sent.Hosts[0].Note)
		}
		l := ListToPB([]Host{host("a", "n1", Up, 0, Offer{})})
		l.Hosts[0].Note = from
		if got, err := ListFromPB(l); err != nil || got[0].Note != want {
			t.Errorf("%q is received as %+v, %v", from, got, err)
		}
	}
}

func TestListRefusals(t *testing.T) {
	change := func(f func(*controlpb.Host)) *controlpb.HostList {
		l := ListToPB(sample)
		f(l.Hosts[1])
		return l
	}
	long := &controlpb.HostList{Hosts: make([]*controlpb.Host, MaxHosts+1)}
	for name, tc := range map[string]struct {
		list *controlpb.HostList
		want string
	}{
		"no state":    {change(func(h *controlpb.Host) { h.State = 0 }), `host "n2" of site "a": state UNSET is none`},
		"other state": {change(func(h *controlpb.Host) { h.State = 9 }), "state 9 is none"},
		"no node":     {change(func(h *controlpb.Host) { h.Node = "" }), `host "" of site "a": node`},
		"bad site":    {change(func(h *controlpb.Host) { h.Site = "a/b" }), `site`},
		"twice":       {change(func(h *controlpb.Host) { h.Node = "n1" }), "a list of hosts names a/n1 after a/n1"},
		"disorder":    {change(func(h *controlpb.Host) { h.Site = "c" }), "a list of hosts names b/n1 after c/n2"},
		"jobs":        {change(func(h *controlpb.Host) { h.Offer.Jobs = MaxJobs + 1 }), "an offer of jobs: 10001; want 0 to 10000"},
		"processes":   {change(func(h *controlpb.Host) { h.Offer.Processes = math.MaxUint32 }), "an offer of processes: 4294967295; want 0 to 1048576"},
		"memory":      {change(func(h *controlpb.Host) { h.Offer.Memory = 1 << 63 }), "an offer of memory: 9223372036854775808"},
		"long":        {long, "a list of 20001 hosts; at most 20000 are taken"},
	} {
		if got, err := ListFromPB(tc.list); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, %v; want %q", name, got, err, tc.want)
		}
	}
}

func TestState(t *testing.T) {
	for _, s := range []State{Up, Away, Unknown} {
		text, err := json.Marshal(s)
		var back State
		if err != nil || json.Unmarshal(text, &back) != nil || back != s {
			t.Errorf("%v became %s and %v, %v", s, text, back, err)
		}
	}
	var s State
	if err := s.UnmarshalText([]byte("gone")); err == nil {
		t.Error("a state that is none was read")
	}
}

// A full list of the longest names fits the 4 MiB of a message.
func TestFullListFits(t *testing.T) {
	name := strings.Repeat("x", 63)
	if err := overlay.CheckName("node", name+"x"); err == nil {
		t.Fatal("names may be longer than this test thinks")
	}
	h := host(name, name, Away, math.MaxUint32*time.Second, Offer{MaxJobs, MaxProcesses, math.MaxInt64, MaxCPU, MaxPower})
	one := proto.Size(ListToPB([]Host{h}))
	if total := one * MaxHosts; total > 4<<20 {
		t.Errorf("%d hosts of %d bytes: %d", MaxHosts, one, total)
	}
}

// Whatever a peer sends is refused, or is valid and encoded again unchanged.
func FuzzList(f *testing.F) {
	b, err := proto.Marshal(ListToPB(sample))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, data []byte) {
		var m controlpb.HostList
		if proto.Unmarshal(data, &m) != nil {
			return
		}
		hosts, err := ListFromPB(&m)
		if err != nil {
			if hosts != nil {
				t.Errorf("%v and %v", hosts, err)
			}
			return
		}
		if !slices.IsSortedFunc(hosts, Compare) {
			t.Errorf("not in order: %v", hosts)
		}
		for _, h := range hosts {
			if err := h.Offer.Check(); err != nil || h.Silent < 0 || h.State < Up || h.State > Unknown {
				t.Errorf("%+v was taken: %v", h, err)
			}
		}
		again, err := ListFromPB(ListToPB(hosts))
		if err != nil || !reflect.DeepEqual(again, hosts) {
			t.Errorf("%v became %v, %v", hosts, again, err)
		}
	})
}
