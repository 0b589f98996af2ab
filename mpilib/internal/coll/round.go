// Package coll carries out the collective calls of intra- and intercommunicators: on bytes, on
// Parts, and between the neighbors of a topology. Package collectives implements what is within one
// group; what crosses between the groups of an intercommunicator is implemented here.
//
// It checks the arguments of a call, but does not compare them with those of other ranks. It knows
// neither communicators nor the transport of messages: the caller passes a Call. It has no state of
// its own.
package coll

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/mpilib/internal/buffer"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
)

// Call carries out a collective call of one group, or connects to the other: package collectives'
// Comm, which can also receive into a Part.
type Call interface {
	collectives.Comm
	IrecvPart(src int, p *buffer.Part) collectives.Request
	Global(rank int) int // world rank of a rank that its messages name
}

// Round is one collective call, also of an intercommunicator: then Call is for this side's group.
// The caller owns it, and none of its methods retains it.
type Round struct {
	Call  collectives.Comm // a Call; has the type of package collectives, to which it is passed on
	Rank  int              // in this side's group
	Size  int              // of this side's group
	Peers int              // number of ranks that messages can name: Size, or the size of the other side's group
	Inter bool
	Comm  interface{ Name() string } // for errors
	Line  func() Call                // connects to the other side; nil except for intercommunicators
}

// Intra is the error of a call that does not support intercommunicators.
func Intra() error {
	return fmt.Errorf("%w: call Merge for one communicator of both groups, or use Local for this group's", mpi.ErrIntercomm)
}

// The collective calls on bytes, of intra- and intercommunicators: those of package collectives or,
// for intercommunicators, those of inter.go.

// Barrier implements Barrier.
func (r *Round) Barrier(ctx context.Context) error {
	if r.Inter {
		return r.interBarrier(ctx)
	}
	return collectives.Barrier(ctx, r.Call)
}

// Bcast implements Bcast of b.
func (r *Round) Bcast(ctx context.Context, b []byte, root int) error {
	if err := r.atRoot(root, nil, nil, false); err != nil {
		return err
	}
	if r.Inter {
		return r.interBcast(ctx, b, root)
	}
	return collectives.Bcast(ctx, r.Call, b, root)
}

// Reduce implements Reduce of s into to.
func (r *Round) Reduce(ctx context.Context, s, to []byte, op collectives.Op, root int) error {
	if err := r.atRoot(root, s, to, buffer.Same(s, to)); err != nil {
		return err
	}
	if r.Inter {
		return r.interReduce(ctx, s, to, op, root)
	}
	return collectives.Reduce(ctx, r.Call, s, to, op, root)
}

// Allreduce implements Allreduce.
func (r *Round) Allreduce(ctx context.Context, s, to []byte, op collectives.Op) error {
	if err := r.overlap(s, to, buffer.Same(s, to)); err != nil {
		return err
	}
	if r.Inter {
		return r.interAllreduce(ctx, s, to, op)
	}
	return collectives.Allreduce(ctx, r.Call, s, to, op)
}

// ReduceScatter implements Reduce_scatter; counts are in bytes.
func (r *Round) ReduceScatter(ctx context.Context, s, to []byte, counts []int, op collectives.Op) error {
	blocks, total, err := rowOf(counts, r.Size)
	if err == nil {
		err = wantBytes("send", len(s), total)
	}
	if err == nil {
		err = wantBytes("recv", len(to), counts[r.Rank])
	}
	if err == nil {
		err = r.overlap(s, to, buffer.Inside(to, s))
	}
	if err != nil {
		return err
	}
	if r.Inter {
		return r.interReduceScatter(ctx, s, to, counts, blocks, op)
	}
	return collectives.ReduceScatter(ctx, r.Call, s, to, counts, op)
}

// ReduceScatterBlock implements Reduce_scatter_block.
func (r *Round) ReduceScatterBlock(ctx context.Context, s, to []byte, op collectives.Op) error {
	if r.Inter {
		return r.ReduceScatter(ctx, s, to, slices.Repeat([]int{len(to)}, r.Size), op)
	}
	err := wantBytes("send", len(s), r.Size*len(to))
	if err == nil {
		err = r.overlap(s, to, buffer.Inside(to, s))
	}
	if err != nil {
		return err
	}
	return collectives.ReduceScatterBlock(ctx, r.Call, s, to, op)
}

// Scan implements Scan and Exscan.
func (r *Round) Scan(ctx context.Context, s, to []byte, op collectives.Op, scan func(context.Context, collectives.Comm, []byte, []byte, collectives.Op) error) error {
	if r.Inter {
		return Intra()
	}
	if err := r.overlap(s, to, buffer.Same(s, to)); err != nil {
		return err
	}
	return scan(ctx, r.Call, s, to, op)
}

// Gather implements Gather.
func (r *Round) Gather(ctx context.Context, s, to []byte, root int) error {
	if err := r.atRoot(root, s, to, buffer.SameBlock(s, to, root*len(s))); err != nil {
		return err
	}
	if r.Inter {
		return r.interGather(ctx, s, to, root)
	}
	return collectives.Gather(ctx, r.Call, s, to, root)
}

// Gatherv implements Gatherv; counts and displacements are in bytes.
func (r *Round) Gatherv(ctx context.Context, s, to []byte, counts, displs []int, root int) error {
	if err := r.atRoot(root, s, to, r.ownBlock(s, to, displs)); err != nil {
		return err
	}
	if r.Inter {
		return r.interGatherv(ctx, s, to, counts, displs, root)
	}
	return collectives.Gatherv(ctx, r.Call, s, to, counts, displs, root)
}

// Allgather implements Allgather.
func (r *Round) Allgather(ctx context.Context, s, to []byte) error {
	if err := r.overlap(s, to, buffer.SameBlock(s, to, r.Rank*len(s))); err != nil {
		return err
	}
	if r.Inter {
		return r.interAllgather(ctx, s, to)
	}
	return collectives.Allgather(ctx, r.Call, s, to)
}

// Allgatherv implements Allgatherv; counts and displacements are in bytes.
func (r *Round) Allgatherv(ctx context.Context, s, to []byte, counts, displs []int) error {
	blocks, err := cut("recv", to, counts, displs, r.Peers)
	if err == nil {
		err = r.overlap(s, to, r.ownBlock(s, to, displs))
	}
	if err != nil {
		return err
	}
	if !r.Inter {
		if err := wantBytes("send", len(s), counts[r.Rank]); err != nil {
			return err
		}
		return collectives.Allgatherv(ctx, r.Call, s, to, counts, displs)
	}
	row, total, err := rowOf(counts, len(counts))
	if err != nil {
		return err
	}
	all := make([]byte, total)
	if err := r.interAllgatherv(ctx, s, all); err != nil {
		return err
	}
	for i, b := range blocks {
		copy(b, all[row[i]:])
	}
	return nil
}

// ownBlock reports whether b is this rank's block of whole, which has one for each.
func (r *Round) ownBlock(b, whole []byte, displs []int) bool {
	return len(displs) == r.Size && buffer.SameBlock(b, whole, displs[r.Rank])
}

// Scatter implements Scatter.
func (r *Round) Scatter(ctx context.Context, s, to []byte, root int) error {
	if err := r.atRoot(root, s, to, buffer.SameBlock(to, s, root*len(to))); err != nil {
		return err
	}
	if r.Inter {
		return r.interScatter(ctx, s, to, root)
	}
	return collectives.Scatter(ctx, r.Call, s, to, root)
}

// Scatterv implements Scatterv; counts and displacements are in bytes.
func (r *Round) Scatterv(ctx context.Context, s []byte, counts, displs []int, to []byte, root int) error {
	if err := r.atRoot(root, s, to, r.ownBlock(to, s, displs)); err != nil {
		return err
	}
	if r.Inter {
		return r.interScatterv(ctx, s, counts, displs, to, root)
	}
	if r.Rank == root {
		if _, err := cut("send", s, counts, displs, r.Size); err != nil {
			return err
		}
	}
	return collectives.Scatterv(ctx, r.Call, s, counts, displs, to, root)
}

// Alltoall implements Alltoall.
func (r *Round) Alltoall(ctx context.Context, s, to []byte) error {
	if err := r.overlap(s, to, buffer.Same(s, to)); err != nil {
		return err
	}
	if r.Inter {
		n := r.Peers
		return r.Alltoallw(ctx, equalParts(s, n), equalParts(to, n))
	}
	return collectives.Alltoall(ctx, r.Call, s, to)
}

// Alltoallv implements Alltoallv; counts and displacements are in bytes.
func (r *Round) Alltoallv(ctx context.Context, s []byte, scounts, sdispls []int, to []byte, rcounts, rdispls []int) error {
	if !r.Inter {
		if err := r.overlap(s, to, buffer.Same(s, to)); err != nil {
			return err
		}
		return collectives.Alltoallv(ctx, r.Call, s, scounts, sdispls, to, rcounts, rdispls)
	}
	n := r.Peers
	out, err := cut("send", s, scounts, sdispls, n)
	if err != nil {
		return err
	}
	in, err := cut("recv", to, rcounts, rdispls, n)
	if err != nil {
		return err
	}
	if err := r.overlap(s, to, false); err != nil {
		return err
	}
	return r.Alltoallw(ctx, partsOf(out), partsOf(in))
}

// Alltoallw exchanges data between all pairs of ranks directly.
func (r *Round) Alltoallw(ctx context.Context, send, recv []buffer.Part) error {
	n := r.Peers
	if len(send) != n || len(recv) != n {
		return fmt.Errorf("%w: %d parts to send and %d to receive, for %d ranks", mpi.ErrCount, len(send), len(recv), n)
	}
	out := moves(send)
	for i := range out {
		if p, in := &out[i].part, &recv[i]; p.Err == nil && in.Err == nil && p.Shares(in) {
			p.Message, p.Pieces = slices.Clone(p.Packed()), false
		}
	}
	return exchange(ctx, r.direct(), out, moves(recv))
}

// move is a Part to send to, or receive from, a rank.
type move struct {
	rank int
	part buffer.Part
}

// moves has one move for each rank.
func moves(parts []buffer.Part) []move {
	all := make([]move, len(parts))
	for i, p := range parts {
		all[i] = move{i, p}
	}
	return all
}

// exchange starts all sends and receives at once. Arguments are checked before anything is sent.
func exchange(ctx context.Context, c Call, out, in []move) error {
	for _, list := range [][]move{out, in} {
		for _, m := range list {
			if m.part.Err != nil {
				return m.part.Err
			}
		}
	}
	var requests []collectives.Request
	for i := range in {
		requests = append(requests, c.IrecvPart(in[i].rank, &in[i].part))
	}
	for i := range out {
		requests = append(requests, c.Isend(out[i].rank, 0, out[i].part.Packed()))
	}
	var errs []error
	for _, r := range requests {
		errs = append(errs, r.Wait(ctx))
	}
	return errors.Join(errs...)
}

// partsOf returns blocks as Parts.
func partsOf(blocks [][]byte) []buffer.Part {
	parts := make([]buffer.Part, len(blocks))
	for i, b := range blocks {
		parts[i] = buffer.PartOf(b)
	}
	return parts
}

// equalParts divides b into n equal blocks.
func equalParts(b []byte, n int) []buffer.Part {
	parts := make([]buffer.Part, n)
	for i := range parts {
		parts[i] = buffer.PartOf(b[i*(len(b)/n):][:len(b)/n])
	}
	return parts
}

// cut returns the blocks of buf, one for each of n ranks. Counts and displacements are in bytes and
// not checked yet.
func cut(what string, buf []byte, counts, displs []int, n int) ([][]byte, error) {
	if len(counts) != n || len(displs) != n {
		return nil, fmt.Errorf("%w: %d counts and %d displacements of %s, for %d ranks", mpi.ErrCount, len(counts), len(displs), what, n)
	}
	blocks := make([][]byte, n)
	for i, count := range counts {
		at := displs[i]
		if count < 0 || at < 0 || at > len(buf) || count > len(buf)-at {
			return nil, fmt.Errorf("%w: %d bytes at %d for rank %d, and %s has %d", mpi.ErrCount, count, at, i, what, len(buf))
		}
		blocks[i] = buf[at : at+count]
	}
	return blocks, nil
}

// rowOf returns the displacements of contiguous blocks, and their end.
func rowOf(counts []int, n int) (displs []int, total int, err error) {
	if len(counts) != n {
		return nil, 0, fmt.Errorf("%w: %d counts for %d ranks", mpi.ErrCount, len(counts), n)
	}
	displs = make([]int, n)
	for i, count := range counts {
		if count < 0 || total+count < 0 {
			return nil, 0, fmt.Errorf("%w: the count for rank %d is %d, and those before add up to %d", mpi.ErrCount, i, count, total)
		}
		displs[i] = total
		total += count
	}
	return displs, total, nil
}

func wantBytes(what string, have, want int) error {
	if have != want {
		return fmt.Errorf("%w: %s has %d bytes, want %d", mpi.ErrCount, what, have, want)
	}
	return nil
}

// checkRoot returns an error if an intracommunicator has no such root, or nil.
func (r *Round) checkRoot(root int) error {
	if root < 0 || root >= r.Size {
		return fmt.Errorf("%w: root %d, communicator %s has ranks 0 to %d", mpi.ErrRank, root, r.Comm.Name(), r.Size-1)
	}
	return nil
}

// overlap returns why s and to cannot be the buffers of one call, or nil if they share no memory or
// are in place: with other shared memory, the result would depend on the algorithm (MPI-4.1,
// section 6.2.2).
func (r *Round) overlap(s, to []byte, inPlace bool) error {
	switch {
	case buffer.Apart(s, to) || inPlace && !r.Inter:
		return nil
	case r.Inter:
		return fmt.Errorf("%w: send and recv share memory; nothing is in place on an intercommunicator", mpi.ErrArg)
	}
	return fmt.Errorf("%w: send and recv share memory otherwise than in place", mpi.ErrArg)
}

// atRoot checks a root, and what it has to send and to receive.
func (r *Round) atRoot(root int, s, to []byte, inPlace bool) error {
	if !r.Inter {
		if err := r.checkRoot(root); err != nil {
			return err
		}
	}
	if !r.rooted(root) {
		return nil
	}
	return r.overlap(s, to, inPlace)
}
