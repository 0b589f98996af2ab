package mpilib

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/mpilib/internal/topology"
)

// NeighborAllgather sends the same to every neighbour: block i of recv is what
// the i-th neighbour sent (MPI_Neighbor_allgather; MPI-4.1, section 8.6.1).
// recv has as many blocks of len(send) elements as there are neighbours to
// receive from. Blocks of neighbours beyond a grid's edge stay as they are. A
// collective call, as all of this kind.
func NeighborAllgather[T Elem](ctx context.Context, comm *Comm, send, recv []T) error {
	return comm.exchange(ctx, "NeighborAllgather", func(n topology.Neighbourhood) (out, in []Part, err error) {
		if in, err = blocks("recv", recv, len(n.In)); err != nil {
			return nil, nil, err
		}
		if len(n.In) > 0 && len(recv) != len(send)*len(n.In) {
			return nil, nil, fmt.Errorf("%w: recv has %d elements; %d neighbours send %d each", ErrCount, len(recv), len(n.In), len(send))
		}
		return slices.Repeat([]Part{PartOf(send)}, len(n.Out)), in, nil
	})
}

// NeighborAllgatherv is NeighborAllgather where neighbours may send different
// amounts: recv[displs[i]:displs[i]+counts[i]] is the i-th one's
// (MPI_Neighbor_allgatherv; MPI-4.1, section 8.6.1).
func NeighborAllgatherv[T Elem](ctx context.Context, comm *Comm, send, recv []T, counts, displs []int) error {
	return comm.exchange(ctx, "NeighborAllgatherv", func(n topology.Neighbourhood) (out, in []Part, err error) {
		in, err = pieces("recv", recv, counts, displs, len(n.In))
		return slices.Repeat([]Part{PartOf(send)}, len(n.Out)), in, err
	})
}

// NeighborAlltoall sends block i of send to the i-th neighbour to send to, and
// fills block i of recv from the i-th one to receive from
// (MPI_Neighbor_alltoall; MPI-4.1, section 8.6.2). All blocks have one size.
// The buffers must not overlap.
func NeighborAlltoall[T Elem](ctx context.Context, comm *Comm, send, recv []T) error {
	return comm.exchange(ctx, "NeighborAlltoall", func(n topology.Neighbourhood) (out, in []Part, err error) {
		if out, err = blocks("send", send, len(n.Out)); err == nil {
			in, err = blocks("recv", recv, len(n.In))
		}
		return out, in, err
	})
}

// NeighborAlltoallv is NeighborAlltoall where blocks have different sizes:
// send[sdispls[i]:sdispls[i]+scounts[i]] goes to the i-th neighbour
// (MPI_Neighbor_alltoallv; MPI-4.1, section 8.6.2).
func NeighborAlltoallv[T Elem](ctx context.Context, comm *Comm, send []T, scounts, sdispls []int, recv []T, rcounts, rdispls []int) error {
	return comm.exchange(ctx, "NeighborAlltoallv", func(n topology.Neighbourhood) (out, in []Part, err error) {
		if out, err = pieces("send", send, scounts, sdispls, len(n.Out)); err == nil {
			in, err = pieces("recv", recv, rcounts, rdispls, len(n.In))
		}
		return out, in, err
	})
}

// NeighborAlltoallw is NeighborAlltoall where every block is memory of its own
// and has a type of its own, as PartOf and PartAs make it
// (MPI_Neighbor_alltoallw; MPI-4.1, section 8.6.2).
func NeighborAlltoallw(ctx context.Context, comm *Comm, send, recv []Part) error {
	return comm.exchange(ctx, "NeighborAlltoallw", func(n topology.Neighbourhood) (out, in []Part, err error) {
		if len(send) != len(n.Out) || len(recv) != len(n.In) {
			return nil, nil, fmt.Errorf("%w: %d parts to send and %d to receive, for %d and %d neighbours", ErrCount, len(send), len(recv), len(n.Out), len(n.In))
		}
		return send, recv, nil
	})
}

// blocks cuts a buffer into n equal parts.
func blocks[T Elem](name string, buf []T, n int) ([]Part, error) {
	if n == 0 {
		return nil, nil
	}
	if len(buf)%n != 0 {
		return nil, fmt.Errorf("%w: %s has %d elements, which are not %d equal blocks, one for each neighbour", ErrCount, name, len(buf), n)
	}
	size := len(buf) / n
	parts := make([]Part, n)
	for i := range parts {
		parts[i] = PartOf(buf[i*size : (i+1)*size])
	}
	return parts, nil
}

// pieces cuts counts elements at displs out of a buffer.
func pieces[T Elem](name string, buf []T, counts, displs []int, n int) ([]Part, error) {
	if len(counts) != n || len(displs) != n {
		return nil, fmt.Errorf("%w: %d counts and %d displacements of %s, for %d neighbours", ErrCount, len(counts), len(displs), name, n)
	}
	parts := make([]Part, n)
	for i, count := range counts {
		at := displs[i]
		if count < 0 || at < 0 || at > len(buf) || count > len(buf)-at {
			return nil, fmt.Errorf("%w: %d elements at %d for neighbour %d, and %s has %d", ErrCount, count, at, i, name, len(buf))
		}
		parts[i] = PartOf(buf[at : at+count])
	}
	return parts, nil
}

// exchange moves a part to and from every neighbour. Arguments are checked
// before anything is sent.
func (c *Comm) exchange(ctx context.Context, name string, cut func(topology.Neighbourhood) (out, in []Part, err error)) error {
	call, err := c.nextCall()
	if err != nil {
		return c.called(name, err)
	}
	n, err := c.neighbourhood()
	if err != nil {
		return c.called(name, err)
	}
	out, in, err := cut(n)
	if err != nil {
		return c.called(name, err)
	}
	for _, p := range slices.Concat(out, in) {
		if p.err != nil {
			return c.called(name, p.err)
		}
	}
	requests := post(n.In, func(i, rank int) collectives.Request { return call.irecvPart(rank, &in[i]) })
	requests = append(requests, post(n.Out, func(i, rank int) collectives.Request { return call.Isend(rank, out[i].packed()) })...)
	var errs []error
	for _, r := range requests {
		errs = append(errs, r.Wait(ctx))
	}
	return c.called(name, errors.Join(errs...))
}

// post starts a transfer with each neighbour, between two processes in the
// order of their slots: messages of one tag match in order, which pairs those
// of one slot.
func post(neighbours []topology.Neighbour, start func(i, rank int) collectives.Request) []collectives.Request {
	order := make([]int, 0, len(neighbours))
	for i, n := range neighbours {
		if n.Rank != ProcNull {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(neighbours[a].Slot, neighbours[b].Slot) })
	requests := make([]collectives.Request, len(order))
	for at, i := range order {
		requests[at] = start(i, neighbours[i].Rank)
	}
	return requests
}
