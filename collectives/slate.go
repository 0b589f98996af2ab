package collectives

import (
	"context"
	"fmt"
)

// Slate is what a Comm may have besides, where all its ranks are on one machine: memory on which
// each posts what all others can read (package shm). What is said to many is written once,
// every rank has all it needs after one step, and nobody waits for somebody who only passes it on.
//
// In every step each rank posts once and then reads what it wants.
type Slate interface {
	// Posts returns how many bytes a rank may post in a step; 0: the slate is not for this call.
	Posts() int
	// Post shows p to all ranks in the step that it begins.
	Post(ctx context.Context, p []byte) error
	// Read returns what a rank has posted in this step, which must be n bytes. It is to be read
	// only, until the next step.
	Read(ctx context.Context, rank, n int) ([]byte, error)
}

// slateName is what a choice calls it. It is no line of the table: it has no schedule, for it sends no
// messages.
const slateName = "slate"

const (
	// wholeOnSlate is up to which length each rank of an allreduce reduces the whole vector
	// itself; of longer ones it reduces its share, which takes another step.
	wholeOnSlate = 4 << 10

	// mostOnSlate bounds the vectors that are cut into several steps.
	mostOnSlate = 64 << 20
)

// fitsSlate reports whether the call of this shape is for a slate on which a rank posts so much at a
// time. All ranks come to the same answer.
func fitsSlate(collective string, s Shape, size, piece int) bool {
	n := s.Bytes
	switch collective {
	case "allreduce":
		return s.Elem <= piece && n <= mostOnSlate
	case "scatter", "alltoall", "reduce_scatter_block":
		n *= size
	case "gatherv", "scatterv", "alltoallv": // ranks do not know the same lengths
		return false
	}
	return n <= piece
}

// posting is one rank's part of a call.
type posting struct {
	Slate
	rank, size int
	Args
}

// overSlate carries out a call that is right and fits.
func overSlate(ctx context.Context, b Slate, p *Planner, a *Args, collective string) error {
	c := posting{b, p.rank, p.size, *a}
	var err error
	switch collective {
	case "barrier":
		err = c.place(ctx, nil, func(int) []byte { return nil })
	case "bcast":
		err = c.fromRoot(ctx, a.Recv, len(a.Recv), 0)
	case "scatter":
		err = c.fromRoot(ctx, a.Send, c.size*len(a.Recv), c.rank*len(a.Recv))
	case "gather":
		if c.rank != a.Root {
			err = c.Post(ctx, a.Send)
			break
		}
		fallthrough
	case "allgather":
		err = c.place(ctx, a.Send, func(r int) []byte { return a.Recv[r*len(a.Send):][:len(a.Send)] })
	case "allgatherv":
		err = c.place(ctx, a.Send, func(r int) []byte { return a.Recv[a.RecvDispls[r]:][:a.RecvCounts[r]] })
	case "alltoall":
		err = c.alltoall(ctx)
	case "reduce":
		if c.rank != a.Root {
			err = c.Post(ctx, a.Send)
			break
		}
		err = c.reduce(ctx, a.Recv, c.size, 0)
	case "allreduce":
		err = c.allreduce(ctx)
	case "reduce_scatter_block":
		err = c.reduce(ctx, a.Recv, c.size, c.rank*len(a.Recv))
	case "reduce_scatter":
		at := 0
		for _, n := range a.RecvCounts[:c.rank] {
			at += n
		}
		err = c.reduce(ctx, a.Recv, c.size, at)
	case "scan":
		err = c.reduce(ctx, a.Recv, c.rank+1, 0)
	case "exscan":
		err = c.reduce(ctx, a.Recv, c.rank, 0)
	}
	if err != nil {
		return fmt.Errorf("collectives: %s (%s) on rank %d of %d: %w", collective, slateName, c.rank, c.size, err)
	}
	return nil
}

// fromRoot has the root post whole, n bytes, of which each rank takes what its buffer holds from
// the place on.
func (c *posting) fromRoot(ctx context.Context, whole []byte, n, from int) error {
	if c.rank == c.Root {
		copy(c.Recv, whole[from:]) // of a bcast, onto itself
		return c.Post(ctx, whole)
	}
	if err := c.Post(ctx, nil); err != nil {
		return err
	}
	p, err := c.Read(ctx, c.Root, n)
	if err == nil {
		copy(c.Recv, p[from:])
	}
	return err
}

// place posts the rank's own block and puts that of every rank where slot says.
func (c *posting) place(ctx context.Context, own []byte, slot func(rank int) []byte) error {
	if err := c.Post(ctx, own); err != nil {
		return err
	}
	copy(slot(c.rank), own)
	for r := range c.size {
		if r == c.rank {
			continue
		}
		to := slot(r)
		p, err := c.Read(ctx, r, len(to))
		if err != nil {
			return err
		}
		copy(to, p)
	}
	return nil
}

func (c *posting) alltoall(ctx context.Context) error {
	if err := c.Post(ctx, c.Send); err != nil {
		return err
	}
	n := len(c.Send) / c.size
	for r := range c.size {
		p, err := c.Read(ctx, r, len(c.Send))
		if err != nil {
			return err
		}
		copy(c.Recv[r*n:][:n], p[c.rank*n:])
	}
	return nil
}

// reduce posts the whole vector and reduces what the ranks below end have posted at the place, as
// much as to holds.
func (c *posting) reduce(ctx context.Context, to []byte, end, at int) error {
	if err := c.Post(ctx, c.Send); err != nil {
		return err
	}
	return c.fold(ctx, to, end, len(c.Send), at)
}

// fold reduces into to, from the last rank on, so that the order is that of the ranks, and always the
// same.
func (c *posting) fold(ctx context.Context, to []byte, end, n, at int) error {
	for r := end - 1; r >= 0; r-- {
		p, err := c.Read(ctx, r, n)
		if err != nil {
			return err
		}
		if p = p[at:][:len(to)]; r == end-1 {
			copy(to, p)
		} else if err := c.Op.apply(to, p); err != nil {
			return err
		}
	}
	return nil
}

// allreduce reduces short vectors on every rank. Of longer ones, piece by piece, each rank reduces its
// share and then posts it.
func (c *posting) allreduce(ctx context.Context) error {
	if len(c.Send) <= wholeOnSlate {
		return c.reduce(ctx, c.Recv, c.size, 0)
	}
	piece := c.Posts() / c.Op.Elem * c.Op.Elem
	for at := 0; at < len(c.Send); at += piece {
		n := min(piece, len(c.Send)-at)
		if err := c.Post(ctx, c.Send[at:at+n]); err != nil {
			return err
		}
		share := func(r int) (from, to int) {
			return blockStart(n/c.Op.Elem, c.size, r) * c.Op.Elem, blockStart(n/c.Op.Elem, c.size, r+1) * c.Op.Elem
		}
		from, to := share(c.rank)
		own := c.Recv[at+from : at+to]
		if err := c.fold(ctx, own, c.size, n, from); err != nil {
			return err
		}
		if err := c.place(ctx, own, func(r int) []byte { from, to := share(r); return c.Recv[at+from : at+to] }); err != nil {
			return err
		}
	}
	return nil
}
