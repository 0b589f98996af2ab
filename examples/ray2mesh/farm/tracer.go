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
	traced    []arrival
}

// learn has the tracer compute with these from now on. What it has traced before it keeps.
func (t *tracer) learn(model earth.Model, survey earth.Survey, p *pace.Processor) {
	t.model, t.survey, t.processor = model, survey, p
	if t.mesh == nil {
		t.mesh = earth.NewMesh(model)
	}
}

// trace computes a chunk: its arrivals, which it keeps, and what its rays add to the
// mesh. After an error the mesh is not to be used.
func (t *tracer) trace(ctx context.Context, c chunk) ([]arrival, error) {
	arrivals := make([]arrival, 0, c.Count)
	for i := c.First; i < c.First+c.Count; i++ {
		err := t.processor.Do(ctx, 1, func() { arrivals = append(arrivals, arrival{i, t.ray(i)}) })
		if err != nil {
			return nil, err
		}
	}
	t.traced = append(t.traced, arrivals...)
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
