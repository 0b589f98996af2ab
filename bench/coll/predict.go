package coll

import (
	"strings"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/internal/ipc/shm"
)

// predicted is what package collectives makes of a call in the scenario, as it is and not as
// ranks measure it: its choice, and then the others, the best first. Those of which it
// expects nothing are missing. On one node ranks share memory, as they do after their first calls.
func (s *scenario) predicted(f figure, root int) ([]collectives.Choice, error) {
	layout := s.layout()
	p, err := collectives.NewPlanner(0, len(layout[0]), layout)
	if err != nil {
		return nil, err
	}
	model := *p.Model()
	model.InterSite.Latency, model.InterSite.Rate = s.rtt/2, float64(s.rate)/8
	p.SetModel(&model)
	shape := collectives.Shape{Bytes: f.size, Root: root}
	if f.collective.Reduces() {
		shape.Elem, shape.Commutative = number, true
	}
	if s.oneNode() {
		shape.Posts = shm.SharedBufferPiece
	}
	return p.Choices(f.collective, shape)
}

// hardly is by which part of it a prediction may be above the best one for fewer flits to
// be chosen, as package collectives chooses.
const hardly = 32

// chosenFlits is how many flits would be chosen for an algorithm; 0 if nothing is
// predicted of it.
func chosenFlits(choices []collectives.Choice, algorithm string) int {
	var chosen, best *collectives.Choice
	for i := range choices {
		c := &choices[i]
		base, _, _ := strings.Cut(c.Algorithm.Name, ":")
		if base == algorithm && (best == nil || c.Predicted < best.Predicted) {
			best = c
		}
	}
	for i := range choices {
		c := &choices[i]
		base, _, _ := strings.Cut(c.Algorithm.Name, ":")
		if base == algorithm && c.Predicted <= best.Predicted+best.Predicted/hardly && (chosen == nil || c.Algorithm.Flits < chosen.Algorithm.Flits) {
			chosen = c
		}
	}
	if chosen == nil {
		return 0
	}
	return chosen.Algorithm.Flits
}

// named is what package collectives calls an algorithm with so many flits.
func (v variant) named(algorithm string) string {
	if v.flits == 1 {
		return algorithm
	}
	return v.algorithm(algorithm)
}
