package allocate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/launch/mapping"
	"github.com/isthmus-grid/isthmus/overlay"
)

// hostsAt makes hosts of the given sites, each with room for 8 processes.
func hostsAt(sites ...string) []Host {
	var all []Host
	for i, site := range sites {
		all = append(all, Host{Node: overlay.NodeID{Site: overlay.SiteID(site), Name: fmt.Sprint("h", i)}, Latency: time.Millisecond, Processes: 8, Jobs: 1})
	}
	return all
}

// rankHosts returns the names of the hosts of all ranks, in order.
func rankHosts(p *Plan) string {
	names := make([]string, p.Job.Ranks)
	for _, h := range p.Hosts {
		for _, q := range h.Processes {
			names[q.Rank] = h.Node.Name
		}
	}
	return strings.Join(names, " ")
}

// A strategy for a graph says which rank runs where, one on each host, although each has room for more.
func TestGraphStrategiesNumberRanks(t *testing.T) {
	hosts := hostsAt("a", "b", "b", "a", "b", "c", "b")
	for i, power := range []float64{1, 1, 4, 1, 4, .5, 2} {
		hosts[i].Power = power
	}
	network := sites{"c": time.Second}
	job := Job{Ranks: 4, Copies: 1, Graph: mapping.Band(4, 4, 1)}
	for name, want := range map[string]string{
		"none":        "h0 h1 h2 h3",
		"sma":         "h1 h2 h4 h6",
		"fec":         "h2 h1 h4 h0", // from task 1, which has two neighbours; there is no room for half of a neighbour of task 3
		"spread":      "h0 h1 h2 h3",
		"concentrate": "h0 h1 h2 h3",
		"auto":        "", // checked below
		"aiacqm":      "",
	} {
		s, err := ByName(name, network)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Allocate(job, hosts, s)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		checkPlan(t, p)
		if n := len(p.Used()); n != 4 {
			t.Errorf("%s: on %d hosts, want 4", name, n)
		}
		if got := rankHosts(p); want != "" && got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
		again, err := Allocate(job, hosts, s)
		if err != nil || rankHosts(again) != rankHosts(p) {
			t.Errorf("%s: %s, and then %s, %v", name, rankHosts(p), rankHosts(again), err)
		}
	}
	auto, err := Allocate(job, hosts, Auto{network})
	if err != nil {
		t.Fatal(err)
	}
	used := strings.Fields(rankHosts(auto))
	slices.Sort(used)
	cost := auto.GraphCost(network)
	if !slices.Equal(used, []string{"h1", "h2", "h4", "h6"}) || cost.Cut != 0 || cost.Weight != 3 || cost.Iteration < 1 {
		t.Errorf("auto: %s, %+v; want site b, where the powerful hosts are", rankHosts(auto), cost)
	}
}

func TestArchitecture(t *testing.T) {
	hosts := hostsAt("b", "a", "b")
	hosts[1].Power, hosts[2].Power = 3, 5
	network := sites{}
	a := architecture(hosts, 0, network)
	if !slices.Equal(a.Power, []float64{5, 3, 5}) || !slices.Equal(a.Cluster, []int{1, 0, 1}) {
		t.Errorf("powers %v, clusters %v", a.Power, a.Cluster)
	}
	if p := usualPower(hosts[:1]); p != unmeasuredPower {
		t.Errorf("power %v where none is known", p)
	}
	if got, want := a.Latency[1][0], messageTime(network, 0, hosts[0], hosts[1]); got != want || a.Latency[0][1] != want {
		t.Errorf("between the sites %v, want %v both ways", a.Latency, want)
	}
	if got, want := a.Latency[1][1], messageTime(network, 0, hosts[0], hosts[2]); got != want {
		t.Errorf("within b %v, want %v", got, want)
	}
}

func TestJobsWithGraphs(t *testing.T) {
	graph := mapping.Band(4, 4, 1)
	for _, j := range []Job{{Ranks: 5, Copies: 1, Graph: graph}, {Ranks: 4, Copies: 2, Graph: graph}, {Ranks: 4, Copies: 1, Home: node("h0"), Graph: graph}} {
		if err := j.Check(); err == nil {
			t.Errorf("%d ranks, %d copies, home %v: no error", j.Ranks, j.Copies, j.Home)
		}
	}
	_, err := Allocate(Job{Ranks: 4, Copies: 1, Graph: graph}, hostsAt("a", "a", "b"), Auto{})
	var short *Shortage
	if !errors.As(err, &short) || !slices.Equal(short.Limits, []Limit{LimitTasks}) || len(short.Nearest) > 0 {
		t.Errorf("four tasks on three hosts: %v", err)
	}
	for _, name := range GraphStrategies {
		s, err := ByName(name, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Allocate(Job{Ranks: 2, Copies: 1}, hostsAt("a", "a"), s); err == nil || !strings.Contains(err.Error(), "no graph") {
			t.Errorf("%s without a graph: %v", name, err)
		}
		job := Job{Ranks: 4, Copies: 1, Graph: graph}
		if got := Settled(job, hostsAt("a", "a", "a", "a"), s); got != (name == "none") {
			t.Errorf("%s: settled %v", name, got)
		}
	}
}
