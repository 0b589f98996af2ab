package launch

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-grid/isthmus/lab/gridjob"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
)

// What live peers are compared with is what the paper's text says: section 5.1.
func TestExpected(t *testing.T) {
	if n := len(Hosts(1)); n != 350 {
		t.Errorf("%d hosts, the paper has 350", n)
	}
	for _, tc := range []struct {
		strategy string
		n        int
		want     string // hosts/processes of the sites in the order of their distance
	}{
		{"concentrate", 100, "25/100 - - - - -"},
		{"concentrate", 250, "60/240 5/10 - - - -"},
		{"concentrate", 600, "60/240 50/100 90/180 20/80 - -"},
		{"spread", 250, "60/60 50/50 90/90 50/50 - -"},
		{"spread", 300, "60/60 50/50 90/90 60/60 20/20 20/20"},
		{"spread", 400, "60/110 50/50 90/90 60/60 20/20 70/70"},
		{"spread", 600, "60/120 50/100 90/180 60/110 20/20 70/70"},
	} {
		got, err := expected(1, tc.n, 1, tc.strategy)
		var text []string
		for _, site := range sites() {
			if s := got[site]; s.hosts > 0 {
				text = append(text, fmt.Sprintf("%d/%d", s.hosts, s.processes))
			} else {
				text = append(text, "-")
			}
		}
		if have := strings.Join(text, " "); err != nil || have != tc.want {
			t.Errorf("%s %d: %s, %v; want %s", tc.strategy, tc.n, have, err, tc.want)
		}
	}
}

// Every peer is on one of the lab's hosts and offers as many processes as its
// cluster's hosts have cores.
func TestPeers(t *testing.T) {
	for _, scale := range []int{1, 10} {
		nodes, settings := peers(scale)
		total := 0
		for _, names := range nodes {
			total += len(names)
		}
		if all := Hosts(scale); total != len(all) || len(settings) != len(all) {
			t.Errorf("scale %d: %d peers, %d settings, %d hosts", scale, total, len(settings), len(all))
		}
		for _, h := range Hosts(scale) {
			o := settings["helper "+h.Node.String()]["offer"].(map[string]any)
			if o["processes"] != h.Processes || o["jobs"] != 1 {
				t.Errorf("%v offers %v", h.Node, o)
			}
		}
		s := spec()
		if err := s.Check(); err != nil {
			t.Errorf("scale %d: %v", scale, err)
		}
	}
}

func TestShares(t *testing.T) {
	got := shares([]gridjob.Line{{Host: "a/n1"}, {Host: "a/n1", Rank: 1}, {Host: "a/n2", Rank: 2}, {Host: "b/n1", Rank: 3}})
	if want := map[string]share{"a": {2, 3}, "b": {1, 1}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Each message that can be sent belongs to one step, and no step waits for one
// that cannot.
func TestEveryMessageHasAStep(t *testing.T) {
	belongs := map[string]int{}
	for _, s := range steps {
		for _, m := range s.messages {
			belongs[m]++
		}
	}
	l := ledger{counts: map[string]int{}}
	for _, m := range []proto.Message{&nodepb.ToNode{}, &nodepb.ToSubmitter{}} {
		fields := m.ProtoReflect().Descriptor().Oneofs().ByName("say").Fields()
		for i := range fields.Len() {
			f := fields.Get(i)
			one := m.ProtoReflect().New()
			one.Set(f, one.NewField(f))
			l.note(one.Interface())
			name := string(f.Name())
			if belongs[name] != 1 || l.counts[name] != 1 {
				t.Errorf("%s belongs to %d steps and was counted %d times", name, belongs[name], l.counts[name])
			}
			delete(belongs, name)
		}
	}
	if len(belongs) > 0 {
		t.Errorf("nobody says %v", belongs)
	}
}
