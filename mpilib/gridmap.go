package mpilib

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/isthmus-grid/isthmus/mpilib/internal/calls"
	"github.com/isthmus-grid/isthmus/mpilib/internal/coll"
	"github.com/isthmus-grid/isthmus/mpilib/internal/place"
	"github.com/isthmus-grid/isthmus/overlay"
)

// This file lets a program query where its ranks run and which paths messages between them take.

// Level is a level of the grid, from the whole grid to a host. Each lies within the previous one.
type Level int

// The levels. All ranks share the grid.
const (
	LevelGrid Level = iota
	LevelSite       // hosts behind one gateway
	LevelNode       // one host
	levels
)

func (l Level) String() string {
	names := [...]string{"grid", "site", "node"}
	if l < 0 || int(l) >= len(names) {
		return fmt.Sprintf("Level(%d)", int(l))
	}
	return names[l]
}

// Topology describes where the ranks of a communicator run, and which paths messages between them
// have taken. It is an immutable snapshot; the caller owns its slices. Encoded as JSON it has
// lower-case names.
type Topology struct {
	Comm  string      `json:"comm"`  // the communicator's name
	Ranks []RankPlace `json:"ranks"` // by rank

	// Groups has the groups of the job, as in JobGroups: also those without a rank in the
	// communicator.
	Groups []JobGroup `json:"groups,omitempty"`

	// Paths has the known paths, sorted by From and To: this rank's, or, for GatherTopology and
	// AllgatherTopology, those of all ranks. Ranks without an entry have no link so far, so their
	// path is unknown.
	Paths []Path `json:"paths"`
}

// RankPlace is where a rank runs. Ranks with the same colour at a level share the unit of that
// level. Colours of a level count from 0, in the order of the ranks; so Colours[LevelSite] can be
// passed to Split.
type RankPlace struct {
	Rank    int    `json:"rank"`
	World   int    `json:"world"` // its rank in the world
	Site    string `json:"site"`  // empty where no helper says: then all ranks run on one node
	Node    string `json:"node"`
	Group   string `json:"group,omitempty"` // the group of the job that it is in; empty if the job has none
	Depth   int    `json:"depth"`           // how many levels it has colours for
	Colours []int  `json:"colours"`
}

// Path is the path of messages from From to To, as From sees it.
type Path struct {
	From      int     `json:"from"` // rank in the communicator
	To        int     `json:"to"`
	Technique string  `json:"technique"` // "local" on one node
	Via       string  `json:"via,omitempty"`
	Proxy     string  `json:"proxy,omitempty"`
	Cipher    string  `json:"cipher,omitempty"` // empty: not encrypted
	Reason    string  `json:"reason,omitempty"` // why it is this technique
	Carriers  int     `json:"carriers"`         // connections it has at once
	RTTMS     float64 `json:"rtt_ms"`           // measured last
	Bandwidth float64 `json:"bandwidth"`        // bytes a second, as in LinkInfo; 0: not known
}

// Depth returns the number of levels at which a rank has a colour.
func (t *Topology) Depth(rank int) int { return t.Ranks[rank].Depth }

// Colour returns a rank's colour at a level, or Undefined if it has none.
func (t *Topology) Colour(rank int, level Level) int {
	if level < 0 || int(level) >= t.Ranks[rank].Depth {
		return Undefined
	}
	return t.Ranks[rank].Colours[level]
}

// Shared returns the deepest level that two ranks share.
func (t *Topology) Shared(a, b int) Level {
	for l := LevelGrid + 1; l < levels; l++ {
		if c := t.Colour(a, l); c == Undefined || c != t.Colour(b, l) {
			return l - 1
		}
	}
	return levels - 1
}

// Path returns the path of messages from one rank to another, if known.
func (t *Topology) Path(from, to int) (p Path, known bool) {
	at, known := slices.BinarySearchFunc(t.Paths, Path{From: from, To: to}, order)
	if !known {
		return Path{From: from, To: to}, false
	}
	return t.Paths[at], true
}

func order(a, b Path) int {
	if a.From != b.From {
		return a.From - b.From
	}
	return a.To - b.To
}

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
		_, err = t.gather(ctx, call, root)
	}
	return t, c.called("GatherTopology", err)
}

// AllgatherTopology is Topology with the paths of all ranks on every rank. It is a collective call.
func (c *Comm) AllgatherTopology(ctx context.Context) (*Topology, error) {
	t, call, err := c.topology(ctx)
	if err == nil {
		err = t.allgather(ctx, call)
	}
	return t, c.called("AllgatherTopology", err)
}

// Paths returns the current paths of this rank's messages to other ranks of c with which it has a
// link; for an intercommunicator, to the other group. It is local.
func (c *Comm) Paths() []Path {
	paths := []Path{}
	for _, l := range c.world.Links() {
		if !c.Member(l.Peer) {
			continue
		}
		paths = append(paths, Path{
			From: c.core.Rank, To: c.core.Local(l.Peer), Technique: l.Technique, Via: l.Via, Proxy: l.Proxy, Cipher: l.Cipher,
			Reason: l.Reason, Carriers: l.Carriers, RTTMS: l.RTTMS, Bandwidth: l.Bandwidth,
		})
	}
	slices.SortFunc(paths, order)
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
	t := &Topology{Comm: c.Name(), Ranks: placed(places), Groups: c.world.JobGroups(), Paths: c.Paths()}
	for r := range t.Ranks {
		t.Ranks[r].World = c.WorldRank(r)
		t.Ranks[r].Group = c.world.jobGroup(t.Ranks[r].World)
	}
	return t, call, nil
}

// placed assigns colours to the ranks by their locations.
func placed(places []overlay.NodeID) []RankPlace {
	ranks := make([]RankPlace, len(places))
	sites, nodes := place.Dense(place.BySite(places)), place.Dense(place.ByNode(places))
	for r, at := range places {
		colours := []int{LevelGrid: 0, LevelSite: sites[r], LevelNode: nodes[r]}
		ranks[r] = RankPlace{Rank: r, Site: string(at.Site), Node: at.Name, Depth: len(colours), Colours: colours}
	}
	return ranks
}

// gather sends the paths of all ranks to root, and returns them encoded.
func (t *Topology) gather(ctx context.Context, call *calls.Call, root int) ([]byte, error) {
	mine, err := json.Marshal(t.Paths)
	if err != nil {
		return nil, err
	}
	all, err := coll.GatherBytes(ctx, call, call.Rank(), call.Size(), mine, root)
	if err != nil || all == nil {
		return nil, err
	}
	t.Paths = t.Paths[:0]
	for r, encoded := range all {
		if err := t.add(encoded); err != nil {
			return nil, fmt.Errorf("the paths of rank %d: %w", r, err)
		}
	}
	return json.Marshal(t.Paths)
}

func (t *Topology) add(encoded []byte) error {
	var paths []Path
	if err := json.Unmarshal(encoded, &paths); err != nil {
		return err
	}
	t.Paths = append(t.Paths, paths...)
	return nil
}

func (t *Topology) allgather(ctx context.Context, call *calls.Call) error {
	all, err := t.gather(ctx, call, 0)
	if err != nil {
		return err
	}
	if all, err = coll.BcastBytes(ctx, call, call.Rank(), all, 0); err != nil || call.Rank() == 0 {
		return err
	}
	t.Paths = nil
	return t.add(all)
}
