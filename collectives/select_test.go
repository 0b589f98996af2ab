package collectives

import (
	"testing"
	"time"
)

// TestSimplest: among choices predicted as fast, the one that sends much less between sites wins,
// then the first; one predicted slower never wins.
func TestSimplest(t *testing.T) {
	const ms, kib = time.Millisecond, 1 << 10
	choice := func(name string, predicted time.Duration, far int) Choice {
		return Choice{Algorithm{Name: name}, predicted, far}
	}
	for _, test := range []struct {
		name    string
		choices []Choice
		want    string
	}{
		{"the first of equals", []Choice{choice("a", 32*ms, 64*kib), choice("b", 32*ms, 64*kib)}, "a"},
		{"hardly slower, and first", []Choice{choice("a", 33*ms, 64*kib), choice("b", 32*ms, 64*kib)}, "a"},
		{"slower", []Choice{choice("a", 34*ms, 64*kib), choice("b", 32*ms, 64*kib)}, "b"},
		{"slower, and sends less", []Choice{choice("a", 34*ms, 16*kib), choice("b", 32*ms, 64*kib)}, "b"},
		{"as fast, and sends four times as much", []Choice{choice("a", 32*ms, 256*kib), choice("b", 33*ms, 64*kib)}, "b"},
		{"as fast, and sends a little more", []Choice{choice("a", 32*ms, 70*kib), choice("b", 32*ms, 64*kib)}, "a"},
		{"a few bytes more", []Choice{choice("a", 32*ms, 3*kib), choice("b", 32*ms, 8)}, "a"},
	} {
		if got := simplest(test.choices).Algorithm.Name; got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}
