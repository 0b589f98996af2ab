package mpilib

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/isthmus-grid/isthmus/mpilib/internal/group"
	"github.com/isthmus-grid/isthmus/mpilib/internal/place"
	"github.com/isthmus-grid/isthmus/mpilib/internal/settle"
	"github.com/isthmus-grid/isthmus/overlay"
)

// The process sets that every process knows (MPI-4.1, section 11.3.2).
const (
	PsetWorld = "mpi://WORLD"
	PsetSelf  = "mpi://SELF"
	PsetSite  = "isthmus://SITE" // the processes on the caller's site
	PsetNode  = "isthmus://NODE" // the processes on the caller's node
)

// Session is a program's or library's own access to message passing, independent of others in the
// process: it gets the group of a process set and creates a communicator from it (MPI-4.1, section
// 11.3). Safe for concurrent use.
type Session struct {
	world *World
	owns  bool // the world ends with the session

	joint bool // it stands for the result of Accept and Connect: the world ends with its last communicator

	live  atomic.Int64 // communicators that are not freed
	ended atomic.Bool
}

// NewSession joins the world as Init does and returns a session that leaves it
// (MPI_Session_init; MPI-4.1, section 11.3.1). It waits for no other process.
func NewSession(ctx context.Context, opts ...Option) (*Session, error) {
	w, err := Init(ctx, opts...)
	if err != nil {
		return nil, err
	}
	return &Session{world: w, owns: true}, nil
}

// NewSession returns a session of a process that has already joined the world. There may be any
// number of them.
func (w *World) NewSession() *Session { return &Session{world: w} }

// Psets returns the names of the process sets that contain the caller (MPI_Session_get_num_psets,
// _get_nth_pset; MPI-4.1, section 11.3.3). The caller owns the slice.
func (s *Session) Psets() []string {
	sets := []string{PsetWorld, PsetSelf, PsetSite, PsetNode}
	if name := s.world.jobGroup(s.world.comm.core.Rank); name != "" {
		sets = append(sets, PsetGroup+name)
	}
	return sets
}

// Group returns the processes of a set (MPI_Group_from_session_pset; MPI-4.1, section 7.3.2); a set
// of PsetGroup need not contain the caller. It is local, except for a process's first call for
// PsetSite or PsetNode: that waits, until ctx is done, for all processes of the world to request
// one of them, since only they know their locations.
func (s *Session) Group(ctx context.Context, pset string) (*Group, error) {
	g, err := s.group(ctx, pset)
	if err != nil {
		return nil, fmt.Errorf("mpilib: Group of process set %s, rank %d of the world: %w", pset, s.world.comm.core.Rank, err)
	}
	return s.world.comm.groupOf(g), nil
}

func (s *Session) group(ctx context.Context, pset string) (*group.Group, error) {
	switch {
	case s.ended.Load():
		return nil, errSessionEnded
	case pset == PsetWorld:
		return s.world.comm.core.Group, nil
	case pset == PsetSelf:
		return s.world.comms.self.core.Group, nil
	}
	if name, ok := strings.CutPrefix(pset, PsetGroup); ok {
		return s.world.groupMembers(name)
	}
	if pset != PsetSite && pset != PsetNode {
		return nil, fmt.Errorf("%w: there is no such set; Psets lists them", ErrArg)
	}
	places, err := s.world.comms.allPlaces.of(ctx)
	if err != nil {
		return nil, err
	}
	sharing := place.BySite(places)
	if pset == PsetNode {
		sharing = place.ByNode(places)
	}
	mine := sharing[s.world.comm.core.Rank]
	for _, part := range group.By(s.world.comm.core.Group, func(world int) int { return sharing[world] }) {
		if part.Label == mine {
			return part.Group, nil
		}
	}
	return group.Empty, nil // not reached: every process shares with itself
}

var errSessionEnded = fmt.Errorf("%w: the session has been finalized", ErrFinalized)

// CommFromGroup returns a communicator of the members of g, all of which call it with the same tag;
// other callers get nil (MPI_Comm_create_from_group; MPI-4.1, section 7.4.2). Calls with different
// tags may be concurrent. info gives hints, and may be nil. If the callers' groups do not have the
// same members, some may wait until ctx is done.
func (s *Session) CommFromGroup(ctx context.Context, g *Group, tag string, info *Info) (*Comm, error) {
	made, err := s.commFromGroup(ctx, g, tag, info)
	if err != nil {
		return nil, fmt.Errorf("mpilib: CommFromGroup, tag %q, rank %d of the world: %w", tag, s.world.comm.core.Rank, err)
	}
	return made, nil
}

func (s *Session) commFromGroup(ctx context.Context, g *Group, tag string, info *Info) (*Comm, error) {
	if s.ended.Load() {
		return nil, errSessionEnded
	}
	if err := s.world.comm.core.Within(g.inner()); err != nil || g.Rank() == Undefined {
		return nil, err
	}
	hints, list, err := hintsOf(info)
	t := settle.Terms{Kind: settle.CommFromGroup, Fault: err,
		Args: [settle.MaxArgs]settle.Arg{settle.List("the tag", tag), settle.Group("the group", g.g), settle.List("hint "+HintColl, list)}}
	n, err := s.world.calls.FromGroup(ctx, t, g.g, tag)
	if err != nil {
		return nil, err
	}
	n.Hints, n.Forced = hints, list
	return s.world.newComm(n, nil, s), nil
}

// joinSession records that c was created from s, directly or not.
func (c *Comm) joinSession(s *Session) {
	if s != nil {
		c.session = s
		s.live.Add(1)
	}
}

// Finalize ends the session, once every communicator created from it, directly or not, is freed
// (MPI_Session_finalize; MPI-4.1, section 11.3.1); until then it fails and can be retried. The
// session of NewSession leaves the world then, as World.Finalize does.
func (s *Session) Finalize(ctx context.Context) error {
	if n := s.live.Load(); n > 0 {
		return fmt.Errorf("mpilib: Finalize of a session, rank %d of the world: %w: %d communicators made from it are in use; Free them first", s.world.comm.core.Rank, ErrArg, n)
	}
	s.ended.Store(true)
	if s.owns {
		return s.world.Finalize(ctx)
	}
	return nil
}

// placeMap has the locations of all processes of the world, once they were requested.
type placeMap struct {
	comm *Comm // for internal use

	mu     sync.Mutex // held during the exchange
	places []overlay.NodeID
}

func (m *placeMap) of(ctx context.Context) ([]overlay.NodeID, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.places != nil {
		return m.places, nil
	}
	call, err := m.comm.core.Next(ctx)
	if err != nil {
		return nil, err
	}
	places, err := call.Places(ctx)
	if err != nil {
		return nil, fmt.Errorf("asking all processes where they run: %w", err)
	}
	m.places = places
	return places, nil
}
