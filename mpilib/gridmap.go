package mpilib

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/isthmus-grid/isthmus/mpilib/internal/coll"
	"github.com/isthmus-grid/isthmus/mpilib/internal/place"
	"github.com/isthmus-grid/isthmus/overlay"
)

// This file tells a program where its ranks run and how messages between them go.

// Level is a level of the grid at which ranks are near each other. Each lies within
// the one before.
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

// Topology says where the ranks of a communicator run, and which paths messages
// between them have taken. It is a snapshot that does not change; its slices are the
// caller's. Encoded as JSON it has lower-case names.
type Topology struct {
	Comm  string      `json:"comm"`  // the communicator's name
	Ranks []RankPlace `json:"ranks"` // by rank

	// Groups has the groups of the job, as JobGroups has them: not only those that
	// ranks of the communicator are in.
	Groups []JobGroup `json:"groups,omitempty"`

	// Paths has those that are known, by From and To: this rank's, or, from
	// GatherTopology and AllgatherTopology, everybody's. Between ranks that it does not
	// list there is no link so far, and so nothing is known.
	Paths []Path `json:"paths"`
}

// RankPlace is where a rank runs. Ranks that have the same colour at a level share
// what the level stands for. Colours of a level count from 0, in the order in which the
// ranks need them; so Colours[LevelSite] fits Split.
type RankPlace struct {
	Rank    int    `json:"rank"`
	World   int    `json:"world"` // its rank in the world
	Site    string `json:"site"`  // empty where no helper says: then all ranks run on one node
	Node    string `json:"node"`
	Group   string `json:"group,omitempty"` // the group of the job that it is in; empty if the job has none
	Depth   int    `json:"depth"`           // how many levels it has colours for
	Colours []int  `json:"colours"`
}

// Path is how messages of From get to To, as From sees it.
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

// Depth returns how many levels a rank has colours for.
func (t *Topology) Depth(rank int) int { return t.Ranks[rank].Depth }

// Colour returns a rank's colour at a level, or Undefined where it has none.
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

// Path returns how messages of one rank get to another, if that is known.
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

// Topology returns where the ranks of c run and the paths of this rank's messages. A
// collective call; Paths is the part of it that can be asked for again at any time.
func (c *Comm) Topology(ctx context.Context) (*Topology, error) {
	t, _, err := c.topology(ctx)
	return t, c.called("Topology", err)
}

// GatherTopology is Topology with everybody's paths at root; others have their own. A
// collective call.
func (c *Comm) GatherTopology(ctx context.Context, root int) (*Topology, error) {
	t, call, err := c.topology(ctx)
	if err == nil {
		_, err = t.gather(ctx, call, root)
	}
	return t, c.called("GatherTopology", err)
}

// AllgatherTopology is Topology with everybody's paths everywhere. A collective call.
func (c *Comm) AllgatherTopology(ctx context.Context) (*Topology, error) {
	t, call, err := c.topology(ctx)
	if err == nil {
		err = t.allgather(ctx, call)
	}
	return t, c.called("AllgatherTopology", err)
}

// Paths returns how this rank's messages to others of c go now, for those it has a
// link with; of an intercommunicator, to the other group. It is local.
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

func (c *Comm) topology(ctx context.Context) (*Topology, *collectiveCall, error) {
	call, err := c.nextCall(ctx)
	if err != nil {
		return nil, nil, err
	}
	places, err := c.places(ctx, call)
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

// placed colours the ranks by where they run.
func placed(places []overlay.NodeID) []RankPlace {
	ranks := make([]RankPlace, len(places))
	sites, nodes := place.Dense(place.BySite(places)), place.Dense(place.ByNode(places))
	for r, at := range places {
		colours := []int{LevelGrid: 0, LevelSite: sites[r], LevelNode: nodes[r]}
		ranks[r] = RankPlace{Rank: r, Site: string(at.Site), Node: at.Name, Depth: len(colours), Colours: colours}
	}
	return ranks
}

// gather gives root everybody's paths, and returns them encoded.
func (t *Topology) gather(ctx context.Context, call *collectiveCall, root int) ([]byte, error) {
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

func (t *Topology) allgather(ctx context.Context, call *collectiveCall) error {
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
