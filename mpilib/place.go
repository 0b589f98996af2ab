package mpilib

import (
	"context"

	"github.com/isthmus-grid/isthmus/mpilib/internal/calls"
	"github.com/isthmus-grid/isthmus/mpilib/internal/settle"
	"github.com/isthmus-grid/isthmus/overlay"
)

// WithPlace sets the node and site of this process, regardless of the helper. Tests use it to
// emulate sites within one machine.
func WithPlace(site, node string) Option {
	return WithPlaces(func(int) (string, string) { return site, node })
}

// WithPlaces is WithPlace for all ranks of a TestWorld: where returns the location of each rank of
// the world.
func WithPlaces(where func(rank int) (site, node string)) Option {
	return func(cfg *config) {
		cfg.where = func(rank int) overlay.NodeID {
			site, node := where(rank)
			return overlay.NodeID{Site: overlay.SiteID(site), Name: node}
		}
	}
}

// Place returns where this process runs, according to its helper or WithPlace. It is zero without
// either; then all processes are on one node of one site. A rank with replicas has one place, the same in all of them: that of
// its replica 0 at the start of the job.
func (w *World) Place() overlay.NodeID { return w.comms.node }

// Places returns where each rank of c runs. It is a collective call.
func (c *Comm) Places(ctx context.Context) ([]overlay.NodeID, error) {
	call, err := c.core.Next(ctx)
	if err != nil {
		return nil, c.called("Places", err)
	}
	places, err := call.Places(ctx)
	return places, c.called("Places", err)
}

// SplitType is the resource that the processes of one part of SplitType share.
type SplitType int

// The kinds of SplitType. Undefined is for processes that get no communicator.
const (
	SplitShared = SplitType(calls.SplitShared) // memory (MPI_COMM_TYPE_SHARED): the node
	SplitNode   = SplitType(calls.SplitNode)   // the node
	SplitSite   = SplitType(calls.SplitSite)   // the site: hosts behind one gateway
	SplitGroup  = SplitType(calls.SplitGroup)  // the group of the job; see JobGroup
)

// SplitType splits c into communicators of the processes that share the resource of split, ordered
// by key and, where keys are equal, by rank in c (MPI_Comm_split_type; MPI-4.1, section 7.4.2). All
// ranks give the same split, or SplitType(Undefined) and get nil. With SplitGroup a communicator is
// named after the group, and all get nil in a job without groups. info gives hints. It is a
// collective call.
func (c *Comm) SplitType(ctx context.Context, split SplitType, key int, info *Info) (*Comm, error) {
	hints, list, err := hintsOf(info)
	t := settle.Terms{Kind: settle.SplitType, Fault: err}
	t.Args[0], t.Args[1] = settle.List("hint "+HintColl, list), settle.List(EnvGroups, c.world.config.layout)
	n, err := c.core.SplitType(ctx, t, int(split), key, c.world.config.layout)
	if n != nil {
		n.Hints, n.Forced = hints, list
	}
	return c.created("SplitType", n, err)
}
