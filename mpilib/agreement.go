package mpilib

import (
	"context"
	"fmt"

	"github.com/isthmus-grid/isthmus/mpilib/internal/agree"
	"github.com/isthmus-grid/isthmus/mpilib/internal/calls"
	"github.com/isthmus-grid/isthmus/mpilib/internal/settle"
)

// Agree returns the conjunction of the flags of all processes; the flags of processes that fail
// during the call may or may not be included. The result is the same everywhere, regardless of
// further failures (MPI_Comm_agree of ULFM). If a process has failed and not every process had
// acknowledged that (AckFailed), all get an ErrProcFailed in addition to the flags. It works on a
// revoked communicator. All live processes call it, also those of both groups of an
// intercommunicator, and in the same order as Shrink; other calls may be made in the meantime.
//
// If ctx is done the call returns, but its contribution counts, and the number of the call is used
// up.
//
// Where ranks have replicas these go on for each other, and a program sees no loss: Agree is a reduction then, and Shrink a copy, in the order
// of the other collective calls. They fail once all replicas of a rank are lost, which ends the job.
func (c *Comm) Agree(ctx context.Context, flags uint64) (uint64, error) {
	wait, err := c.startAgree(flags)
	if err != nil {
		return 0, c.called("Agree", err)
	}
	flags, err = wait(ctx)
	return flags, c.called("Agree", err)
}

// Iagree starts an Agree (MPI_Comm_iagree of ULFM). ctx bounds the Agree itself.
func (c *Comm) Iagree(ctx context.Context, flags uint64) *Pending[uint64] {
	wait, err := c.startAgree(flags)
	return inBackground(ctx, c, "Iagree", func(ctx context.Context) (uint64, error) {
		if err != nil {
			return 0, err
		}
		return wait(ctx)
	})
}

func (c *Comm) startAgree(flags uint64) (func(context.Context) (uint64, error), error) {
	if c.world.replicated() {
		return startReduction(c, flags), nil
	}
	wait, err := c.startAgreement(agree.Value{Flags: flags})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (uint64, error) {
		v, err := wait(ctx)
		if err == nil && !v.Unacknowledged().Empty() {
			err = fmt.Errorf("%w: ranks %v, which not every process has acknowledged", ErrProcFailed, v.Unacknowledged())
		}
		return v.Flags, err
	}, nil
}

// startReduction is startAgree of ranks with replicas.
func startReduction(c *Comm, flags uint64) func(context.Context) (uint64, error) {
	all := [2][]uint64{{0}, {^uint64(0)}}
	requests := []*Request{Iallreduce(c, []uint64{flags}, all[0], BAnd[uint64])}
	if c.inner != nil { // that was of the flags of the other group
		requests = append(requests, Iallreduce(c.inner, []uint64{flags}, all[1], BAnd[uint64]))
	}
	return func(ctx context.Context) (uint64, error) {
		_, err := Waitall(ctx, requests...)
		return all[0][0] & all[1][0], err
	}
}

// Shrink returns a communicator of the processes of c that are not known to have failed, in their
// order: all get the same, and it contains no process whose failure any of them knew of
// (MPI_Comm_shrink of ULFM). For an intercommunicator it returns an intercommunicator of the
// remaining processes of both groups; nil if a group has none left. It works on a revoked
// communicator. All live processes call it, in the same order as Agree.
func (c *Comm) Shrink(ctx context.Context) (*Comm, error) {
	wait, err := c.startShrink()
	if err != nil {
		return nil, c.called("Shrink", err)
	}
	made, err := wait(ctx)
	return made, c.called("Shrink", err)
}

// Ishrink starts a Shrink (MPI_Comm_ishrink of ULFM). ctx bounds the Shrink itself.
func (c *Comm) Ishrink(ctx context.Context) *Pending[*Comm] {
	wait, err := c.startShrink()
	return inBackground(ctx, c, "Ishrink", func(ctx context.Context) (*Comm, error) {
		if err != nil {
			return nil, err
		}
		return wait(ctx)
	})
}

// startAgreement contributes v to the next agreement of c, and returns a handle that waits for its
// decision.
func (c *Comm) startAgreement(v agree.Value) (func(context.Context) (agree.Value, error), error) {
	if err := c.core.Usable(); err != nil {
		return nil, err
	}
	return c.world.comms.agreements.Start(c.core.Context, c.core.AllMembers, c.core.Acknowledged, v)
}

// startShrink agrees on the failed processes and on the greatest of the proposed contexts; each
// process proposes a context that no other process has or will have. An intercommunicator needs
// two.
func (c *Comm) startShrink() (func(context.Context) (*Comm, error), error) {
	if c.world.replicated() {
		round, err := c.core.Begin()
		if err != nil {
			return nil, err
		}
		round.Reserve()
		return func(ctx context.Context) (*Comm, error) {
			n, err := round.Dup(ctx, settle.Terms{Kind: settle.Dup})
			if err != nil {
				return nil, err
			}
			n.Name, n.Layout = c.core.NameOf("shrink", n.IDs.Comm), nil
			return c.create(n), nil
		}, nil
	}
	var waits []func(context.Context) (agree.Value, error)
	for range c.sides() {
		id, err := c.world.calls.Contexts.New()
		if err != nil {
			return nil, err
		}
		wait, err := c.startAgreement(agree.Value{Flags: ^uint64(0), Max: uint64(id)})
		if err != nil {
			return nil, err
		}
		waits = append(waits, wait)
	}
	return func(ctx context.Context) (*Comm, error) {
		var contexts [2]uint32
		var failed agree.Set
		for i, wait := range waits {
			v, err := wait(ctx)
			if err != nil {
				return nil, err
			}
			contexts[i] = uint32(v.Max)
			failed = v.Failed // the later includes the earlier
		}
		n, err := c.core.Without(failed, calls.IDs{Comm: contexts[0], Inner: contexts[1]})
		return c.create(n), err
	}, nil
}

func (c *Comm) sides() int {
	if c.core.IsInter() {
		return 2
	}
	return 1
}
