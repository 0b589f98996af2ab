package mpilib

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/mpilib/internal/buffer"
	"github.com/isthmus-grid/isthmus/mpilib/internal/topology"
)

// The calls between neighbours, each written down once.

func neighborAllgatherOf[T Elem](comm *Comm, send, recv []T) *operation {
	return comm.neighbourly("NeighborAllgather", func(n topology.Neighbourhood) (out, in []buffer.Part, err error) {
		if in, err = blocks("recv", recv, len(n.In)); err != nil {
			return nil, nil, err
		}
		if len(n.In) > 0 && len(recv) != len(send)*len(n.In) {
			return nil, nil, fmt.Errorf("%w: recv has %d elements; %d neighbours send %d each", ErrCount, len(recv), len(n.In), len(send))
		}
		return slices.Repeat([]buffer.Part{buffer.PartOf(send)}, len(n.Out)), in, nil
	})
}

func neighborAllgathervOf[T Elem](comm *Comm, send, recv []T, counts, displs []int) *operation {
	return comm.neighbourly("NeighborAllgatherv", func(n topology.Neighbourhood) (out, in []buffer.Part, err error) {
		in, err = pieces("recv", recv, counts, displs, len(n.In))
		return slices.Repeat([]buffer.Part{buffer.PartOf(send)}, len(n.Out)), in, err
	})
}

func neighborAlltoallOf[T Elem](comm *Comm, send, recv []T) *operation {
	return comm.neighbourly("NeighborAlltoall", func(n topology.Neighbourhood) (out, in []buffer.Part, err error) {
		if out, err = blocks("send", send, len(n.Out)); err == nil {
			in, err = blocks("recv", recv, len(n.In))
		}
		return out, in, err
	})
}

func neighborAlltoallvOf[T Elem](comm *Comm, send []T, scounts, sdispls []int, recv []T, rcounts, rdispls []int) *operation {
	return comm.neighbourly("NeighborAlltoallv", func(n topology.Neighbourhood) (out, in []buffer.Part, err error) {
		if out, err = pieces("send", send, scounts, sdispls, len(n.Out)); err == nil {
			in, err = pieces("recv", recv, rcounts, rdispls, len(n.In))
		}
		return out, in, err
	})
}

func neighborAlltoallwOf(comm *Comm, send, recv []Part) *operation {
	return comm.neighbourly("NeighborAlltoallw", func(n topology.Neighbourhood) (out, in []buffer.Part, err error) {
		if len(send) != len(n.Out) || len(recv) != len(n.In) {
			return nil, nil, fmt.Errorf("%w: %d parts to send and %d to receive, for %d and %d neighbours", ErrCount, len(send), len(recv), len(n.Out), len(n.In))
		}
		return inner(send), inner(recv), nil
	})
}

// blocks cuts a buffer into n equal parts.
func blocks[T Elem](name string, buf []T, n int) ([]buffer.Part, error) {
	if n == 0 {
		return nil, nil
	}
	if len(buf)%n != 0 {
		return nil, fmt.Errorf("%w: %s has %d elements, which are not %d equal blocks, one for each neighbour", ErrCount, name, len(buf), n)
	}
	size := len(buf) / n
	parts := make([]buffer.Part, n)
	for i := range parts {
		parts[i] = buffer.PartOf(buf[i*size : (i+1)*size])
	}
	return parts, nil
}

// pieces cuts counts elements at displs out of a buffer.
func pieces[T Elem](name string, buf []T, counts, displs []int, n int) ([]buffer.Part, error) {
	if len(counts) != n || len(displs) != n {
		return nil, fmt.Errorf("%w: %d counts and %d displacements of %s, for %d neighbours", ErrCount, len(counts), len(displs), name, n)
	}
	parts := make([]buffer.Part, n)
	for i, count := range counts {
		at := displs[i]
		if count < 0 || at < 0 || at > len(buf) || count > len(buf)-at {
			return nil, fmt.Errorf("%w: %d elements at %d for neighbour %d, and %s has %d", ErrCount, count, at, i, name, len(buf))
		}
		parts[i] = buffer.PartOf(buf[at : at+count])
	}
	return parts, nil
}

// neighbourly is an operation that moves a part to and from every neighbour.
func (c *Comm) neighbourly(name string, cut func(topology.Neighbourhood) (out, in []buffer.Part, err error)) *operation {
	n, err := c.neighbourhood()
	if c.isInter() {
		err = c.intra()
	}
	var out, in []buffer.Part
	if err == nil {
		out, in, err = cut(n)
	}
	for _, p := range slices.Concat(out, in) {
		err = firstOf(err, p.Err)
	}
	return &operation{name: name, err: err, run: func(ctx context.Context, r *round) error {
		requests := post(n.In, func(i, rank int) collectives.Request { return r.call.irecvPart(rank, &in[i]) })
		requests = append(requests, post(n.Out, func(i, rank int) collectives.Request { return r.call.Isend(rank, 0, out[i].Packed()) })...)
		var errs []error
		for _, q := range requests {
			errs = append(errs, q.Wait(ctx))
		}
		return errors.Join(errs...)
	}}
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
