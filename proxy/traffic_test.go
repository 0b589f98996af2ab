package proxy

import (
	"io"
	"sync"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/account/traffic"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/limit/quota"
)

// What a link moves counts for the sites that a broker names, including what it moved before the
// broker was asked, and after it has ended.
func TestTraffic(t *testing.T) {
	r := startWith(t, quota.Rules{Job: quota.Limits{Rate: 80e6}})
	a, b := r.link()
	const volume = 1 << 20
	var sent sync.WaitGroup
	sent.Go(func() { io.Copy(a, io.LimitReader(endless{}, volume)) })
	if n, err := io.Copy(io.Discard, io.LimitReader(b, volume)); n != volume {
		t.Fatalf("%d bytes, %v", n, err)
	}
	sent.Wait()
	r.until("all to be counted", func(st Status) bool { return st.Bytes == volume }) // a moment after it arrived
	first := r.trafficReport()
	ab := traffic.Pair{From: "sitea", To: "siteb"}
	if c := first.Counts[unknown]; len(first.Ask) != 1 || c.Bytes != volume || c.Links != 2 || first.Life == 0 {
		t.Fatalf("before anybody was asked: %+v", first)
	}
	if err := r.trafficAnswer(first.Ask, []*controlpb.SitePair{{Asker: "sitea", Target: "siteb"}}); err != nil {
		t.Fatal(err)
	}
	for _, over := range []bool{false, true} {
		links := 1
		if over {
			a.Close()
			b.Close()
			r.until("the link's end", func(st Status) bool { return st.Links == 0 })
			links = 0
		}
		got := r.trafficReport()
		c := got.Counts[ab]
		if c.Bytes != volume || c.Links != links || c.Waits == 0 || c.Rule != "quota.per_job.rate" || c.Rate != 80e6 {
			t.Errorf("over %v: %+v", over, c)
		}
		if back := got.Counts[ab.Back()]; back.Bytes != 0 || back.Links != links || len(got.Counts) != 2 || len(got.Ask) != 0 {
			t.Errorf("over %v: %+v", over, got)
		}
	}

	// Links that end before a broker was asked.
	for _, end := range []func() (traffic.Pair, *controlpb.SitePair){
		func() (traffic.Pair, *controlpb.SitePair) {
			return ab, &controlpb.SitePair{Asker: "sitea", Target: "siteb"}
		},
		func() (traffic.Pair, *controlpb.SitePair) { return unknown, &controlpb.SitePair{} },
	} {
		before := r.trafficReport().Counts
		c, d := r.link(ofJob("b"))
		echoes(t, c, d)
		c.Close()
		d.Close()
		r.until("the link's end", func(st Status) bool { return st.Links == 0 })
		got := r.trafficReport()
		if len(got.Ask) != 1 {
			t.Fatalf("%+v", got)
		}
		pair, answer := end()
		if err := r.trafficAnswer(got.Ask, nil); err == nil {
			t.Error("no answer was taken for one")
		}
		if err := r.trafficAnswer(got.Ask, []*controlpb.SitePair{{Asker: "No Name", Target: "b"}}); err == nil {
			t.Error("a name that is none was taken")
		}
		if err := r.trafficAnswer(got.Ask, []*controlpb.SitePair{answer}); err != nil {
			t.Fatal(err)
		}
		if after := r.trafficReport(); after.Counts[pair].Bytes <= before[pair].Bytes || len(after.Ask) != 0 {
			t.Errorf("%v had %d bytes, has %+v", pair, before[pair].Bytes, after)
		}
	}
}
