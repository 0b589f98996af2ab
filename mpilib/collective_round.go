package mpilib

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/mpilib/internal/buffer"
)

// The collective calls on bytes, of communicators of either kind: those of package
// collectives, or, of intercommunicators, what intercollective.go makes of them.

func (r *round) barrier(ctx context.Context) error {
	if r.inter() {
		return r.interBarrier(ctx)
	}
	return collectives.Barrier(ctx, r.call)
}

func (r *round) bcast(ctx context.Context, b []byte, root int) error {
	if err := r.atRoot(root, nil, nil, false); err != nil {
		return err
	}
	if r.inter() {
		return r.interBcast(ctx, b, root)
	}
	return collectives.Bcast(ctx, r.call, b, root)
}

func (r *round) reduce(ctx context.Context, s, to []byte, op collectives.Op, root int) error {
	if err := r.atRoot(root, s, to, buffer.Same(s, to)); err != nil {
		return err
	}
	if r.inter() {
		return r.interReduce(ctx, s, to, op, root)
	}
	return collectives.Reduce(ctx, r.call, s, to, op, root)
}

func (r *round) allreduce(ctx context.Context, s, to []byte, op collectives.Op) error {
	if err := r.overlap(s, to, buffer.Same(s, to)); err != nil {
		return err
	}
	if r.inter() {
		return r.interAllreduce(ctx, s, to, op)
	}
	return collectives.Allreduce(ctx, r.call, s, to, op)
}

func (r *round) reduceScatter(ctx context.Context, s, to []byte, counts []int, op collectives.Op) error {
	blocks, total, err := rowOf(counts, r.comm.Size())
	if err == nil {
		err = wantBytes("send", len(s), total)
	}
	if err == nil {
		err = wantBytes("recv", len(to), counts[r.comm.rank])
	}
	if err == nil {
		err = r.overlap(s, to, buffer.Inside(to, s))
	}
	if err != nil {
		return err
	}
	if r.inter() {
		return r.interReduceScatter(ctx, s, to, counts, blocks, op)
	}
	return collectives.ReduceScatter(ctx, r.call, s, to, counts, op)
}

func (r *round) reduceScatterBlock(ctx context.Context, s, to []byte, op collectives.Op) error {
	if r.inter() {
		return r.reduceScatter(ctx, s, to, slices.Repeat([]int{len(to)}, r.comm.Size()), op)
	}
	err := wantBytes("send", len(s), r.comm.Size()*len(to))
	if err == nil {
		err = r.overlap(s, to, buffer.Inside(to, s))
	}
	if err != nil {
		return err
	}
	return collectives.ReduceScatterBlock(ctx, r.call, s, to, op)
}

// scan is Scan, or Exscan.
func (r *round) scan(ctx context.Context, s, to []byte, op collectives.Op, scan func(context.Context, collectives.Comm, []byte, []byte, collectives.Op) error) error {
	if err := r.comm.intra(); err != nil {
		return err
	}
	if err := r.overlap(s, to, buffer.Same(s, to)); err != nil {
		return err
	}
	return scan(ctx, r.call, s, to, op)
}

func (r *round) gather(ctx context.Context, s, to []byte, root int) error {
	if err := r.atRoot(root, s, to, buffer.SameBlock(s, to, root*len(s))); err != nil {
		return err
	}
	if r.inter() {
		return r.interGather(ctx, s, to, root)
	}
	return collectives.Gather(ctx, r.call, s, to, root)
}

func (r *round) gatherv(ctx context.Context, s, to []byte, counts, displs []int, root int) error {
	if err := r.atRoot(root, s, to, r.ownBlock(s, to, displs)); err != nil {
		return err
	}
	if r.inter() {
		return r.interGatherv(ctx, s, to, counts, displs, root)
	}
	return collectives.Gatherv(ctx, r.call, s, to, counts, displs, root)
}

func (r *round) allgather(ctx context.Context, s, to []byte) error {
	if err := r.overlap(s, to, buffer.SameBlock(s, to, r.comm.rank*len(s))); err != nil {
		return err
	}
	if r.inter() {
		return r.interAllgather(ctx, s, to)
	}
	return collectives.Allgather(ctx, r.call, s, to)
}

func (r *round) allgatherv(ctx context.Context, s, to []byte, counts, displs []int) error {
	blocks, err := cut("recv", to, counts, displs, r.comm.peers.Size())
	if err == nil {
		err = r.overlap(s, to, r.ownBlock(s, to, displs))
	}
	if err != nil {
		return err
	}
	if !r.inter() {
		if err := wantBytes("send", len(s), counts[r.comm.rank]); err != nil {
			return err
		}
		return collectives.Allgatherv(ctx, r.call, s, to, counts, displs)
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
func (r *round) ownBlock(b, whole []byte, displs []int) bool {
	return len(displs) == r.comm.Size() && buffer.SameBlock(b, whole, displs[r.comm.rank])
}

func (r *round) scatter(ctx context.Context, s, to []byte, root int) error {
	if err := r.atRoot(root, s, to, buffer.SameBlock(to, s, root*len(to))); err != nil {
		return err
	}
	if r.inter() {
		return r.interScatter(ctx, s, to, root)
	}
	return collectives.Scatter(ctx, r.call, s, to, root)
}

func (r *round) scatterv(ctx context.Context, s []byte, counts, displs []int, to []byte, root int) error {
	if err := r.atRoot(root, s, to, r.ownBlock(to, s, displs)); err != nil {
		return err
	}
	if r.inter() {
		return r.interScatterv(ctx, s, counts, displs, to, root)
	}
	if r.comm.rank == root {
		if _, err := cut("send", s, counts, displs, r.comm.Size()); err != nil {
			return err
		}
	}
	return collectives.Scatterv(ctx, r.call, s, counts, displs, to, root)
}

func (r *round) alltoall(ctx context.Context, s, to []byte) error {
	if err := r.overlap(s, to, buffer.Same(s, to)); err != nil {
		return err
	}
	if r.inter() {
		n := r.comm.peers.Size()
		return r.alltoallw(ctx, equalParts(s, n), equalParts(to, n))
	}
	return collectives.Alltoall(ctx, r.call, s, to)
}

func (r *round) alltoallv(ctx context.Context, s []byte, scounts, sdispls []int, to []byte, rcounts, rdispls []int) error {
	if !r.inter() {
		if err := r.overlap(s, to, buffer.Same(s, to)); err != nil {
			return err
		}
		return collectives.Alltoallv(ctx, r.call, s, scounts, sdispls, to, rcounts, rdispls)
	}
	n := r.comm.peers.Size()
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
	return r.alltoallw(ctx, partsOf(out), partsOf(in))
}

// alltoallw has every rank exchange with every other directly.
func (r *round) alltoallw(ctx context.Context, send, recv []buffer.Part) error {
	n := r.comm.peers.Size()
	if len(send) != n || len(recv) != n {
		return fmt.Errorf("%w: %d parts to send and %d to receive, for %d ranks", ErrCount, len(send), len(recv), n)
	}
	out := moves(send)
	for i := range out {
		if p, in := &out[i].part, &recv[i]; p.Err == nil && in.Err == nil && p.Shares(in) {
			p.Message, p.Pieces = slices.Clone(p.Packed()), false
		}
	}
	return r.direct().exchange(ctx, out, moves(recv))
}

// move is a Part for, or from, a rank.
type move struct {
	rank int
	part buffer.Part
}

// moves are one for each rank.
func moves(parts []buffer.Part) []move {
	all := make([]move, len(parts))
	for i, p := range parts {
		all[i] = move{i, p}
	}
	return all
}

// exchange sends and receives all at once. Arguments are checked before anything
// is sent.
func (c *collectiveCall) exchange(ctx context.Context, out, in []move) error {
	for _, list := range [][]move{out, in} {
		for _, m := range list {
			if m.part.Err != nil {
				return m.part.Err
			}
		}
	}
	var requests []collectives.Request
	for i := range in {
		requests = append(requests, c.irecvPart(in[i].rank, &in[i].part))
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

// equalParts cuts b, which is n blocks.
func equalParts(b []byte, n int) []buffer.Part {
	parts := make([]buffer.Part, n)
	for i := range parts {
		parts[i] = buffer.PartOf(b[i*(len(b)/n):][:len(b)/n])
	}
	return parts
}

// cut returns the blocks of buf, one for each of n ranks. Counts and displacements
// are in bytes and may be anything.
func cut(what string, buf []byte, counts, displs []int, n int) ([][]byte, error) {
	if len(counts) != n || len(displs) != n {
		return nil, fmt.Errorf("%w: %d counts and %d displacements of %s, for %d ranks", ErrCount, len(counts), len(displs), what, n)
	}
	blocks := make([][]byte, n)
	for i, count := range counts {
		at := displs[i]
		if count < 0 || at < 0 || at > len(buf) || count > len(buf)-at {
			return nil, fmt.Errorf("%w: %d bytes at %d for rank %d, and %s has %d", ErrCount, count, at, i, what, len(buf))
		}
		blocks[i] = buf[at : at+count]
	}
	return blocks, nil
}

// rowOf returns the displacements of blocks in a row, and where they end.
func rowOf(counts []int, n int) (displs []int, total int, err error) {
	if len(counts) != n {
		return nil, 0, fmt.Errorf("%w: %d counts for %d ranks", ErrCount, len(counts), n)
	}
	displs = make([]int, n)
	for i, count := range counts {
		if count < 0 || total+count < 0 {
			return nil, 0, fmt.Errorf("%w: the count for rank %d is %d, and those before add up to %d", ErrCount, i, count, total)
		}
		displs[i] = total
		total += count
	}
	return displs, total, nil
}

func wantBytes(what string, have, want int) error {
	if have != want {
		return fmt.Errorf("%w: %s has %d bytes, want %d", ErrCount, what, have, want)
	}
	return nil
}

// checkRoot says that an intracommunicator has no such root, or returns nil.
func (c *Comm) checkRoot(root int) error {
	if root < 0 || root >= c.Size() {
		return fmt.Errorf("%w: root %d, communicator %s has ranks 0 to %d", ErrRank, root, c.Name(), c.Size()-1)
	}
	return nil
}

// overlap says why s and to cannot be the buffers of one call, unless they share no memory
// or are in place.
func (r *round) overlap(s, to []byte, inPlace bool) error {
	switch {
	case buffer.Apart(s, to) || inPlace && !r.inter():
		return nil
	case r.inter():
		return fmt.Errorf("%w: send and recv share memory; nothing is in place on an intercommunicator", ErrArg)
	}
	return fmt.Errorf("%w: send and recv share memory otherwise than in place", ErrArg)
}

// atRoot checks a root, and what it has to send and to receive.
func (r *round) atRoot(root int, s, to []byte, inPlace bool) error {
	if !r.inter() {
		if err := r.comm.checkRoot(root); err != nil {
			return err
		}
	}
	if !r.rooted(root) {
		return nil
	}
	return r.overlap(s, to, inPlace)
}
