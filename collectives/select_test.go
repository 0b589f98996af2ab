package collectives

import (
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/collectives/operation"
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

// A row of the table is all that an algorithm needs to be found, forced and, where it is predicted to be the fastest, chosen.
func TestAddedAlgorithm(t *testing.T) {
	two := Layout{{0, 0, 1, 1}}
	planner := func() *Planner {
		p, err := NewPlanner(0, 4, two)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if err := planner().Force(operation.Barrier, "test"); err == nil {
		t.Error("an algorithm that is not in the table can be forced")
	}
	before := lines[operation.Barrier]
	defer func() { lines[operation.Barrier] = before }()
	lines[operation.Barrier] = append(before[:len(before):len(before)], Algorithm{Collective: operation.Barrier, Name: "test", Places: true, plan: func(*plan) {}})
	if a, err := Find(operation.Barrier, "test"); err != nil || a.Name != "test" {
		t.Errorf("found %v, %v", a.Name, err)
	}
	p := planner()
	if c, err := p.Choose(operation.Barrier, Shape{}); err != nil || c.Algorithm.Name != "test" {
		t.Errorf("%s is chosen (%v), not the one that sends nothing", c.Algorithm.Name, err)
	}
	if err := p.Force(operation.Barrier, "two-level"); err != nil {
		t.Error(err)
	}
	if c, err := p.Choose(operation.Barrier, Shape{}); err != nil || c.Algorithm.Name != "two-level" {
		t.Errorf("%s is chosen (%v) where two-level is forced", c.Algorithm.Name, err)
	}
	if err := p.Force(operation.Barrier, "test"); err != nil {
		t.Error(err)
	}
	if c, err := p.Choose(operation.Barrier, Shape{}); err != nil || c.Algorithm.Name != "test" {
		t.Errorf("%s is chosen (%v) where the new one is forced", c.Algorithm.Name, err)
	}
}
