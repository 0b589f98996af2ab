package reserve

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/testload"
	"github.com/isthmus-grid/isthmus/launch/allocate"
)

// scenarios are the small systems whose worlds are all explored: two submitters that compete for two
// nodes, and what may go wrong.
func scenarios() []scenario {
	policy := Policy{Allow: everyone, Jobs: 1, Processes: 1, Lease: 3 * time.Second, Longest: 5 * time.Second}
	race := scenario{policy: policy, job: allocate.Job{Ranks: 2, Copies: 1}, strategy: allocate.Spread{}, nodes: 2, subs: 2, prompt: true}
	with := func(name string, change func(*scenario)) scenario {
		sc := race
		sc.name = name
		change(&sc)
		return sc
	}
	return []scenario{
		with("race", func(s *scenario) {}),
		with("room for both", func(s *scenario) { s.policy.Jobs = 2 }),
		with("message lost", func(s *scenario) { s.lost = 1 }),
		with("message doubled", func(s *scenario) { s.twice = 1 }),
		with("messages late", func(s *scenario) { s.late = 1 }),
		with("submitter killed", func(s *scenario) { s.subDeaths = 1 }),
		with("node killed", func(s *scenario) { s.nodeDeaths = 1 }),
		with("no order among answers", func(s *scenario) { s.prompt, s.hasty = false, true }),
		with("message lost, submitter killed", func(s *scenario) { s.lost, s.subDeaths = 1, 1 }),
		with("message lost, node killed", func(s *scenario) { s.lost, s.nodeDeaths = 1, 1 }),
		with("one at one node, all wrong", func(s *scenario) {
			s.subs, s.nodes, s.job.Ranks, s.prompt, s.hasty = 1, 1, 1, false, true
			s.lost, s.twice, s.late, s.subDeaths, s.nodeDeaths = 1, 1, 1, 1, 1
		}),
		with("one at one node, twice and late", func(s *scenario) {
			s.subs, s.nodes, s.job.Ranks, s.prompt, s.hasty, s.twice, s.late = 1, 1, 1, false, true, 2, 1
		}),
		with("one, dropped and stopped", func(s *scenario) {
			s.prompt, s.subs, s.nodes, s.spares, s.drops, s.stops, s.job.Ranks = false, 1, 3, 1, 1, 1, 1
		}),
	}
}

// TestEveryWorld explores every order of all possible events. In each world no node has more than J
// jobs, no key and no rank starts twice, and a launched job is launched on all its nodes; from each
// world silence leads to an end without reservations; and at the end of a world no submitter waits.
//
// Without the tag system it explores the first worlds of each scenario, in depth first.
func TestEveryWorld(t *testing.T) {
	for _, sc := range scenarios() {
		t.Run(sc.name, func(t *testing.T) {
			seen := map[[16]byte]bool{}
			launched, failed, ends := 0, 0, 0
			type visit struct {
				w    *world
				path *trail
			}
			stack := []visit{{newWorld(t, &sc), nil}}
			for len(stack) > 0 {
				v := stack[len(stack)-1]
				stack = stack[:len(stack)-1]
				sum := sha256.Sum256([]byte(v.w.code()))
				if code := [16]byte(sum[:16]); seen[code] {
					continue
				} else {
					seen[code] = true
				}
				if len(seen) > 700 && !testload.Full() {
					break
				}
				if len(seen) > 40000 {
					t.Fatal("too many worlds to explore here: more than 40000")
				}
				if err := v.w.wrong(); err != nil {
					t.Fatalf("%v\n%s", err, v.path)
				}
				if err := v.w.quiet(); err != nil {
					t.Fatalf("in silence: %v\n%s", err, v.path)
				}
				moves := v.w.moves()
				if len(v.w.net) == 0 && v.w.next().IsZero() {
					if err := v.w.settled(); err != nil {
						t.Fatalf("at the end: %v\n%s", err, v.path)
					}
					ends++
					for i, s := range v.w.subs {
						switch {
						case v.w.alive[i] && s.Phase() == Launched:
							launched++
						case v.w.alive[i]:
							failed++
						}
					}
				}
				for _, m := range moves {
					w := v.w.clone()
					path := &trail{v.path, m.name}
					if err := m.do(w); err != nil {
						t.Fatalf("%v\n%s", err, path)
					}
					stack = append(stack, visit{w, path})
				}
			}
			t.Logf("%d worlds, %d ends: submitters launched in %d, failed in %d", len(seen), ends, launched, failed)
			if ends == 0 || launched == 0 && testload.Full() {
				t.Error("no job was ever launched: the test shows nothing")
			}
			if clean := sc.name == "room for both"; clean == (failed > 0) {
				t.Errorf("submitters failed in %d worlds", failed)
			}
		})
	}
}

// trail is the history of a world, the last move first.
type trail struct {
	before *trail
	move   string
}

func (p *trail) String() string {
	var lines []string
	for ; p != nil; p = p.before {
		lines = append([]string{p.move}, lines...)
	}
	return strings.Join(lines, "\n")
}

// TestRandomWorlds takes random moves through larger systems with many failures, checks the same
// invariants in every world, and prints the seed and the moves when one fails.
func TestRandomWorlds(t *testing.T) {
	launched := 0
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 1))
		n := 1 + rng.IntN(6)
		sc := scenario{
			policy:   Policy{Allow: everyone, Jobs: 1 + rng.IntN(2), Processes: 1 + rng.IntN(3), Lease: 4 * time.Second, Longest: 8 * time.Second},
			job:      allocate.Job{Ranks: n, Copies: 1 + rng.IntN(2)},
			strategy: []allocate.Strategy{allocate.Spread{}, allocate.Concentrate{}, allocate.Auto{}}[rng.IntN(3)],
			spares:   rng.IntN(3), nodes: 2 + rng.IntN(8), subs: 1 + rng.IntN(4),
			lost: rng.IntN(20), twice: rng.IntN(20), late: rng.IntN(40), subDeaths: rng.IntN(2), nodeDeaths: rng.IntN(3), drops: rng.IntN(3), stops: rng.IntN(2),
		}
		w := newWorld(t, &sc)
		var log []string
		check := func(err error) {
			if err != nil {
				t.Fatalf("seed %d: %v\n%s", seed, err, strings.Join(log, "\n"))
			}
		}
		for range 5000 {
			moves := w.moves()
			if len(moves) == 0 {
				break
			}
			m := moves[rng.IntN(len(moves))]
			log = append(log, m.name)
			check(m.do(w))
			check(w.wrong())
			if rng.IntN(8) == 0 {
				check(w.quiet())
			}
		}
		if len(w.net) > 0 || !w.next().IsZero() {
			check(fmt.Errorf("it goes on after %d moves", len(log)))
		}
		check(w.settled())
		for i, s := range w.subs {
			if w.alive[i] && s.Phase() == Launched {
				launched++
			}
		}
	}
	t.Logf("%d jobs launched", launched)
	if launched < 20 {
		t.Errorf("only %d jobs were launched: the test shows little", launched)
	}
}
