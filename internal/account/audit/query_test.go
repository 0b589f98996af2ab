package audit

import (
	"reflect"
	"testing"
	"time"
)

func TestFilter(t *testing.T) {
	r := sample()
	for name, tc := range map[string]struct {
		f    Filter
		want bool
	}{
		"all":            {Filter{}, true},
		"user":           {Filter{User: "alice"}, true},
		"pattern":        {Filter{User: "al*", Project: "cli?ate", Site: "b", Daemon: "proxy *", Technique: "relay"}, true},
		"another user":   {Filter{User: "bob"}, false},
		"part of a user": {Filter{User: "ali"}, false},
		"job's head":     {Filter{Job: "j"}, true},
		"another job":    {Filter{Job: "j2"}, false},
		"another site":   {Filter{Site: "c"}, false},
		"from":           {Filter{From: r.Time}, true},
		"after":          {Filter{From: r.Time.Add(1)}, false},
		"to":             {Filter{To: r.Time}, false},
		"until":          {Filter{To: r.Time.Add(1)}, true},
	} {
		if err := tc.f.Check(); err != nil || tc.f.Match(&r) != tc.want {
			t.Errorf("%s: %v, %v", name, !tc.want, err)
		}
	}
	if (Filter{User: "["}).Check() == nil {
		t.Error("a pattern that cannot be read is not reported")
	}
}

// "Who moved 2 TB on Tuesday?", in a grid where every daemon logs what it saw.
func TestSumCountsALinkOnce(t *testing.T) {
	tuesday := time.Date(2026, 11, 17, 12, 0, 0, 0, time.UTC)
	records := []Record{
		{Daemon: "broker b", Event: Decision, Link: "1", User: "alice", Project: "climate", Sites: []string{"a", "b"}, Technique: "relay"},
		{Daemon: "frontal a", Event: LinkEnd, Link: "1", Sent: 1e12, Received: 1},
		{Daemon: "proxy p", Event: LinkEnd, Link: "1", Sent: 1e12, Received: 9},
		{Daemon: "frontal b", Event: LinkEnd, Link: "1", Sent: 1, Received: 1e12},
		{Daemon: "broker b", Event: Decision, Link: "2", User: "alice", Project: "climate", Sites: []string{"b", "a"}, Technique: "relay"},
		{Daemon: "proxy p", Event: LinkEnd, Link: "2", Sent: 1e12},
		{Daemon: "proxy p", Event: LinkEnd, Link: "3", User: "bob", Sites: []string{"a", "c"}, Received: 5},
		{Daemon: "frontal c", Event: LinkEnd, User: "bob", Sites: []string{"c", "a"}, Received: 6},
	}
	var join Join
	for i := range records {
		records[i].Time = tuesday
		join.Add(&records[i])
	}
	sum := Sum{By: []string{"user", "project", "sites", "day"}, Zone: time.UTC}
	for _, r := range records {
		join.Complete(&r)
		if r.Event == LinkEnd {
			sum.Add(&r)
		}
	}
	got := sum.Groups()
	want := []*Group{
		{By: map[string]string{"user": "alice", "project": "climate", "sites": "a b", "day": "2026-11-17"}, Records: 2, Bytes: 2e12 + 9, Sent: 2e12, Received: 9},
		{By: map[string]string{"user": "bob", "project": "", "sites": "a c", "day": "2026-11-17"}, Records: 2, Bytes: 11, Received: 11},
	}
	if !reflect.DeepEqual(got, want) {
		for _, g := range got {
			t.Errorf("%+v", *g)
		}
	}
	if !reflect.DeepEqual(sum.Unnamed, map[string]uint64{"frontal c": 1}) {
		t.Errorf("without an id: %v", sum.Unnamed)
	}
	if (&Sum{By: []string{"usr"}}).Check() == nil {
		t.Error("an unknown key is not reported")
	}
	for _, key := range Keys {
		sum := Sum{By: []string{key}, Zone: time.UTC}
		if err := sum.Check(); err != nil {
			t.Error(err)
		}
		sum.Add(&records[0])
	}
}
