package coll

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
)

// Collective calls of intercommunicators (MPI-4.1, section 6.2.3), on bytes: each group does its
// part internally; its rank 0, the leader, exchanges data with the other group's leader and passes
// the data on to its own group. So data cross between the groups once. If ranks have different
// amounts, these go directly to and from the root, because the leader does not know the amounts.

// direct connects to the ranks that messages name: this group's, or the other group's of an
// intercommunicator.
func (r *Round) direct() Call {
	if r.Inter {
		return r.Line()
	}
	return r.Call.(Call)
}

func (r *Round) leading() bool { return r.Rank == 0 }

// rootPart is the role of a rank of an intercommunicator in a call with a root.
type rootPart int

const (
	isRoot  rootPart = iota
	watches          // it is of the root's group
	across           // the root is in the other group
)

func (r *Round) rootPart(root int) (rootPart, error) {
	n := r.Peers
	switch {
	case root == mpi.Root:
		return isRoot, nil
	case root == mpi.ProcNull:
		return watches, nil
	case root >= 0 && root < n:
		return across, nil
	}
	return 0, fmt.Errorf("%w: root %d; it gives Root, the others of its group ProcNull, and the other group its rank, 0 to %d", mpi.ErrRank, root, n-1)
}

// interBarrier: once the leaders have exchanged messages, all ranks of both groups have entered.
func (r *Round) interBarrier(ctx context.Context) error {
	err := collectives.Barrier(ctx, r.Call)
	if err == nil && r.leading() {
		err = Swap(ctx, r.Line(), 0, []byte{}, []byte{})
	}
	if err != nil {
		return err
	}
	return collectives.Barrier(ctx, r.Call)
}

func (r *Round) interBcast(ctx context.Context, b []byte, root int) error {
	part, err := r.rootPart(root)
	switch {
	case err != nil || part == watches:
		return err
	case part == isRoot:
		return send(ctx, r.Line(), 0, b)
	case r.leading():
		err = receive(ctx, r.Line(), root, b)
	}
	if err != nil {
		return err
	}
	return collectives.Bcast(ctx, r.Call, b, 0)
}

func (r *Round) interReduce(ctx context.Context, s, to []byte, op collectives.Op, root int) error {
	part, err := r.rootPart(root)
	switch {
	case err != nil || part == watches:
		return err
	case part == isRoot:
		return receive(ctx, r.Line(), 0, to)
	}
	sum, err := r.toLeader(ctx, s, op)
	if err != nil || !r.leading() {
		return err
	}
	return send(ctx, r.Line(), root, sum)
}

// toLeader returns, at the leader, the reduction of this group.
func (r *Round) toLeader(ctx context.Context, s []byte, op collectives.Op) ([]byte, error) {
	var sum []byte
	if r.leading() {
		sum = make([]byte, len(s))
	}
	return sum, collectives.Reduce(ctx, r.Call, s, sum, op, 0)
}

func (r *Round) interAllreduce(ctx context.Context, s, to []byte, op collectives.Op) error {
	if err := wantBytes("recv", len(to), len(s)); err != nil {
		return err
	}
	sum, err := r.toLeader(ctx, s, op)
	if err != nil {
		return err
	}
	return r.swapAndBroadcast(ctx, sum, to)
}

// swapAndBroadcast sends the leader's out to the other group, and the other group's data to all of this
// group.
func (r *Round) swapAndBroadcast(ctx context.Context, out, in []byte) error {
	if r.leading() {
		if err := Swap(ctx, r.Line(), 0, out, in); err != nil {
			return err
		}
	}
	return collectives.Bcast(ctx, r.Call, in, 0)
}

func (r *Round) interReduceScatter(ctx context.Context, s, to []byte, counts, displs []int, op collectives.Op) error {
	sum, err := r.toLeader(ctx, s, op)
	if err != nil {
		return err
	}
	theirs := make([]byte, len(sum))
	if r.leading() {
		if err := Swap(ctx, r.Line(), 0, sum, theirs); err != nil {
			return err
		}
	}
	return collectives.Scatterv(ctx, r.Call, theirs, counts, displs, to, 0)
}

func (r *Round) interGather(ctx context.Context, s, to []byte, root int) error {
	part, err := r.rootPart(root)
	switch {
	case err != nil || part == watches:
		return err
	case part == isRoot:
		return receive(ctx, r.Line(), 0, to)
	}
	all, err := r.collect(ctx, s)
	if err != nil || !r.leading() {
		return err
	}
	return send(ctx, r.Line(), root, all)
}

// collect returns, at the leader, the data of this group's ranks; all have equally much.
func (r *Round) collect(ctx context.Context, s []byte) ([]byte, error) {
	var all []byte
	if r.leading() {
		all = make([]byte, r.Size*len(s))
	}
	return all, collectives.Gather(ctx, r.Call, s, all, 0)
}

func (r *Round) interGatherv(ctx context.Context, s, to []byte, counts, displs []int, root int) error {
	part, err := r.rootPart(root)
	switch {
	case err != nil || part == watches:
		return err
	case part == across:
		return send(ctx, r.Line(), root, s)
	}
	blocks, err := cut("recv", to, counts, displs, r.Peers)
	if err != nil {
		return err
	}
	return exchange(ctx, r.Line(), nil, moves(partsOf(blocks)))
}

func (r *Round) interAllgather(ctx context.Context, s, to []byte) error {
	all, err := r.collect(ctx, s)
	if err != nil {
		return err
	}
	return r.swapAndBroadcast(ctx, all, to)
}

// interAllgatherv fills all with the data of the other group's ranks. The leader asks its own ranks
// for their sizes: counts are those of the others.
func (r *Round) interAllgatherv(ctx context.Context, s, all []byte) error {
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
	if err := collectives.Gatherv(ctx, r.Call, s, ours, counts, displs, 0); err != nil {
		return err
	}
	return r.swapAndBroadcast(ctx, ours, all)
}

func (r *Round) interScatter(ctx context.Context, s, to []byte, root int) error {
	part, err := r.rootPart(root)
	switch {
	case err != nil || part == watches:
		return err
	case part == isRoot:
		return send(ctx, r.Line(), 0, s)
	}
	var all []byte
	if r.leading() {
		all = make([]byte, r.Size*len(to))
		if err := receive(ctx, r.Line(), root, all); err != nil {
			return err
		}
	}
	return collectives.Scatter(ctx, r.Call, all, to, 0)
}

func (r *Round) interScatterv(ctx context.Context, s []byte, counts, displs []int, to []byte, root int) error {
	part, err := r.rootPart(root)
	switch {
	case err != nil || part == watches:
		return err
	case part == across:
		return receive(ctx, r.Line(), root, to)
	}
	blocks, err := cut("send", s, counts, displs, r.Peers)
	if err != nil {
		return err
	}
	return exchange(ctx, r.Line(), moves(partsOf(blocks)), nil)
}
