package traffic

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-grid/isthmus/internal/account/metrics"
	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
)

func TestSums(t *testing.T) {
	var s Sums
	early, late := time.Unix(10, 0), time.Unix(20, 0)
	s.Add(Pair{"a", "b"}, Count{Bytes: 3, Links: 1, Waits: 1, Rule: "new", Rate: 8, held: late}, Count{Bytes: 4, Links: 1})
	s.Add(Pair{"b", "a"}, Count{Bytes: 10, Waits: 2, Rule: "only", held: early}, Count{Bytes: 20, Waits: 1, Rule: "old", Rate: 9, held: early})
	want := map[Pair]Count{
		{"a", "b"}: {Bytes: 23, Links: 1, Waits: 2, Rule: "new", Rate: 8, held: late},
		{"b", "a"}: {Bytes: 14, Links: 1, Waits: 2, Rule: "only", held: early},
	}
	if !reflect.DeepEqual(s.Counts(), want) {
		t.Errorf("%+v", s.Counts())
	}
	c := s.Clone()
	c.Add(Pair{"a", "b"}, Count{Bytes: 1}, Count{})
	if s.Counts()[Pair{"a", "b"}].Bytes != 23 {
		t.Error("the copy is the same")
	}
	for i := range 2 * MaxPairs {
		s.Add(Pair{"a", overlay.SiteID(fmt.Sprint("s", i))}, Count{Bytes: 1}, Count{})
	}
	var all uint64
	for _, n := range s.Counts() {
		all += n.Bytes
	}
	if len(s.Counts()) != MaxPairs || all != 23+14+2*MaxPairs {
		t.Errorf("%d pairs with %d bytes", len(s.Counts()), all)
	}
}

func TestProjects(t *testing.T) {
	var a Sums
	a.AddProject("x", 3)
	a.AddProject("x", 4)
	a.AddProject("", 5)
	b := a.Clone()
	b.AddProject("x", 1)
	if got := b.Projects(); len(got) != 2 || got["x"] != 8 || got["-"] != 5 || a.Projects()["x"] != 7 {
		t.Errorf("sums are %v, a copy of %v", got, a.Projects())
	}
	for i := range maxProjects + 10 {
		b.AddProject(fmt.Sprint("p", i), 1)
	}
	got := b.Projects()
	if len(got) != maxProjects+1 {
		t.Errorf("%d sums are kept, want %d and the rest", len(got), maxProjects)
	}
	if got[metrics.Other] != 12 { // two names were there already
		t.Errorf("the rest is %v", got[metrics.Other])
	}
}

func TestOf(t *testing.T) {
	out, back := Of(carrier.Stats{AToB: 5, BToA: 7}, nil, true)
	if out != (Count{Bytes: 5, Links: 1}) || back != (Count{Bytes: 7, Links: 1}) {
		t.Errorf("%+v, %+v", out, back)
	}
	if out, _ = Of(carrier.Stats{AToB: 5}, nil, false); out != (Count{Bytes: 5}) {
		t.Errorf("%+v", out)
	}
}

// at returns a report on one pair.
func at(life, bytes, waits uint64) Report {
	c := Count{Bytes: bytes, Links: 2, Waits: waits}
	if waits > 0 {
		c.Rule, c.Rate = "quota.rate", 1000
	}
	return Report{Life: life, Counts: map[Pair]Count{{"a", "b"}: c}}
}

// Rates are over the time between two reports of one start of a daemon; bytes are never counted
// twice.
func TestMeter(t *testing.T) {
	var m Meter
	second := func(s float64) time.Time { return time.Unix(1000, 0).Add(time.Duration(s * float64(time.Second))) }
	for i, step := range []struct {
		at   float64
		tell Report
		see  float64 // time of the check
		want Flow    // except By, From, To and At
	}{
		{0, at(1, 1000, 0), 0, Flow{Bytes: 1000, Links: 2}},
		{5, at(1, 2000, 0), 5, Flow{Bytes: 2000, Links: 2, Rate: 1600}},
		{5.1, at(1, 2500, 0), 5.1, Flow{Bytes: 2500, Links: 2, Rate: 1600}}, // too soon for a rate
		{10, at(1, 3000, 4), 10, Flow{Bytes: 3000, Links: 2, Rate: 1600, Waits: 4, Held: true, Rule: "quota.rate", RuleRate: 1000}},
		{15, at(1, 3000, 4), 15, Flow{Bytes: 3000, Links: 2, Waits: 4, Rule: "quota.rate", RuleRate: 1000}},
		{20, at(1, 4000, 5), 36, Flow{Bytes: 4000, Waits: 5, Rule: "quota.rate", RuleRate: 1000}},           // no reports any more
		{40, at(1, 9000, 6), 40, Flow{Bytes: 9000, Links: 2, Waits: 6, Rule: "quota.rate", RuleRate: 1000}}, // reports again
		{45, at(2, 700, 1), 45, Flow{Bytes: 9700, Links: 2, Waits: 7, Rule: "quota.rate", RuleRate: 1000}},  // restarted
		{50, at(2, 1700, 1), 50, Flow{Bytes: 10700, Links: 2, Waits: 7, Rule: "quota.rate", RuleRate: 1000, Rate: 1600}},
		{55, at(2, 10, 0), 55, Flow{Bytes: 10700, Links: 2, Waits: 7, Rule: "quota.rate", RuleRate: 1000}}, // a count that shrank
	} {
		m.Note("proxy p", step.tell, second(step.at))
		got := m.Flows(second(step.see))
		if len(got) != 1 {
			t.Fatalf("step %d: %+v", i, got)
		}
		step.want.By, step.want.From, step.want.To, step.want.At = "proxy p", "a", "b", second(step.at)
		if got[0] != step.want {
			t.Errorf("step %d: %+v\nwant %+v", i, got[0], step.want)
		}
	}
	m.Note("frontal a", at(1, 1, 0), second(60))
	if got := m.Flows(second(60)); len(got) != 2 || got[0].By != "frontal a" || got[0].Bytes != 1 {
		t.Errorf("%+v", got)
	}
}

func TestMessage(t *testing.T) {
	r := at(7, 5, 6)
	r.Counts[Pair{"a", Unknown}] = Count{Bytes: 1}
	r.Ask = []Ends{{"demo-00112233445566778899aabbccddeeff", 1, 2}}
	got, err := FromPB(r.ToPB())
	if err != nil || !reflect.DeepEqual(got, r) {
		t.Errorf("%+v, %v", got, err)
	}
	ok := &controlpb.PairTraffic{From: "a", To: "b"}
	for name, m := range map[string]*controlpb.TrafficRequest{
		"a name":      {Pairs: []*controlpb.PairTraffic{{From: "A\n", To: "b"}}},
		"no name":     {Pairs: []*controlpb.PairTraffic{{From: "a"}}},
		"twice":       {Pairs: []*controlpb.PairTraffic{ok, ok}},
		"too many":    {Pairs: make([]*controlpb.PairTraffic, MaxPairs+1)},
		"much asked":  {Ends: make([]*controlpb.Ends, MaxEnds+1)},
		"no job":      {Ends: []*controlpb.Ends{{Job: "x"}}},
		"a long rule": {Pairs: []*controlpb.PairTraffic{{From: "a", To: "b", Rule: string(make([]byte, 201))}}},
	} {
		if _, err := FromPB(m); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

// Every message is refused, or accepted and encoded again unchanged.
func FuzzMessage(f *testing.F) {
	b, _ := proto.Marshal(at(7, 5, 6).ToPB())
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		m := new(controlpb.TrafficRequest)
		if proto.Unmarshal(b, m) != nil {
			return
		}
		r, err := FromPB(m)
		if err != nil {
			return
		}
		again, err := FromPB(r.ToPB())
		if err != nil || !reflect.DeepEqual(again, r) {
			t.Errorf("%+v became %+v, %v", r, again, err)
		}
	})
}

// Counts of sites that are not known are one of an unknown site, in either direction, and nothing is lost.
func TestFold(t *testing.T) {
	r := Report{Counts: map[Pair]Count{
		{"a", "b"}: {Bytes: 1}, {"a", "x"}: {Bytes: 2, Links: 1}, {"a", "y"}: {Bytes: 4, Links: 2}, {"x", "a"}: {Bytes: 8}, {"x", "y"}: {Bytes: 16},
		{Unknown, Unknown}: {Bytes: 32}, {"a", Unknown}: {Bytes: 64},
	}}
	var m Meter
	known := func(site overlay.SiteID) bool { return site == "a" || site == "b" }
	m.Fold("proxy p1", r, known)
	if want := (map[Pair]Count{
		{"a", "b"}: {Bytes: 1}, {"a", Unknown}: {Bytes: 70, Links: 3}, {Unknown, "a"}: {Bytes: 8}, {Unknown, Unknown}: {Bytes: 48},
	}); !reflect.DeepEqual(r.Counts, want) {
		t.Errorf("%+v", r.Counts)
	}
	m.Note("proxy p1", r, time.Unix(1, 0))
	again := Report{Counts: map[Pair]Count{{"a", "b"}: {Bytes: 2}}}
	m.Fold("proxy p1", again, func(overlay.SiteID) bool { return false })
	if want := (map[Pair]Count{{"a", "b"}: {Bytes: 2}}); !reflect.DeepEqual(again.Counts, want) {
		t.Errorf("sites that are gone for a while: %+v", again.Counts)
	}
}

// The flows of a daemon that is gone are removed after a day, and make room for others.
func TestExpire(t *testing.T) {
	var m Meter
	now := time.Unix(1_000_000, 0)
	m.Note("proxy p1", Report{Life: 1, Counts: map[Pair]Count{{"a", "b"}: {Bytes: 1}, {"b", "a"}: {Bytes: 1}}}, now)
	m.Note("proxy p2", Report{Life: 1, Counts: map[Pair]Count{{"a", "b"}: {Bytes: 1}}}, now.Add(time.Hour))
	m.Expire(now.Add(kept))
	if n := len(m.Flows(now)); n != 3 {
		t.Errorf("%d flows before a day is over", n)
	}
	m.Expire(now.Add(kept + time.Minute))
	if f := m.Flows(now); len(f) != 1 || f[0].By != "proxy p2" || m.flows != 1 {
		t.Errorf("%+v, counted as %d", f, m.flows)
	}
}
