package coll

import (
	"strings"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/internal/ipc/shm"
)

// predicted returns the predictions of package collectives for a call in the scenario, from the
// scenario's true parameters and not from measurements of ranks: its choice first, then the
// others from the fastest to the slowest, without those that have no prediction. Ranks on one
// node share memory, as they do after their first calls.
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

// hardly is the fraction by which a prediction with fewer flits may exceed the best one and
// still be chosen, as in package collectives.
const hardly = 32

// chosenFlits returns the number of flits that would be chosen for an algorithm, or 0 if there is
// no prediction.
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

// named returns the name in package collectives of an algorithm with this number of flits.
func (v variant) named(algorithm string) string {
	if v.flits == 1 {
		return algorithm
	}
	return v.algorithm(algorithm)
}
