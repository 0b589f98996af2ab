package dynproc

import (
	"context"
	"fmt"

	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/mpilib/internal/coll"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
	"github.com/isthmus-grid/isthmus/mpilib/internal/settle"
)

// JointJob is the result of the handshake of two roots.
type JointJob struct {
	Key    jobkey.Key // of the joint job
	sealed []byte     // the same, for this job's processes; nil at the root
	Others int        // processes of the other side
}

// jointJobMessage is a root's message to its side, over a channel that may be overheard.
type jointJobMessage struct {
	Others uint32
	Sealed uint32 // bytes in Key
	Key    [jobkey.MaxSealed + 1]byte
	outcome
}

// OpenKey returns the joint job's key, for a process of the job whose key is own.
func (d *JointJob) OpenKey(own jobkey.Key) (jobkey.Key, error) {
	if d.sealed == nil {
		return d.Key, nil
	}
	return own.Open(d.sealed)
}

// Broadcast sends the result of the root's handshake, d or the error, to its side, encrypted with
// the key of their own job. The error is the same on all ranks.
func (d JointJob) Broadcast(ctx context.Context, call settle.Call, root int, own jobkey.Key, failed error) (JointJob, error) {
	message := make([]jointJobMessage, 1)
	if call.Rank() == root {
		message[0].Others, message[0].outcome = uint32(d.Others), outcomeOf(failed)
		if failed == nil && call.Size() > 1 {
			message[0].Sealed = uint32(copy(message[0].Key[:], own.Seal(d.Key)))
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), broadcastTimeout)
		defer cancel()
	}
	err := coll.Bcast(ctx, call, message, root)
	switch {
	case call.Rank() == root:
		return d, mpi.FirstOf(failed, err)
	case err != nil:
		return d, err
	case message[0].Class != 0:
		return d, message[0].err(fmt.Sprintf("rank %d, the root,", root))
	}
	return JointJob{Others: int(message[0].Others), sealed: message[0].Key[:min(int(message[0].Sealed), len(message[0].Key))]}, nil
}

// AllJoined returns nil on all processes of both sides if all of them are in the joint job, and
// otherwise an error: joinErr is this process's own error.
func AllJoined(ctx context.Context, call settle.Call, root int, handshake *Handshake, joinErr error) error {
	blamed := make([]uint64, 1)
	mine := uint64(0)
	if joinErr != nil {
		mine = uint64(call.Rank() + 1)
	}
	err := coll.Allreduce(ctx, call, []uint64{mine}, blamed, coll.Max())
	if err == nil && blamed[0] > 0 {
		err = fmt.Errorf("%w: %s could not join the other job's processes; see its error", mpi.ErrMismatch, settle.RankName(call, int(blamed[0])-1))
	}
	err = mpi.FirstOf(joinErr, err)
	message := make([]outcome, 1)
	if call.Rank() == root {
		err = handshake.conclude(ctx, err)
		message[0] = outcomeOf(err)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), broadcastTimeout)
		defer cancel()
	}
	bcastErr := coll.Bcast(ctx, call, message, root)
	switch {
	case err != nil, call.Rank() == root:
		return mpi.FirstOf(err, bcastErr)
	case bcastErr != nil:
		return bcastErr
	}
	return message[0].err(fmt.Sprintf("rank %d, the root,", root))
}
