package mpilib

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/isthmus-grid/isthmus/collectives"
)

// Collective calls of intercommunicators (MPI-4.1, section 6.2.3), on bytes: each
// group does its part among itself, rank 0 of it, the leader, talks to the other
// group, and tells its own. So data cross between the groups once. Where ranks have
// different amounts they go to and from the root directly, for the leader does not
// know them.

// Root is what the root of a collective call of an intercommunicator gives as root
// (MPI_ROOT).
const Root = -3

func (r *round) inter() bool { return r.comm.isInter() }

// direct leads to the ranks that those of messages name: this group's, or the other
// group's of an intercommunicator.
func (r *round) direct() *collectiveCall {
	if r.inter() {
		return r.line()
	}
	return r.call
}

func (r *round) leading() bool { return r.comm.rank == 0 }

// part is what a rank of an intercommunicator does in a call with a root.
type rootPart int

const (
	isRoot  rootPart = iota
	watches          // it is of the root's group
	across           // the root is in the other group
)

func (r *round) rootPart(root int) (rootPart, error) {
	n := r.comm.peers.Size()
	switch {
	case root == Root:
		return isRoot, nil
	case root == ProcNull:
		return watches, nil
	case root >= 0 && root < n:
		return across, nil
	}
	return 0, fmt.Errorf("%w: root %d; it gives Root, the others of its group ProcNull, and the other group its rank, 0 to %d", ErrRank, root, n-1)
}

// interBarrier: when the leaders have met, all of both groups are there.
func (r *round) interBarrier(ctx context.Context) error {
	err := collectives.Barrier(ctx, r.call)
	if err == nil && r.leading() {
		err = swap(ctx, r.line(), 0, []byte{}, []byte{})
	}
	if err != nil {
		return err
	}
	return collectives.Barrier(ctx, r.call)
}

func (r *round) interBcast(ctx context.Context, b []byte, root int) error {
	part, err := r.rootPart(root)
	switch {
	case err != nil || part == watches:
		return err
	case part == isRoot:
		return r.line().Send(ctx, 0, b)
	case r.leading():
		err = r.line().Recv(ctx, root, b)
	}
	if err != nil {
		return err
	}
	return collectives.Bcast(ctx, r.call, b, 0)
}

func (r *round) interReduce(ctx context.Context, s, to []byte, op collectives.Op, root int) error {
	part, err := r.rootPart(root)
	switch {
	case err != nil || part == watches:
		return err
	case part == isRoot:
		return r.line().Recv(ctx, 0, to)
	}
	sum, err := r.toLeader(ctx, s, op)
	if err != nil || !r.leading() {
		return err
	}
	return r.line().Send(ctx, root, sum)
}

// toLeader returns, at the leader, the reduction of this group.
func (r *round) toLeader(ctx context.Context, s []byte, op collectives.Op) ([]byte, error) {
	var sum []byte
	if r.leading() {
		sum = make([]byte, len(s))
	}
	return sum, collectives.Reduce(ctx, r.call, s, sum, op, 0)
}

func (r *round) interAllreduce(ctx context.Context, s, to []byte, op collectives.Op) error {
	if err := wantBytes("recv", len(to), len(s)); err != nil {
		return err
	}
	sum, err := r.toLeader(ctx, s, op)
	if err != nil {
		return err
	}
	return r.swapAndTell(ctx, sum, to)
}

// swapAndTell gives the other group the leader's out, and all of this group what
// the other one gives.
func (r *round) swapAndTell(ctx context.Context, out, in []byte) error {
	if r.leading() {
		if err := swap(ctx, r.line(), 0, out, in); err != nil {
			return err
		}
	}
	return collectives.Bcast(ctx, r.call, in, 0)
}

func (r *round) interReduceScatter(ctx context.Context, s, to []byte, counts, displs []int, op collectives.Op) error {
	sum, err := r.toLeader(ctx, s, op)
	if err != nil {
		return err
	}
	theirs := make([]byte, len(sum))
	if r.leading() {
		if err := swap(ctx, r.line(), 0, sum, theirs); err != nil {
			return err
		}
	}
	return collectives.Scatterv(ctx, r.call, theirs, counts, displs, to, 0)
}

func (r *round) interGather(ctx context.Context, s, to []byte, root int) error {
	part, err := r.rootPart(root)
	switch {
	case err != nil || part == watches:
		return err
	case part == isRoot:
		return r.line().Recv(ctx, 0, to)
	}
	all, err := r.collect(ctx, s)
	if err != nil || !r.leading() {
		return err
	}
	return r.line().Send(ctx, root, all)
}

// collect returns, at the leader, what this group's ranks have; all have equally
// much.
func (r *round) collect(ctx context.Context, s []byte) ([]byte, error) {
	var all []byte
	if r.leading() {
		all = make([]byte, r.comm.Size()*len(s))
	}
	return all, collectives.Gather(ctx, r.call, s, all, 0)
}

func (r *round) interGatherv(ctx context.Context, s, to []byte, counts, displs []int, root int) error {
	part, err := r.rootPart(root)
	switch {
	case err != nil || part == watches:
		return err
	case part == across:
		return r.line().Send(ctx, root, s)
	}
	blocks, err := cut("recv", to, counts, displs, r.comm.peers.Size())
	if err != nil {
		return err
	}
	return r.line().exchange(ctx, nil, moves(partsOf(blocks)))
}

func (r *round) interAllgather(ctx context.Context, s, to []byte) error {
	all, err := r.collect(ctx, s)
	if err != nil {
		return err
	}
	return r.swapAndTell(ctx, all, to)
}

// interAllgatherv fills all with what the ranks of the other group have. The
// leader asks how much its own have: counts are those of the others.
func (r *round) interAllgatherv(ctx context.Context, s, all []byte) error {
	size := binary.LittleEndian.AppendUint64(nil, uint64(len(s)))
	sizes, err := r.collect(ctx, size)
	if err != nil {
		return err
	}
	var ours []byte
	var counts, displs []int
	if r.leading() {
		for ; len(sizes) > 0; sizes = sizes[len(size):] {
			counts = append(counts, int(binary.LittleEndian.Uint64(sizes)))
		}
		total := 0
		if displs, total, err = rowOf(counts, len(counts)); err != nil {
			return err
		}
		ours = make([]byte, total)
	}
	if err := collectives.Gatherv(ctx, r.call, s, ours, counts, displs, 0); err != nil {
		return err
	}
	return r.swapAndTell(ctx, ours, all)
}

func (r *round) interScatter(ctx context.Context, s, to []byte, root int) error {
	part, err := r.rootPart(root)
	switch {
	case err != nil || part == watches:
		return err
	case part == isRoot:
		return r.line().Send(ctx, 0, s)
	}
	var all []byte
	if r.leading() {
		all = make([]byte, r.comm.Size()*len(to))
		if err := r.line().Recv(ctx, root, all); err != nil {
			return err
		}
	}
	return collectives.Scatter(ctx, r.call, all, to, 0)
}

func (r *round) interScatterv(ctx context.Context, s []byte, counts, displs []int, to []byte, root int) error {
	part, err := r.rootPart(root)
	switch {
	case err != nil || part == watches:
		return err
	case part == across:
		return r.line().Recv(ctx, root, to)
	}
	blocks, err := cut("send", s, counts, displs, r.comm.peers.Size())
	if err != nil {
		return err
	}
	return r.line().exchange(ctx, moves(partsOf(blocks)), nil)
}
