package registry

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/overlay"
)

// N links over k equal proxies: any two counts differ by at most one, after
// every single link.
func TestChoiceIsFair(t *testing.T) {
	for _, how := range []Choice{RoundRobin, LeastLoaded} {
		for k := 1; k <= 7; k++ {
			proxies := make([]candidate, k)
			for i := range proxies {
				proxies[i] = candidate{name: fmt.Sprintf("p%d", i), capacity: 1000, measured: 1000}
			}
			for n := uint64(1); n <= 100; n++ {
				i, err := choose(how, proxies)
				if err != nil {
					t.Fatal(err)
				}
				proxies[i].load++
				proxies[i].last = n
				least, most := proxies[0].load, proxies[0].load
				for _, p := range proxies {
					least, most = min(least, p.load), max(most, p.load)
				}
				if most-least > 1 {
					t.Fatalf("%s, k=%d, n=%d: %+v", how, k, n, proxies)
				}
			}
		}
	}
}

// Compares with the definitions, over random loads.
func TestChoiceAgainstDefinition(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 20_000 {
		proxies := make([]candidate, rng.IntN(6))
		open := 0
		for i := range proxies {
			c := candidate{name: fmt.Sprintf("p%d", i), capacity: 1 + rng.IntN(4), last: uint64(i)*10 + uint64(rng.IntN(10))}
			c.measured = 1 + rng.IntN(c.capacity)
			c.load, c.draining = rng.IntN(c.capacity+1), rng.IntN(4) == 0
			if !c.draining && c.load < c.capacity {
				open++
			}
			proxies[i] = c
		}
		for _, how := range []Choice{RoundRobin, LeastLoaded} {
			i, err := choose(how, proxies)
			if len(proxies) == 0 {
				if !errors.Is(err, overlay.ErrNoRelay) {
					t.Fatalf("seed %d: no proxy: %v", seed, err)
				}
				continue
			}
			if open == 0 {
				if !errors.Is(err, overlay.ErrOverloaded) {
					t.Fatalf("seed %d: %+v: %v", seed, proxies, err)
				}
				continue
			}
			if err != nil {
				t.Fatalf("seed %d: %s of %+v: %v", seed, how, proxies, err)
			}
			got := proxies[i]
			for _, c := range proxies {
				if c.draining || c.load == c.capacity {
					continue
				}
				fuller := float64(got.load)/float64(got.measured) - float64(c.load)/float64(c.measured)
				if how == LeastLoaded && fuller > 1e-9 || how == RoundRobin && c.last < got.last {
					t.Fatalf("seed %d: %s of %+v took %+v", seed, how, proxies, got)
				}
			}
			if got.draining || got.load >= got.capacity {
				t.Fatalf("seed %d: %s took %+v", seed, how, got)
			}
		}
	}
}

// All links of an owner go through one proxy, whatever the load; owners are spread, and when a
// proxy drains only its own owners move.
func TestOwnersProxy(t *testing.T) {
	proxies := []candidate{{name: "p1", capacity: 10}, {name: "p2", capacity: 10}, {name: "p3", capacity: 10}}
	before := map[string]int{}
	count := [3]int{}
	for i := range 300 {
		owner := fmt.Sprintf("project p%d", i)
		n, err := owners(owner, proxies)
		if err != nil {
			t.Fatal(err)
		}
		before[owner] = n
		count[n]++
	}
	for i, n := range count {
		if n < 60 || n > 140 {
			t.Errorf("p%d has %d of 300 owners", i+1, n)
		}
	}
	loaded := slices.Clone(proxies)
	loaded[0].load, loaded[1].draining, loaded[2].load = 9, true, 10
	for owner, was := range before {
		n, err := owners(owner, loaded)
		switch {
		case was == 0 && (n != 0 || err != nil), was == 1 && n == 1:
			t.Errorf("%s was with %d, is with %d: %v", owner, was, n, err)
		case was == 2 && (!errors.Is(err, overlay.ErrOverloaded) || !strings.Contains(err.Error(), "proxy p3, which counts the links of "+owner)):
			t.Errorf("%s with a full proxy: %d, %v", owner, n, err)
		}
	}
	if _, err := owners("x", nil); !errors.Is(err, overlay.ErrNoRelay) {
		t.Errorf("without a proxy: %v", err)
	}
}
