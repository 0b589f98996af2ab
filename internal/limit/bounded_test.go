package limit

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
)

// boundedOracle is a Bounded of numbers that keeps every addition, and finds out each time which keys
// were in time to have a value of their own.
type boundedOracle struct {
	max   int
	other string
	added []addition
}

type addition struct {
	key string
	n   uint64
}

func (o boundedOracle) sums() map[string]uint64 {
	named, sums := map[string]bool{}, map[string]uint64{}
	for _, a := range o.added {
		if a.key != o.other && len(named) < o.max {
			named[a.key] = true
		}
		if named[a.key] {
			sums[a.key] += a.n
		} else {
			sums[o.other] += a.n
		}
	}
	return sums
}

// A Bounded has what the oracle has; no key above its bound, and nothing that was added is lost.
func TestBounded(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 0))
		o := boundedOracle{max: r.IntN(6), other: "k3"} // which is also added by its own name
		b := Bounded[string, uint64]{Max: o.max, Other: o.other}
		var total uint64
		for range r.IntN(40) {
			a := addition{fmt.Sprint("k", r.IntN(12)), r.Uint64N(100)}
			o.added = append(o.added, a)
			before, held := b.Get(a.key), b.Len()
			if b.Len() != held {
				t.Fatalf("seed %d: reading %s adds a key", seed, a.key)
			}
			*b.At(a.key) += a.n
			total += a.n
			if after := b.Get(a.key); after != before+a.n {
				t.Fatalf("seed %d: %s had %d, with %d more it has %d", seed, a.key, before, a.n, after)
			}
		}
		copied, want := b.Clone(), o.sums()
		got := maps.Collect(b.All())
		if !maps.Equal(got, want) || b.Len() > o.max+1 || b.Len() != len(got) {
			t.Fatalf("seed %d: at most %d keys of %v:\n%v\nwant %v", seed, o.max, o.added, got, want)
		}
		for _, n := range got {
			total -= n
		}
		if total != 0 {
			t.Fatalf("seed %d: %d of what was added are not in %v", seed, total, got)
		}
		*b.At("k1")++
		b.Clear()
		if !maps.Equal(maps.Collect(copied.All()), want) || b.Len() != 0 || b.Get("k1") != 0 {
			t.Fatalf("seed %d: the copy is %v after a change of the original, which is %v", seed, copied, b)
		}
	}
}
