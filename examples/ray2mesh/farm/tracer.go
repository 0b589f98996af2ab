package farm

import (
	"context"

	"github.com/isthmus-grid/isthmus/examples/pace"
	"github.com/isthmus-grid/isthmus/examples/ray2mesh/earth"
)

// tracer is what a worker computes with.
type tracer struct {
	model     earth.Model
	survey    earth.Survey
	mesh      earth.Mesh
	processor *pace.Processor // counts rays
	traced    int64
}

// trace computes a chunk: its arrivals, and what its rays add to the mesh.
func (t *tracer) trace(ctx context.Context, c chunk) ([]arrival, error) {
	arrivals := make([]arrival, 0, c.Count)
	for i := c.First; i < c.First+c.Count; i++ {
		err := t.processor.Do(ctx, 1, func() { arrivals = append(arrivals, arrival{i, t.ray(i)}) })
		if err != nil {
			return nil, err
		}
	}
	t.traced += c.Count
	return arrivals, nil
}

// ray traces one ray and returns how long it takes.
func (t *tracer) ray(i int64) (seconds float64) {
	from, to := t.survey.Ends(i)
	ray, ok := t.model.Trace(from.Distance(to))
	if !ok {
		return noRay
	}
	t.mesh.Add(t.model, ray, from, to)
	return ray.Seconds
}
