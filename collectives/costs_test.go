package collectives_test

import (
	"context"
	"errors"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/isthmus-grid/isthmus/collectives"
)

// traffic runs one call and returns who sent how many messages to whom.
func traffic(t *testing.T, collective, name string, p, root int) map[pair]int {
	t.Helper()
	alg, err := collectives.Find(collective, name)
	if err != nil {
		t.Fatal(err)
	}
	e := oracles[collective](rand.New(rand.NewPCG(1, 1)), p, 16, root, sum32)
	w := newWorld(p)
	errs := run(t, w, w.comms(), func(ctx context.Context, c collectives.Comm, rank int) error {
		return alg.Run(ctx, c, e.args[rank])
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return w.sent
}

func total(sent map[pair]int) (n int) {
	for _, m := range sent {
		n += m
	}
	return n
}

// The number of messages is what each algorithm's comment promises.
func TestMessageCounts(t *testing.T) {
	rounds := func(p int) int { return bits.Len(uint(p - 1)) } // ceil(log2 p)
	pow2 := func(p int) int { return 1 << (bits.Len(uint(p)) - 1) }
	counts := []struct {
		collective, name string
		want             func(p int) int
	}{
		{"barrier", "dissemination", func(p int) int { return p * rounds(p) }},
		{"bcast", "binomial", func(p int) int { return p - 1 }},
		{"reduce", "binomial", func(p int) int { return p - 1 }},
		{"allreduce", "ring", func(p int) int { return 2 * p * (p - 1) }},
		{"allreduce", "recursive-doubling", func(p int) int { return pow2(p)*rounds(pow2(p)) + 2*(p-pow2(p)) }},
		{"gather", "binomial", func(p int) int { return p - 1 }},
		{"gather", "linear", func(p int) int { return p - 1 }},
		{"gatherv", "linear", func(p int) int { return p - 1 }},
		{"allgather", "bruck", func(p int) int { return p * rounds(p) }},
		{"allgather", "ring", func(p int) int { return p * (p - 1) }},
		{"scatter", "binomial", func(p int) int { return p - 1 }},
		{"scatter", "linear", func(p int) int { return p - 1 }},
		{"alltoall", "bruck", func(p int) int { return p * rounds(p) }},
		{"alltoall", "pairwise", func(p int) int { return p * (p - 1) }},
		{"alltoallv", "pairwise", func(p int) int { return p * (p - 1) }},
	}
	for _, tt := range counts {
		for p := 1; p <= 17; p++ {
			if got := total(traffic(t, tt.collective, tt.name, p, p-1)); got != tt.want(p) {
				t.Errorf("%s/%s p=%d: %d messages, want %d", tt.collective, tt.name, p, got, tt.want(p))
			}
		}
	}
}

// What a broadcast that knows nothing of sites costs between them: near the
// least, one message a site, with ranks blocked by site, and nearly every
// message with ranks dealt round robin.
func TestBinomialBcastBetweenSites(t *testing.T) {
	tests := []struct{ p, sites, blocked, roundRobin int }{
		{32, 2, 1, 16}, {32, 4, 3, 24}, {48, 3, 2, 47}, {64, 4, 3, 48}, {60, 3, 5, 59}, {180, 3, 4, 179},
	}
	for _, tt := range tests {
		var blocked, roundRobin int
		for ends, n := range traffic(t, "bcast", "binomial", tt.p, 0) {
			if ends.src*tt.sites/tt.p != ends.dst*tt.sites/tt.p {
				blocked += n
			}
			if ends.src%tt.sites != ends.dst%tt.sites {
				roundRobin += n
			}
		}
		if blocked != tt.blocked || roundRobin != tt.roundRobin {
			t.Errorf("%d ranks on %d sites: %d messages blocked, %d round robin; want %d and %d",
				tt.p, tt.sites, blocked, roundRobin, tt.blocked, tt.roundRobin)
		}
	}
}
