package mpilib

import (
	"fmt"
	"os"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/mpilib/internal/comm"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
	"github.com/isthmus-grid/isthmus/mpilib/internal/plan"
)

// The environment of collective calls, and the hint. If a communicator's ranks are on several nodes
// or sites, its rank 0's environment applies to all of them, also for the communicators created
// from it; otherwise all must have the same.
const (
	// EnvColl forces algorithms: "bcast=two-level:8,allreduce=ring". isthmus-lab bench coll lists
	// them. If an algorithm would give a wrong result, for the operator or the order of the ranks,
	// another one is used.
	EnvColl = plan.EnvForced // ISTHMUS_COLL
	// EnvCollExplain is "1" to make rank 0 of each communicator print on standard error, once for
	// each new kind of call, which algorithm it uses and why not the next best.
	EnvCollExplain = "ISTHMUS_COLL_EXPLAIN"
	// EnvCollLearned names a file of corrections of the predicted times: lines of a collective, an
	// algorithm, a number of bytes and a factor, "bcast two-level:8 65536 1.2". A # begins a
	// comment. The process with rank 0 of the world reads it.
	EnvCollLearned = plan.EnvLearned // ISTHMUS_COLL_LEARNED

	// HintColl is EnvColl for one communicator (SetInfo), and takes precedence. All ranks give the
	// same.
	HintColl = "isthmus_coll"
)

// readOrders reads the environment of a process.
func (cfg *config) readOrders() (err error) {
	if text, ok := cfg.lookup(EnvCollExplain); ok && text != "" && text != "0" && cfg.explain == nil {
		cfg.explain = os.Stderr
	}
	cfg.orders, err = plan.ReadOrders(cfg.lookup, cfg.place.Rank == 0)
	return err
}

// forcedBy returns the algorithms that info forces, and whether info has that hint.
func forcedBy(info *Info) (list string, given bool, err error) {
	list, given = info.Get(HintColl)
	if given {
		if _, err := collectives.ParseForced(list); err != nil {
			return "", false, fmt.Errorf("%w: hint %s: %w", ErrArg, HintColl, err)
		}
	}
	return list, given, nil
}

// hintsOf returns the hints of info for a new communicator, and the algorithms that it forces.
func hintsOf(info *Info) (comm.Hints, string, error) {
	hints, err := comm.Hints(0).With(info.Get)
	list, _, listErr := forcedBy(info)
	return hints, list, mpi.FirstOf(err, listErr)
}
