package random

import (
	"math/big"
	"testing"
)

func TestNextAgainstBigIntegers(t *testing.T) {
	mod := new(big.Int).Lsh(big.NewInt(1), Bits)
	for _, seed := range []uint64{1, 271828183, 314159265, 1<<46 - 1} {
		g := New(seed)
		x := new(big.Int).SetUint64(seed)
		for i := range 10_000 {
			x.Mul(x, big.NewInt(Multiplier)).Mod(x, mod)
			if got := g.Next(); got != x.Uint64() {
				t.Fatalf("seed %d, number %d: %d, want %d", seed, i, got, x)
			}
		}
	}
}

func TestSkipEqualsStepping(t *testing.T) {
	stepped := New(314159265)
	for n := range uint64(5000) {
		skipped := New(314159265)
		skipped.Skip(n)
		if skipped != stepped {
			t.Fatalf("Skip(%d): %d, stepping gives %d", n, skipped.x, stepped.x)
		}
		stepped.Next()
	}
	// The period is 2^44: skipping it is standing still.
	g := New(271828183)
	g.Skip(1 << 44)
	if g != New(271828183) {
		t.Errorf("after a whole period: %d", g.x)
	}
	g.Skip(1 << 43)
	if g == New(271828183) {
		t.Error("the period is shorter than 2^44")
	}
}

func TestFloat64(t *testing.T) {
	g := New(1)
	if got, want := g.Float64(), 1220703125.0/70368744177664.0; got != want {
		t.Errorf("first deviate of seed 1 is %v, want %v", got, want)
	}
	same := g
	for range 1000 {
		if u, x := g.Float64(), same.Next(); u <= 0 || u >= 1 || uint64(u*(1<<Bits)) != x {
			t.Fatalf("deviate %v of %d", u, x)
		}
	}
}

func BenchmarkNext(b *testing.B) {
	g := New(271828183)
	for b.Loop() {
		g.Next()
	}
}
