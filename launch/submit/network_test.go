package submit

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/launch/gate/gatepb"
	"github.com/isthmus-grid/isthmus/launch/profile"
	"github.com/isthmus-grid/isthmus/launch/reserve"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Measure answers with what the test has put into far; other ways are not known.
func (w *world) Measure(ctx context.Context, q *gatepb.MeasureRequest) (*gatepb.MeasureResponse, error) {
	n, err := w.of(ctx)
	if err != nil {
		return nil, err
	}
	r := &gatepb.MeasureResponse{}
	for _, to := range q.Nodes {
		r.Distances = append(r.Distances, &gatepb.Distance{Node: to, LatencyNs: uint64(w.far[n.name+" "+to])})
	}
	return r, nil
}

func TestQuestions(t *testing.T) {
	var hosts []Host
	for _, name := range strings.Fields("a/n1 b/away a/n2 b/n1 c/idle c/mute c/n1 a/n3 b/n2 d/away") {
		n, err := overlay.ParseNodeID(name)
		if err != nil {
			t.Fatal(err)
		}
		h := Host{Host: allocate.Host{Node: n, Jobs: 1}}
		switch n.Name {
		case "away":
			h.State = stateAway
		case "idle":
			h.Jobs = 0
		case "mute":
			h.Fault = fmt.Errorf("no answer")
		}
		hosts = append(hosts, h)
	}
	if got, want := fmt.Sprint(questions(hosts)), "[{{a n1} [{b n1} {c n1} {a n2}]} {{b n1} [{c n1} {b n2}]}]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := questions(hosts[:2]); len(got) > 0 {
		t.Errorf("one host is to measure %v", got)
	}
}

// Auto and the limits of profiles know how far sites are from each other, not only from
// the submitter.
func TestPlaceByWhatSitesMeasure(t *testing.T) {
	w := newWorld(t, "a/n1:1", "b/n1:1", "c/n1:1", "d/n1:1") // 1, 2, 3, 4 ms from the submitter
	w.far = map[string]time.Duration{"a/n1 b/n1": 9 * time.Millisecond, "b/n1 d/n1": 100 * time.Microsecond, "c/n1 d/n1": 5 * time.Millisecond}
	where := func(change func(*Job)) string {
		t.Helper()
		j := jobOf(t, 2, nil)
		change(j)
		plan, err := Plan(t.Context(), w.grid, j)
		if err != nil {
			return err.Error()
		}
		var names []string
		for _, h := range plan.Used() {
			names = append(names, h.Node.String())
		}
		return strings.Join(names, " ")
	}
	if got := where(func(j *Job) { j.Strategy = "auto" }); got != "b/n1 d/n1" {
		t.Errorf("auto: %s", got)
	}
	profiled := func(limit string) func(*Job) {
		p, err := profile.Read("p.yaml", []byte("groups:\n- {name: one, processes: 1}\n- {name: two, processes: 1}\nbetween:\n- {groups: [one, two], latency: "+limit+"}\n"))
		if err != nil {
			t.Fatal(err)
		}
		return func(j *Job) { j.Profile = p }
	}
	if got := where(profiled("500us")); got != "b/n1 d/n1" {
		t.Errorf("within 500 us: %s", got)
	}
	if got := where(profiled("50us")); strings.Contains(got, "/n1 ") || got == "" {
		t.Errorf("within 50 us: %s", got)
	}
	w.far = nil
	if got := where(func(j *Job) { j.Strategy = "auto" }); got != "a/n1 b/n1" {
		t.Errorf("auto, when nothing is measured: %s", got)
	}
}

// A host that refuses the job of a profile is replaced by another that does as well.
func TestProfileIsMatchedAgain(t *testing.T) {
	w := newWorld(t, "a/n1:2", "b/n1:2", "c/n1:2")
	p, err := profile.Read("p.yaml", []byte("groups:\n- {name: all, processes: 2}\n"))
	if err != nil {
		t.Fatal(err)
	}
	var out buffer
	j := jobOf(t, 2, &out)
	j.Profile = p
	w.nodes["a/n1"].node, err = reserve.NewNode(1, reserve.Policy{Jobs: 1, Processes: 2, Deny: []reserve.Rule{{Identity: "*"}}})
	if err != nil {
		t.Fatal(err)
	}
	w.nodes["b/n1"].dead = true
	if _, err := w.run(j); err != nil {
		t.Fatal(err)
	}
	if want := "[c/n1:0] rank 0\n[c/n1:1] rank 1\n"; out.sorted() != want {
		t.Error(out.sorted())
	}
	w.idle()
}
