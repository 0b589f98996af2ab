// Package gridmap describes where the ranks of a communicator run, and which paths messages between
// them take. It knows neither communicators nor links, and keeps no state.
package gridmap

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/isthmus-grid/isthmus/mpilib/internal/calls"
	"github.com/isthmus-grid/isthmus/mpilib/internal/coll"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
	"github.com/isthmus-grid/isthmus/mpilib/internal/place"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Level is a level of the grid, from the whole grid to a host. Each lies within the previous one.
type Level int

// The levels. All ranks share the grid.
const (
	LevelGrid Level = iota
	LevelSite       // hosts behind one gateway
	LevelNode       // one host
	levels
)

// String returns "grid", "site" or "node".
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
	Paths []MessagePath `json:"paths"`
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

// MessagePath is the path of messages from From to To, as From sees it.
type MessagePath struct {
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
		return mpi.Undefined
	}
	return t.Ranks[rank].Colours[level]
}

// Shared returns the deepest level that two ranks share.
func (t *Topology) Shared(a, b int) Level {
	for l := LevelGrid + 1; l < levels; l++ {
		if c := t.Colour(a, l); c == mpi.Undefined || c != t.Colour(b, l) {
			return l - 1
		}
	}
	return levels - 1
}

// Path returns the path of messages from one rank to another, if known.
func (t *Topology) Path(from, to int) (p MessagePath, known bool) {
	at, known := slices.BinarySearchFunc(t.Paths, MessagePath{From: from, To: to}, Order)
	if !known {
		return MessagePath{From: from, To: to}, false
	}
	return t.Paths[at], true
}

// Order compares paths by From and To.
func Order(a, b MessagePath) int {
	if a.From != b.From {
		return a.From - b.From
	}
	return a.To - b.To
}

// JobGroup is a group of the job: a part of the world's ranks that got a name when the job was
// started, because it has a different task or different requirements. Ranks of a group are
// consecutive. It differs from Group, which is any set of processes.
type JobGroup struct {
	Name  string `json:"name"`
	First int    `json:"first"` // its first rank in the world
	Count int    `json:"count"`
}

// Placed assigns colours to the ranks by their locations.
func Placed(places []overlay.NodeID) []RankPlace {
	ranks := make([]RankPlace, len(places))
	sites, nodes := place.Dense(place.BySite(places)), place.Dense(place.ByNode(places))
	for r, at := range places {
		colours := []int{LevelGrid: 0, LevelSite: sites[r], LevelNode: nodes[r]}
		ranks[r] = RankPlace{Rank: r, Site: string(at.Site), Node: at.Name, Depth: len(colours), Colours: colours}
	}
	return ranks
}

// Gather sends the paths of all ranks to root, and returns them encoded.
func (t *Topology) Gather(ctx context.Context, call *calls.Call, root int) ([]byte, error) {
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
	var paths []MessagePath
	if err := json.Unmarshal(encoded, &paths); err != nil {
		return err
	}
	t.Paths = append(t.Paths, paths...)
	return nil
}

// Allgather is Gather with the paths on every rank.
func (t *Topology) Allgather(ctx context.Context, call *calls.Call) error {
	all, err := t.Gather(ctx, call, 0)
	if err != nil {
		return err
	}
	if all, err = coll.BcastBytes(ctx, call, call.Rank(), all, 0); err != nil || call.Rank() == 0 {
		return err
	}
	t.Paths = nil
	return t.add(all)
}
