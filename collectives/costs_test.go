package collectives_test

import (
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/collectives/operation"
	"github.com/isthmus-grid/isthmus/collectives/schedule"
)

// traffic simulates a call in which a message crosses if its ends do not have the same place in l
// (every message, if l is nil), and returns the outcome. Every vector or block has perRank elements
// of 4 bytes, or up to that many where they may differ.
func traffic(t *testing.T, alg collectives.Algorithm, l collectives.Layout, p, root int) *schedule.Outcome {
	t.Helper()
	e := oracles[alg.Collective](rand.New(rand.NewPCG(1, 1)), p, perRank, root, sum32)
	all := make([]*schedule.Schedule, p)
	grid := &schedule.Grid{Site: make([]int, p)}
	for r, a := range e.args {
		all[r] = alg.Schedule(r, p, l, a)
		if grid.Site[r] = r; l != nil {
			grid.Site[r] = l[0][r]
		}
	}
	out, err := schedule.Simulate(all, grid, nil, nil)
	if err != nil {
		t.Fatalf("%s/%s p=%d: %v", alg.Collective, alg.Name, p, err)
	}
	return out
}

const perRank = 60

// The number of messages is the one stated in each algorithm's comment.
func TestMessageCounts(t *testing.T) {
	rounds := func(p int) int { return bits.Len(uint(p - 1)) } // ceil(log2 p)
	pow2 := func(p int) int { return 1 << (bits.Len(uint(p)) - 1) }
	log2 := func(p int) int { return rounds(pow2(p)) }
	held := func(p int) (n int) { // pieces that ranks get together with those of their subtrees
		for v := 1; v < p; v++ {
			n += min(v&-v, p-v)
		}
		return n + p
	}
	prefix := func(p int) (n int) {
		for bit := 1; bit < p; bit *= 2 {
			n += p - bit
		}
		return n
	}
	tree := func(p int) int { return p - 1 }
	all := func(p int) int { return p * (p - 1) }
	bruck := func(p int) int { return p * rounds(p) }
	doubling := func(p int) int { return pow2(p)*log2(p) + 2*(p-pow2(p)) }
	counts := map[string]func(p int) int{
		"barrier/dissemination":        bruck,
		"bcast/binomial":               tree,
		"bcast/chain":                  tree,
		"bcast/binary-tree":            tree,
		"bcast/scatter-allgather":      func(p int) int { return p - 1 + p*p - held(p) },
		"reduce/binomial":              tree,
		"reduce/chain":                 tree,
		"reduce/rabenseifner":          func(p int) int { return p - 1 + pow2(p)*log2(p) },
		"allreduce/ring":               func(p int) int { return 2 * all(p) },
		"allreduce/recursive-doubling": doubling,
		"allreduce/rabenseifner":       func(p int) int { return doubling(p) + pow2(p)*log2(p) },
		"gather/binomial":              tree,
		"gather/linear":                tree,
		"gatherv/linear":               tree,
		"scatter/binomial":             tree,
		"scatter/linear":               tree,
		"scatterv/linear":              tree,
		"allgather/bruck":              bruck,
		"allgather/ring":               all,
		"allgather/recursive-doubling": bruck,
		"allgatherv/ring":              all,
		"alltoall/bruck":               bruck,
		"alltoall/pairwise":            all,
		"alltoallv/pairwise":           all,

		"reduce_scatter/pairwise":                all,
		"reduce_scatter/recursive-halving":       doubling,
		"reduce_scatter_block/pairwise":          all,
		"reduce_scatter_block/recursive-halving": doubling,
		"scan/recursive-doubling":                prefix,
		"scan/chain":                             tree,
		"exscan/recursive-doubling":              prefix,
		"exscan/chain":                           tree,
	}
	for _, collective := range collectives.Operations() {
		for _, alg := range scheduled(collective) {
			want := counts[collective.String()+"/"+alg.Name]
			if (want == nil) != alg.Places {
				t.Errorf("%s/%s: it is not said how many messages there are", collective, alg.Name)
			}
			for p := 1; p <= 17 && want != nil; p++ {
				if got, _ := traffic(t, alg, nil, p, p-1).Far(); got != want(p) {
					t.Errorf("%s/%s p=%d: %d messages, want %d", collective, alg.Name, p, got, want(p))
				}
			}
		}
	}
}

// The cost between sites of a broadcast that does not know sites: near the minimum, one message per
// site, with ranks in blocks by site, and nearly every message with ranks dealt round robin.
func TestBinomialBcastBetweenSites(t *testing.T) {
	tests := []struct{ p, sites, blocked, roundRobin int }{
		{32, 2, 1, 16}, {32, 4, 3, 24}, {48, 3, 2, 47}, {64, 4, 3, 48}, {60, 3, 5, 59}, {180, 3, 4, 179},
	}
	for _, tt := range tests {
		binomial, err := collectives.Find(operation.Bcast, "binomial")
		if err != nil {
			t.Fatal(err)
		}
		far := func(site func(r int) int) int {
			l := places(tt.p, func(r int) (int, int) { return site(r), 0 })
			messages, _ := traffic(t, binomial, l, tt.p, 0).Far()
			return messages
		}
		blocked, roundRobin := far(func(r int) int { return r * tt.sites / tt.p }), far(func(r int) int { return r % tt.sites })
		if blocked != tt.blocked || roundRobin != tt.roundRobin {
			t.Errorf("%d ranks on %d sites: %d messages blocked, %d round robin; want %d and %d",
				tt.p, tt.sites, blocked, roundRobin, tt.blocked, tt.roundRobin)
		}
	}
}

// spread is the placement of p ranks: c sites, the smallest of which has width ranks, home ranks at
// the root's site, and apart pairs of ranks that are not together.
type spread struct{ p, c, width, home, apart int }

// The messages between sites are the ones stated in each algorithm's comment and no more, wherever
// the ranks of a site are in rank order.
func TestMessagesBetweenSites(t *testing.T) {
	const m = 4 * perRank
	type cost struct{ messages, bytes int }
	each := func(n, bytes int) cost { return cost{n, n * bytes} }
	pairs := func(s spread) int { return s.c * (s.c - 1) }
	hops := func(s spread) int { return (s.c - 1) * (s.c - 1) }
	back := func(s spread) cost { // by two hops
		if s.c == 2 {
			return cost{s.width, m}
		}
		return cost{s.width * pairs(s), s.c * m}
	}
	promised := map[string]func(s spread) cost{
		"barrier/two-level":      func(s spread) cost { return each(pairs(s), 0) },
		"barrier/two-level-star": func(s spread) cost { return each(2*(s.c-1), 0) },

		"bcast/two-level":   func(s spread) cost { return each(s.c-1, perRank) },
		"bcast/two-level:4": func(s spread) cost { return cost{4 * (s.c - 1), (s.c - 1) * perRank} },
		"bcast/full-lane":   func(s spread) cost { return cost{s.width * (s.c - 1), (s.c - 1) * perRank} },
		"bcast/two-hop":     func(s spread) cost { return cost{s.width * hops(s), (s.c - 1) * perRank} },
		"bcast/mixed":       func(s spread) cost { return cost{s.width * (2*hops(s) + s.c - 1), (s.c - 1) * perRank} },

		"reduce/two-level":   func(s spread) cost { return each(s.c-1, m) },
		"reduce/two-level:4": func(s spread) cost { return cost{4 * (s.c - 1), (s.c - 1) * m} },
		"reduce/full-lane":   func(s spread) cost { return cost{s.width * (s.c - 1), (s.c - 1) * m} },
		"reduce/two-hop":     back,
		"reduce/mixed": func(s spread) cost {
			b := back(s)
			return cost{2*b.messages + s.width*(s.c-1), (2*b.bytes + (s.c-1)*m) / 3}
		},

		"allreduce/two-level":      func(s spread) cost { return each(pairs(s), m) },
		"allreduce/two-level-star": func(s spread) cost { return each(2*(s.c-1), m) },
		"allreduce/full-lane":      func(s spread) cost { return cost{s.width * pairs(s), pairs(s) * m} },
		"allreduce/two-step":       func(s spread) cost { return cost{s.width * 2 * pairs(s), 2 * (s.c - 1) * m} },

		"allreduce/mixed": func(s spread) cost {
			return cost{s.width * 3 * pairs(s), (2*(s.c-1) + pairs(s)) * m / 2}
		},

		"gather/linear":     func(s spread) cost { return each(s.p-s.home, perRank) },
		"gather/two-level":  func(s spread) cost { return cost{s.c - 1, (s.p - s.home) * perRank} },
		"scatter/linear":    func(s spread) cost { return each(s.p-s.home, perRank) },
		"scatter/two-level": func(s spread) cost { return cost{s.c - 1, (s.p - s.home) * perRank} },

		"allgather/two-level": func(s spread) cost { return cost{pairs(s), (s.c - 1) * s.p * perRank} },
		"allgather/full-lane": func(s spread) cost { return each((s.c-1)*s.p, perRank) },
		"alltoall/pairwise":   func(s spread) cost { return each(s.apart, perRank) },
		"alltoall/two-level":  func(s spread) cost { return cost{pairs(s), s.apart * perRank} },

		"reduce_scatter_block/pairwise":  func(s spread) cost { return each(s.apart, m) },
		"reduce_scatter_block/two-level": func(s spread) cost { return cost{pairs(s), (s.c - 1) * s.p * m} },
		"reduce_scatter_block/full-lane": func(s spread) cost { return each((s.c-1)*s.p, m) },

		"scan/two-level":   func(s spread) cost { return each(pairs(s)/2, m) },
		"scan/full-lane":   func(s spread) cost { return cost{s.width * pairs(s) / 2, pairs(s) / 2 * m} },
		"scan/allgather":   func(s spread) cost { return each((s.c-1)*s.p, m) },
		"exscan/two-level": func(s spread) cost { return each(pairs(s)/2, m) },
		"exscan/full-lane": func(s spread) cost { return cost{s.width * pairs(s) / 2, pairs(s) / 2 * m} },
		"exscan/allgather": func(s spread) cost { return each((s.c-1)*s.p, m) },

		// Here blocks differ, and only messages are counted.
		"allgatherv/two-level":     func(s spread) cost { return cost{pairs(s), -1} },
		"allgatherv/full-lane":     func(s spread) cost { return cost{(s.c - 1) * s.p, -1} },
		"reduce_scatter/two-level": func(s spread) cost { return cost{pairs(s), -1} },
		"reduce_scatter/full-lane": func(s spread) cost { return cost{(s.c - 1) * s.p, -1} },
	}
	for _, collective := range collectives.Operations() {
		for _, alg := range scheduled(collective) {
			if alg.Places && promised[collective.String()+"/"+alg.Name] == nil {
				t.Errorf("%s/%s: it is not said what crosses", collective, alg.Name)
			}
		}
	}
	for name, want := range promised {
		word, alg, _ := strings.Cut(name, "/")
		collective, err := operation.Parse(word)
		if err != nil {
			t.Fatal(err)
		}
		a, err := collectives.Find(collective, alg)
		if err != nil {
			t.Fatal(err)
		}
		for _, where := range []string{"blocked", "dealt", "ragged"} {
			for _, p := range []int{6, 12, 23} {
				l := layouts[where](p)
				for root := 0; root < p; root += 1 + p/3 {
					if !rooted(collective) && root > 0 || !possible(a, sum32, l) {
						continue
					}
					got := cost{}
					got.messages, got.bytes = traffic(t, a, l, p, root).Far()
					want := want(measure(l[0], root))
					if want.bytes < 0 {
						got.bytes = -1
					}
					if got != want {
						t.Errorf("%s, %d ranks %s, root %d: %+v, want %+v", name, p, where, root, got, want)
					}
				}
			}
		}
	}
}

func measure(site []int, root int) spread {
	sizes := map[int]int{}
	for _, k := range site {
		sizes[k]++
	}
	s := spread{p: len(site), c: len(sizes), width: len(site), home: sizes[site[root]], apart: len(site) * len(site)}
	for _, n := range sizes {
		s.width = min(s.width, n)
		s.apart -= n * n
	}
	return s
}
