package dynproc

import (
	"context"
	"fmt"

	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/mpilib/internal/coll"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
	"github.com/isthmus-grid/isthmus/mpilib/internal/settle"
)

// Deal is the result of the talk of two roots.
type Deal struct {
	Key    jobkey.Key // of the joint job
	sealed []byte     // the same, for this job's processes; nil at the root
	Others int        // processes of the other side
}

// dealNews is a root's message to its side, over a channel that may be overheard.
type dealNews struct {
	Others uint32
	Sealed uint32 // bytes in Key
	Key    [jobkey.MaxSealed + 1]byte
	outcome
}

// Open returns the joint job's key, for a process of the job whose key is own.
func (d *Deal) Open(own jobkey.Key) (jobkey.Key, error) {
	if d.sealed == nil {
		return d.Key, nil
	}
	return own.Open(d.sealed)
}

// Tell sends the result of the root's talk, d or the error, to its side, encrypted with the key of
// their own job. The error is the same on all ranks.
func (d Deal) Tell(ctx context.Context, call settle.Call, root int, own jobkey.Key, failed error) (Deal, error) {
	told := make([]dealNews, 1)
	if call.Rank() == root {
		told[0].Others, told[0].outcome = uint32(d.Others), outcomeOf(failed)
		if failed == nil && call.Size() > 1 {
			told[0].Sealed = uint32(copy(told[0].Key[:], own.Seal(d.Key)))
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), tellTimeout)
		defer cancel()
	}
	err := coll.Bcast(ctx, call, told, root)
	switch {
	case call.Rank() == root:
		return d, mpi.FirstOf(failed, err)
	case err != nil:
		return d, err
	case told[0].Class != 0:
		return d, told[0].err(fmt.Sprintf("rank %d, which talks to the other job,", root))
	}
	return Deal{Others: int(told[0].Others), sealed: told[0].Key[:min(int(told[0].Sealed), len(told[0].Key))]}, nil
}

// AllJoined returns nil on all processes of both sides if all of them are in the joint job, and
// otherwise an error: joinErr is this process's own error.
func AllJoined(ctx context.Context, call settle.Call, root int, talk *Handshake, joinErr error) error {
	blamed := make([]uint64, 1)
	mine := uint64(0)
	if joinErr != nil {
		mine = uint64(call.Rank() + 1)
	}
	err := coll.Allreduce(ctx, call, []uint64{mine}, blamed, coll.Max())
	if err == nil && blamed[0] > 0 {
		err = fmt.Errorf("%w: %s could not join the other job's processes; see its error", mpi.ErrMismatch, settle.Who(call, int(blamed[0])-1))
	}
	err = mpi.FirstOf(joinErr, err)
	told := make([]outcome, 1)
	if call.Rank() == root {
		err = talk.conclude(ctx, err)
		told[0] = outcomeOf(err)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), tellTimeout)
		defer cancel()
	}
	tellErr := coll.Bcast(ctx, call, told, root)
	switch {
	case err != nil, call.Rank() == root:
		return mpi.FirstOf(err, tellErr)
	case tellErr != nil:
		return tellErr
	}
	return told[0].err(fmt.Sprintf("rank %d, which talks to the other job,", root))
}
