package coll

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/mpilib/internal/buffer"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
	"github.com/isthmus-grid/isthmus/mpilib/internal/topology"
)

// The neighborhood collectives, each defined once.

// NeighborAllgather returns the data to send to, and receive from, each neighbor.
func NeighborAllgather[T any](n topology.Neighbourhood, send, recv []T) (out, in []buffer.Part, err error) {
	if in, err = blocks("recv", recv, len(n.In)); err != nil {
		return nil, nil, err
	}
	if len(n.In) > 0 && len(recv) != len(send)*len(n.In) {
		return nil, nil, fmt.Errorf("%w: recv has %d elements; %d neighbours send %d each", mpi.ErrCount, len(recv), len(n.In), len(send))
	}
	return slices.Repeat([]buffer.Part{buffer.PartOf(send)}, len(n.Out)), in, nil
}

// NeighborAllgatherv returns the data to send to, and receive from, each neighbor.
func NeighborAllgatherv[T any](n topology.Neighbourhood, send, recv []T, counts, displs []int) (out, in []buffer.Part, err error) {
	in, err = pieces("recv", recv, counts, displs, len(n.In))
	return slices.Repeat([]buffer.Part{buffer.PartOf(send)}, len(n.Out)), in, err
}

// NeighborAlltoall returns the data to send to, and receive from, each neighbor.
func NeighborAlltoall[T any](n topology.Neighbourhood, send, recv []T) (out, in []buffer.Part, err error) {
	if out, err = blocks("send", send, len(n.Out)); err == nil {
		in, err = blocks("recv", recv, len(n.In))
	}
	return out, in, err
}

// NeighborAlltoallv returns the data to send to, and receive from, each neighbor.
func NeighborAlltoallv[T any](n topology.Neighbourhood, send []T, scounts, sdispls []int, recv []T, rcounts, rdispls []int) (out, in []buffer.Part, err error) {
	if out, err = pieces("send", send, scounts, sdispls, len(n.Out)); err == nil {
		in, err = pieces("recv", recv, rcounts, rdispls, len(n.In))
	}
	return out, in, err
}

// NeighborAlltoallw checks that there is a Part for each neighbor.
func NeighborAlltoallw(n topology.Neighbourhood, send, recv []buffer.Part) (out, in []buffer.Part, err error) {
	if len(send) != len(n.Out) || len(recv) != len(n.In) {
		return nil, nil, fmt.Errorf("%w: %d parts to send and %d to receive, for %d and %d neighbours", mpi.ErrCount, len(send), len(recv), len(n.Out), len(n.In))
	}
	return send, recv, nil
}

// blocks cuts a buffer into n equal parts.
func blocks[T any](name string, buf []T, n int) ([]buffer.Part, error) {
	if n == 0 {
		return nil, nil
	}
	if len(buf)%n != 0 {
		return nil, fmt.Errorf("%w: %s has %d elements, which are not %d equal blocks, one for each neighbour", mpi.ErrCount, name, len(buf), n)
	}
	size := len(buf) / n
	parts := make([]buffer.Part, n)
	for i := range parts {
		parts[i] = buffer.PartOf(buf[i*size : (i+1)*size])
	}
	return parts, nil
}

// pieces cuts counts elements at displs out of a buffer.
func pieces[T any](name string, buf []T, counts, displs []int, n int) ([]buffer.Part, error) {
	if len(counts) != n || len(displs) != n {
		return nil, fmt.Errorf("%w: %d counts and %d displacements of %s, for %d neighbours", mpi.ErrCount, len(counts), len(displs), name, n)
	}
	parts := make([]buffer.Part, n)
	for i, count := range counts {
		at := displs[i]
		if count < 0 || at < 0 || at > len(buf) || count > len(buf)-at {
			return nil, fmt.Errorf("%w: %d elements at %d for neighbour %d, and %s has %d", mpi.ErrCount, count, at, i, name, len(buf))
		}
		parts[i] = buffer.PartOf(buf[at : at+count])
	}
	return parts, nil
}

// Neighbors transfers a Part to and from every neighbor.
func Neighbors(n topology.Neighbourhood, out, in []buffer.Part) Run {
	return func(ctx context.Context, r *Round) error {
		call := r.Call.(Call)
		requests := post(n.In, func(i, rank int) collectives.Request { return call.IrecvPart(rank, &in[i]) })
		requests = append(requests, post(n.Out, func(i, rank int) collectives.Request { return call.Isend(rank, 0, out[i].Packed()) })...)
		var errs []error
		for _, q := range requests {
			errs = append(errs, q.Wait(ctx))
		}
		return errors.Join(errs...)
	}
}

// post starts a transfer with each neighbor. Transfers between two processes start in the order of
// their slots: messages with one tag match in order, which pairs those of one slot.
func post(neighbours []topology.Neighbour, start func(i, rank int) collectives.Request) []collectives.Request {
	order := make([]int, 0, len(neighbours))
	for i, n := range neighbours {
		if n.Rank != mpi.ProcNull {
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
