package termination

import (
	"flag"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/testload"
)

var runs = flag.Int("runs", defaultRuns(), "simulated runs of each test")

func defaultRuns() int {
	if testload.Full() {
		return 10_000
	}
	return 100
}

// Whatever is late, lost, overwritten or restarted from an older state: all decide, on the same
// wave, and the residual of the vector is at most the tolerance.
func TestResultIsGoodEnough(t *testing.T) {
	var waves, losses, stored int
	for seed := range uint64(*runs) {
		w := newWorld(seed)
		budget := w.losses
		if err := w.run(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		x, err := w.solution()
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if r := w.system.trueResidual(x); !(r <= w.config.Tolerance) {
			t.Fatalf("seed %d: the residual of the result is %g, the tolerance %g", seed, r, w.config.Tolerance)
		}
		waves += w.waves
		losses += budget - w.losses
		for _, p := range w.procs {
			if p.result != nil && !p.dead && !p.result.HasCopy {
				stored++
			}
		}
	}
	t.Logf("%d runs, %d waves, %d losses, %d blocks taken from where a lost process stored them", *runs, waves, losses, stored)
}

// The rule of a central server, in the same world: all tasks have said that they have converged, and
// yet some vectors are not good enough.
func TestServerStopsTooEarly(t *testing.T) {
	early, worst := 0, 0.0
	for seed := range uint64(*runs) {
		w := newWorld(seed)
		w.useServer = true
		if err := w.run(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		x, err := w.solution()
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if r := w.system.trueResidual(x) / w.config.Tolerance; r > 1 {
			early++
			worst = max(worst, r)
		}
	}
	t.Logf("in %d of %d runs the server stops too early; the greatest residual is %.3g tolerances", early, *runs, worst)
	if early == 0 {
		t.Error("the server never stops too early: the world is too kind to show anything")
	}
}

// An owner that measures whatever values it has, in place of the copies, ends like the server.
func TestMeasuringWithoutCopiesIsNoticed(t *testing.T) {
	early := 0
	for seed := range uint64(*runs) {
		w := newWorld(seed)
		w.noFreeze = true
		if err := w.run(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if x, err := w.solution(); err != nil || w.system.trueResidual(x) > w.config.Tolerance {
			early++
		}
	}
	t.Logf("without copies %d of %d results are not good enough", early, *runs)
	if early == 0 {
		t.Error("no run notices that the residual is not that of the copies")
	}
}
