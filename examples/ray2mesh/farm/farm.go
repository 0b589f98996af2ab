// Package farm is the program ray2mesh: a stand-in for the geophysical one of
// that name, which traces seismic rays through a mesh of the Earth. It has that
// program's three phases: broadcasts of the model and of who listens to what; a
// farm of workers who are dealt chunks of rays; and a broadcast and an
// all-to-all by which the meshes of all workers become one, a part on each rank.
//
// In the vanilla pattern the master deals to all workers, wherever they are. In
// the hierarchical one it deals big chunks to bosses, one in each cluster, and they
// deal small ones to the workers next to them. A cluster is a group of the job or, if it
// has none, a site (package clusters):
//
//	          master                         master
//	┌───┬───┬───┼───┬───┬───┐        ┌─────────┼─────────┐
//	w   w   w   w   w   w   w       boss      boss      boss
//	                               ┌─┴─┐     ┌─┴─┐     ┌─┴─┐
//	                               w   w     w   w     w   w
//
// Package earth traces the rays. Every ray is traced once, and the results are the
// same whatever the pattern and the number of ranks, also when ranks die on the way. State
// lives in a run.
package farm

import (
	"context"
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/examples/clusters"
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
	comm     *mpilib.Comm
	orphaned []*mpilib.Comm   // of those that others left behind; freed by close
	places   []overlay.NodeID // of the world's ranks
	clusters []int            // of the world's ranks
	sites    int              // of the communicator's ranks
	cast     cast
	rankOf   map[int]int  // in comm and the cast, by rank in the world
	upper    *mpilib.Comm // master, bosses, and workers of the master's; nil on others
	lower    *mpilib.Comm // a boss and its workers; nil on others
	tracer   tracer
	ledger   ledger // on the master
	lost     int    // ranks that have died

	handled int64               // chunks that this rank has traced, or taken the results of
	fault   func(handled int64) // if not nil, told of each; tests have the process die there
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

// newFarm returns the farm of the world's ranks. A collective call.
func newFarm(ctx context.Context, comm *mpilib.Comm, p plan) (*farm, error) {
	places, err := comm.Places(ctx)
	if err != nil {
		return nil, err
	}
	f := &farm{plan: p, comm: comm, places: places, clusters: clusters.Of(places, comm.World().JobGroups())}
	return f, f.assign()
}

// assign gives the ranks of the communicator their roles.
func (f *farm) assign() (err error) {
	f.rankOf = make(map[int]int)
	var ofRanks []int
	sites := make(map[overlay.SiteID]bool)
	for r := range f.comm.Size() {
		world := f.comm.WorldRank(r)
		ofRanks, f.rankOf[world] = append(ofRanks, f.clusters[world]), r
		sites[f.places[world].Site] = true
	}
	f.sites = len(sites)
	f.cast, err = newCast(ofRanks, f.pattern)
	return err
}

// meet makes the communicators of dealers and clients, which part frees. A collective call.
func (f *farm) meet(ctx context.Context) (err error) {
	if f.upper != nil || f.lower != nil {
		return nil
	}
	rank := f.comm.Rank()
	upper, lower, key := mpilib.Undefined, mpilib.Undefined, rank
	if f.cast.group[rank] == -1 || f.cast.kinds[rank] == boss {
		upper = 0
	}
	if f.cast.group[rank] != -1 {
		lower = f.cast.group[rank] // a boss is the first of its group
	}
	if f.upper, err = f.comm.Split(ctx, upper, key); err != nil {
		return err
	}
	f.lower, err = f.comm.Split(ctx, lower, key)
	return err
}

func (f *farm) part() {
	for _, c := range []*mpilib.Comm{f.upper, f.lower} {
		if c != nil {
			c.Free() // fails only when it was freed before
		}
	}
	f.upper, f.lower = nil, nil
}

// run goes through the three phases, with all ranks that live to the end. All begin at once.
func (f *farm) run(ctx context.Context) (o outcome, err error) {
	f.tracer, f.lost, f.handled = tracer{}, 0, 0
	if err := f.attempt(ctx, func() error {
		if err := f.meet(ctx); err != nil {
			return err
		}
		return mpilib.Barrier(ctx, f.comm)
	}); err != nil {
		return o, err
	}
	begun := time.Now()
	err = f.attempt(ctx, func() error {
		err := f.runPhases(ctx, &o)
		o.phases.All = time.Since(begun).Seconds()
		return err
	})
	return o, err
}

// runPhases goes through the phases once, as far as it comes.
func (f *farm) runPhases(ctx context.Context, o *outcome) error {
	if err := f.meet(ctx); err != nil { // again, once a rank has died
		return err
	}
	begun := time.Now()
	if err := f.broadcast(ctx); err != nil {
		return fmt.Errorf("broadcasting the model: %w", err)
	}
	if err := f.collectProgress(ctx); err != nil {
		return fmt.Errorf("gathering what is traced: %w", err)
	}
	o.phases.Broadcast += time.Since(begun).Seconds()
	before, traced := tally.Sent(f.comm, f.places), time.Now()
	did, err := f.play(ctx)
	o.dealt.add(did)
	o.phases.Trace += time.Since(traced).Seconds()
	if err != nil {
		return fmt.Errorf("tracing: %w", err)
	}
	o.traffic = tally.Sent(f.comm, f.places).Since(before)
	merged := time.Now()
	err = f.merge(ctx, o)
	o.phases.Merge += time.Since(merged).Seconds()
	if err != nil {
		return fmt.Errorf("merging the meshes: %w", err)
	}
	return nil
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
	if err := mpilib.Bcast(ctx, f.comm, survey.Stations, 0); err != nil {
		return err
	}
	f.tracer.learn(model, survey, pace.New(f.speed))
	return nil
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
