// Package farm is the program ray2mesh: a stand-in for the geophysical one of
// that name, which traces seismic rays through a mesh of the Earth. It has that
// program's three phases: broadcasts of the model and of who listens to what; a
// farm of workers who are dealt chunks of rays; and a broadcast and an
// all-to-all by which the meshes of all workers become one, a part on each rank.
//
// In the vanilla pattern the master deals to all workers, wherever they are. In
// the hierarchical one it deals big chunks to bosses, one in each site, and they
// deal small ones to the workers next to them:
//
//	          master                         master
//	┌───┬───┬───┼───┬───┬───┐        ┌─────────┼─────────┐
//	w   w   w   w   w   w   w       boss      boss      boss
//	                               ┌─┴─┐     ┌─┴─┐     ┌─┴─┐
//	                               w   w     w   w     w   w
//
// Package earth traces the rays. Every ray is traced once, and the results are the
// same whatever the pattern and the number of ranks. State lives in a run.
package farm

import (
	"context"
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/examples/pace"
	"github.com/isthmus-grid/isthmus/examples/ray2mesh/earth"
	"github.com/isthmus-grid/isthmus/examples/tally"
	"github.com/isthmus-grid/isthmus/mpilib"
	"github.com/isthmus-grid/isthmus/overlay"
)

// plan is what a run does, the same on every rank.
type plan struct {
	pattern  pattern
	rays     int64
	stations int
	chunk    int64   // rays of what a worker gets at once
	big      int64   // rays of what a boss gets at once; 0 is two chunks for each of its workers
	credit   int64   // chunks that a worker has at most: with two, one is on its way while it traces the other
	speed    float64 // rays that a processor traces in a second; 0 is as fast as this one can
	handling float64 // rays that it could trace in the time that it takes to deal one chunk and take its results
}

// farm is one rank's part of a run.
type farm struct {
	plan
	comm   *mpilib.Comm
	places []overlay.NodeID
	cast   cast
	upper  *mpilib.Comm // master, bosses, and workers of the master's; nil on others
	lower  *mpilib.Comm // a boss and its workers; nil on others
	tracer tracer
	ledger ledger // on the master
}

// phases are how long each took, in seconds.
type phases struct {
	Broadcast float64 `json:"broadcast"`
	Trace     float64 `json:"trace"`
	Merge     float64 `json:"merge"`
	All       float64 `json:"all"` // from the beginning to the end of all three
}

// outcome of one run on one rank.
type outcome struct {
	phases  phases
	dealt   dealt
	traffic tally.Traffic // of the trace phase
	summary summary       // on rank 0; then on all
	mesh    uint64        // checksum of the whole mesh
}

// newFarm makes communicators, which close frees. A collective call.
func newFarm(ctx context.Context, comm *mpilib.Comm, p plan) (*farm, error) {
	places, err := comm.Places(ctx)
	if err != nil {
		return nil, err
	}
	f := &farm{plan: p, comm: comm, places: places}
	if f.cast, err = newCast(places, p.pattern); err != nil {
		return nil, err
	}
	rank := comm.Rank()
	upper, lower, key := mpilib.Undefined, mpilib.Undefined, rank
	if f.cast.group[rank] == -1 || f.cast.kinds[rank] == boss {
		upper = 0
	}
	if f.cast.group[rank] != -1 {
		lower = f.cast.group[rank] // a boss is the first of its group
	}
	if f.upper, err = comm.Split(ctx, upper, key); err != nil {
		return nil, err
	}
	if f.lower, err = comm.Split(ctx, lower, key); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *farm) close() {
	for _, c := range []*mpilib.Comm{f.upper, f.lower} {
		if c != nil {
			c.Free() // fails only when it was freed before
		}
	}
}

// run goes through the three phases. All ranks begin at once.
func (f *farm) run(ctx context.Context) (o outcome, err error) {
	if err := mpilib.Barrier(ctx, f.comm); err != nil {
		return o, err
	}
	begun := time.Now()
	if err := f.broadcast(ctx); err != nil {
		return o, fmt.Errorf("broadcasting the model: %w", err)
	}
	o.phases.Broadcast = time.Since(begun).Seconds()
	before, traced := tally.Sent(f.comm, f.places), time.Now()
	if o.dealt, err = f.play(ctx); err != nil {
		return o, fmt.Errorf("tracing: %w", err)
	}
	o.traffic = tally.Sent(f.comm, f.places).Since(before)
	o.phases.Trace = time.Since(traced).Seconds()
	merged := time.Now()
	if err := f.merge(ctx, &o); err != nil {
		return o, fmt.Errorf("merging the meshes: %w", err)
	}
	o.phases.Merge = time.Since(merged).Seconds()
	o.phases.All = time.Since(begun).Seconds()
	return o, nil
}

// broadcast is the first phase: what all ranks compute with comes from rank 0.
func (f *farm) broadcast(ctx context.Context) error {
	var model earth.Model
	var survey earth.Survey
	sizes := make([]int64, 3)
	if f.comm.Rank() == 0 {
		model, survey = earth.Layered(), earth.NewSurvey(int(f.rays), f.stations)
		sizes = []int64{int64(len(model)), int64(len(survey.Events)), int64(len(survey.Stations))}
	}
	if err := mpilib.Bcast(ctx, f.comm, sizes, 0); err != nil {
		return err
	}
	if f.comm.Rank() != 0 {
		model = make(earth.Model, sizes[0])
		survey = earth.Survey{Events: make([]earth.Point, sizes[1]), Stations: make([]earth.Point, sizes[2])}
	}
	if err := mpilib.Bcast(ctx, f.comm, []earth.Shell(model), 0); err != nil {
		return err
	}
	if err := mpilib.Bcast(ctx, f.comm, survey.Events, 0); err != nil {
		return err
	}
	f.tracer = tracer{model: model, survey: survey, mesh: earth.NewMesh(model), processor: pace.New(f.speed)}
	return mpilib.Bcast(ctx, f.comm, survey.Stations, 0)
}

// play is the second phase: each rank in its role. Rank 0 returns what was dealt.
func (f *farm) play(ctx context.Context) (dealt, error) {
	switch f.cast.kinds[f.comm.Rank()] {
	case master:
		return f.lead(ctx)
	case boss:
		return f.pass(ctx)
	default:
		above := f.lower
		if above == nil {
			above = f.upper
		}
		return dealt{}, f.work(ctx, above)
	}
}
