package reserve

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/overlay"
)

// A grid of 350 hosts, some dead and some busy: whatever the order of the answers, the plan is that
// for all live, free hosts that were booked, and at the end no other host runs anything.
func TestBookingIsThePlanOfAllThatAnswer(t *testing.T) {
	const hosts = 350
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 3))
		job := allocate.Job{Ranks: 20 + rng.IntN(180), Copies: 1 + rng.IntN(2)}
		strategy := []allocate.Strategy{allocate.Spread{}, allocate.Concentrate{}}[seed%2]
		var candidates []Candidate
		var free []allocate.Host
		services := map[overlay.NodeID]*Node{}
		dead := map[overlay.NodeID]bool{}
		for i := range hosts {
			c := Candidate{nodeName(i), time.Duration(i), 0, Key{1, byte(i), byte(i >> 8)}}
			candidates = append(candidates, c)
			policy := Policy{Jobs: rng.IntN(8), Processes: 1 + rng.IntN(4)}
			services[c.Node] = newNode(t, policy)
			switch {
			case rng.IntN(10) == 0:
				dead[c.Node] = true
			case policy.Jobs > 0:
				free = append(free, allocate.Host{Node: c.Node, Latency: c.Latency, Processes: policy.Processes, Jobs: 1})
			}
		}
		s, err := New("j", job, strategy, candidates, Config{})
		if err != nil {
			t.Fatal(err)
		}
		now, launched := epoch, map[overlay.NodeID]int{}
		out := s.Begin(now)
		for s.Phase() != Launched && s.Phase() != Failed {
			rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
			var more []Send
			for _, m := range out {
				if dead[m.To] {
					continue
				}
				answer, actions := services[m.To].Receive(person(0), m.Message, now)
				for _, a := range actions {
					launched[m.To] += len(a.(Launch).Processes)
				}
				more = append(more, s.Receive(m.To, answer, now)...)
			}
			more = append(more, s.Start(now)...)
			if out = more; len(out) == 0 {
				now = s.Next()
				out = s.Tick(now)
			}
		}
		for _, m := range out { // the last commits
			if !dead[m.To] {
				services[m.To].Receive(person(0), m.Message, now)
			}
		}
		// Hosts that were not booked do not count: the paper's overbooking is bounded.
		free = slices.DeleteFunc(free, func(h allocate.Host) bool { return h.Latency >= time.Duration(s.wave) })
		want, err := allocate.Allocate(job, free, strategy)
		if err != nil || s.Err() != nil {
			t.Fatalf("seed %d: %v; of all that are booked: %v", seed, s.Err(), err)
		}
		got := s.Plan().Used()
		if !slices.EqualFunc(got, want.Used(), func(a, b allocate.Placed) bool {
			return a.Node == b.Node && slices.Equal(a.Processes, b.Processes)
		}) {
			t.Errorf("seed %d: %d ranks twice %v by %s: another plan than of all at once", seed, job.Ranks, job.Copies == 2, strategy.Name())
		}
		for _, h := range got {
			if launched[h.Node] != len(h.Processes) {
				t.Errorf("seed %d: %s launched %d processes of %d", seed, h.Node, launched[h.Node], len(h.Processes))
			}
			delete(launched, h.Node)
		}
		if len(launched) > 0 {
			t.Errorf("seed %d: launched besides: %v", seed, launched)
		}
		for node, n := range services {
			n.Tick(now.Add(time.Hour))
			if list := n.List(); len(list) > 0 && list[0].State != Running {
				t.Errorf("seed %d: %s keeps %s", seed, node, fmt.Sprint(list))
			}
		}
	}
}
