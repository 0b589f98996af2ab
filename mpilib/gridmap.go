package mpilib

import (
	"context"
	"slices"

	"github.com/isthmus-grid/isthmus/mpilib/internal/calls"
	"github.com/isthmus-grid/isthmus/mpilib/internal/gridmap"
)

// This file lets a program query where its ranks run and which paths messages between them take.

// A Topology describes where the ranks of a communicator run, and which paths messages between them
// have taken: a RankPlace for each rank, with a colour at each Level that two ranks there share, and
// the Paths that are known.
type (
	Topology  = gridmap.Topology
	RankPlace = gridmap.RankPlace
	Path      = gridmap.MessagePath
	Level     = gridmap.Level
)

// The levels of the grid, from the whole grid to a host. All ranks share the grid.
const (
	LevelGrid = gridmap.LevelGrid
	LevelSite = gridmap.LevelSite // hosts behind one gateway
	LevelNode = gridmap.LevelNode // one host
)

// Topology returns where the ranks of c run and the paths of this rank's messages. It is a
// collective call; Paths returns the paths again at any time.
func (c *Comm) Topology(ctx context.Context) (*Topology, error) {
	t, _, err := c.topology(ctx)
	return t, c.called("Topology", err)
}

// GatherTopology is Topology with the paths of all ranks at root; other ranks get their own. It is
// a collective call.
func (c *Comm) GatherTopology(ctx context.Context, root int) (*Topology, error) {
	t, call, err := c.topology(ctx)
	if err == nil {
		_, err = t.Gather(ctx, call, root)
	}
	return t, c.called("GatherTopology", err)
}

// AllgatherTopology is Topology with the paths of all ranks on every rank. It is a collective call.
func (c *Comm) AllgatherTopology(ctx context.Context) (*Topology, error) {
	t, call, err := c.topology(ctx)
	if err == nil {
		err = t.Allgather(ctx, call)
	}
	return t, c.called("AllgatherTopology", err)
}

// Paths returns the current paths of this rank's messages to other ranks of c with which it has a
// link; for an intercommunicator, to the other group. It is local. Where ranks have replicas these differ, and there may be several
// to one rank; a Topology then has none.
func (c *Comm) Paths() []Path {
	paths := []Path{}
	for _, l := range c.world.Links() {
		if !c.Member(l.Peer) || l.Peer == l.Rank { // the latter is another replica
			continue
		}
		paths = append(paths, Path{
			From: c.core.Rank, To: c.core.Local(l.Peer), Technique: l.Technique, Via: l.Via, Proxy: l.Proxy, Cipher: l.Cipher,
			Reason: l.Reason, Carriers: l.Carriers, RTTMS: l.RTTMS, Bandwidth: l.Bandwidth,
		})
	}
	slices.SortFunc(paths, gridmap.Order)
	return paths
}

func (c *Comm) topology(ctx context.Context) (*Topology, *calls.Call, error) {
	call, err := c.core.Next(ctx)
	if err != nil {
		return nil, nil, err
	}
	places, err := call.Places(ctx)
	if err != nil {
		return nil, nil, err
	}
	t := &Topology{Comm: c.Name(), Ranks: gridmap.Placed(places), Groups: c.world.JobGroups(), Paths: []Path{}}
	if !c.world.replicated() { // in replicas they differ, and must not be sent
		t.Paths = c.Paths()
	}
	for r := range t.Ranks {
		t.Ranks[r].World = c.WorldRank(r)
		t.Ranks[r].Group = c.world.jobGroup(t.Ranks[r].World)
	}
	return t, call, nil
}
