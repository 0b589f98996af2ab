package coll

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/collectives/operation"
)

// The schedules have cross what the table says, in every order of ranks.
func TestScheduledAsTabled(t *testing.T) {
	known := 0
	for _, sites := range []int{2, 3, 4} {
		for _, order := range Orders() {
			s := &scenario{sites: sites, ranks: 4, nodes: 2, order: order}
			for _, collective := range collectives.Operations() {
				for _, a := range collectives.Algorithms(collective) {
					f := figure{collective, 64}
					if collective == operation.Barrier {
						f.size = 0
					}
					want, ok := s.tabled(f, a.Name)
					if !ok {
						continue
					}
					known++
					if got, err := s.scheduled(f, a.Name, 1); err != nil || got != want {
						t.Errorf("%s %s, %d sites, %s: %+v cross, the table has %+v (%v)", collective, a.Name, sites, order, got, want, err)
					}
				}
			}
		}
	}
	if known < 50 {
		t.Errorf("the table knows only %d", known)
	}
}

// A flat binomial broadcast is near the least if the ranks of a site follow one another,
// and not if they are dealt out.
func TestFlatBcast(t *testing.T) {
	for _, tc := range []struct {
		sites, ranks int
		order        string
		want         int
	}{{2, 16, blocked, 1}, {2, 16, roundRobin, 16}, {3, 20, roundRobin, 59}} {
		s := &scenario{sites: tc.sites, ranks: tc.ranks, nodes: 1, order: tc.order}
		if got, err := s.scheduled(figure{operation.Bcast, 8}, "binomial", 0); err != nil || got != (crossing{tc.want, 8 * tc.want}) {
			t.Errorf("%+v: %+v, %v", tc, got, err)
		}
	}
}

// What is explained begins with the algorithm that is chosen, and shows the steps of each
// rank with it.
func TestExplain(t *testing.T) {
	o := usual()
	o.Ranks, o.Sites, o.RTT, o.Rate, o.Orders = 2, []int{2}, []time.Duration{8 * time.Millisecond}, []int64{136e6}, []string{roundRobin}
	o.Collectives, o.Sizes = []operation.Operation{operation.Bcast}, []int{8}
	var b strings.Builder
	if err := Explain(&b, o); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	chosen, _, _ := strings.Cut(lines[2], " ")
	if lines[0] != "2x2/8ms/136mbit/round-robin: bcast of 8 bytes, at least 4.000 ms" || !strings.HasPrefix(lines[1], "ALGORITHM") {
		t.Errorf("begins\n%s", strings.Join(lines[:3], "\n"))
	}
	if strings.Count(b.String(), "\n"+chosen+", at s") != 4 || !strings.Contains(b.String(), "send out[0:8] to rank ") {
		t.Errorf("said\n%s", b.String())
	}
	o.Local, o.Sites, o.RTT, o.Rate = true, nil, nil, nil
	b.Reset()
	if err := Explain(&b, o); err != nil || !strings.Contains(b.String(), "node: bcast of 8 bytes") || strings.Count(b.String(), "\nshared-buffer: no messages") != 1 {
		t.Errorf("%v; said\n%s", err, b.String())
	}
}

func TestPlaces(t *testing.T) {
	for _, tc := range []struct {
		order string
		want  string
	}{
		{blocked, "[s1/n1 s1/n1 s1/n2 s1/n2 s2/n1 s2/n1 s2/n2 s2/n2] [[0 0 0 0 1 1 1 1] [0 0 1 1 2 2 3 3]]"},
		{roundRobin, "[s1/n1 s2/n1 s1/n1 s2/n1 s1/n2 s2/n2 s1/n2 s2/n2] [[0 1 0 1 0 1 0 1] [0 1 0 1 2 3 2 3]]"},
	} {
		s := &scenario{sites: 2, nodes: 2, ranks: 4, order: tc.order}
		if got := fmt.Sprint(s.places(), " ", s.layout()); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.order, got, tc.want)
		}
	}
}
