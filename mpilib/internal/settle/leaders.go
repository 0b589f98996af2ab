package settle

import (
	"context"
	"fmt"

	"github.com/isthmus-grid/isthmus/mpilib/internal/coll"
	"github.com/isthmus-grid/isthmus/mpilib/internal/group"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
)

// LeaderExchange is between the leaders of two groups.
type LeaderExchange struct {
	Line coll.Call
	To   int          // rank of the other leader on Line
	Us   *group.Group // this side's group
	Self int          // world rank of this leader

	NewContext func() (uint32, error)
}

// leaderMessage is a leader's message to the other leader.
type leaderMessage struct {
	Kind   Kind
	Failed uint32 // this side cannot continue
	Comm   uint32 // a new context
	Word   uint32
	Size   uint32 // of the group
	Leader uint32 // world rank; the smaller one's context is used
	_      uint32
}

// Side is a leader's message to its own side.
type Side struct {
	sideMessage
	Err   error   // the leader's
	Ranks []int32 // world ranks of the other side
}

type sideMessage struct {
	Failed, Comm, Word, Size uint32
}

// Run sends the kind of call and whether this side failed to the other leader, and receives
// the same. It always does, so that the other side does not wait.
func (k *LeaderExchange) Run(ctx context.Context, kind Kind, word uint32, failed error) Side {
	id, err := k.NewContext()
	mine := []leaderMessage{{Kind: kind, Comm: id, Word: word, Size: uint32(k.Us.Size()), Leader: uint32(k.Self)}}
	if failed != nil || err != nil {
		mine[0].Failed = 1
	}
	theirs := make([]leaderMessage, 1)
	if swapErr := coll.Swap(ctx, k.Line, k.To, mine, theirs); swapErr != nil {
		return Side{Err: swapErr}
	}
	other := theirs[0]
	switch {
	case err != nil:
		return Side{Err: err}
	case other.Kind != kind:
		return Side{Err: fmt.Errorf("%w: the other group calls %v and this one %v; both must call the same", mpi.ErrMismatch, other.Kind, kind)}
	case other.Failed != 0:
		return Side{Err: fmt.Errorf("%w: the other group gave bad arguments; see its errors", mpi.ErrMismatch)}
	}
	s := Side{sideMessage: sideMessage{Comm: other.Comm, Word: other.Word, Size: other.Size}}
	if mine[0].Leader < other.Leader {
		s.Comm = id
	}
	return s
}

// SwapGroups swaps the members of both groups.
func (k *LeaderExchange) SwapGroups(ctx context.Context, mine *group.Group, theirs int) ([]int32, error) {
	out, in := make([]int32, 0, mine.Size()), make([]int32, theirs)
	for world := range mine.WorldRanks() {
		out = append(out, int32(world))
	}
	return in, coll.Swap(ctx, k.Line, k.To, out, in)
}

// Broadcast sends the result of the leader's exchange to its side.
func (s *Side) Broadcast(ctx context.Context, call Call, leader int) error {
	leading := call.Rank() == leader
	if leading && s.Err != nil {
		s.Failed = 1
	}
	message := []sideMessage{s.sideMessage}
	err := coll.Bcast(ctx, call, message, leader)
	s.sideMessage = message[0]
	switch {
	case leading && s.Err != nil:
		return s.Err
	case err != nil:
		return err
	case s.Failed != 0:
		return fmt.Errorf("%w: rank %d, the leader of this group, failed; see its error", mpi.ErrMismatch, leader)
	}
	return nil
}

// BroadcastRanks sends the other side's ranks to the leader's side.
func (s *Side) BroadcastRanks(ctx context.Context, call Call, leader int) (*group.Group, error) {
	if call.Rank() != leader {
		s.Ranks = make([]int32, s.Size)
	}
	if err := coll.Bcast(ctx, call, s.Ranks, leader); err != nil {
		return nil, err
	}
	ranks := make([]int, len(s.Ranks))
	for i, r := range s.Ranks {
		ranks[i] = int(r)
	}
	return group.Of(ranks)
}
