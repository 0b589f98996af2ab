package collectives

import (
	"bytes"
	"context"
	"fmt"
)

// SharedBuffer is an optional part of a Comm whose ranks are all on one machine: memory on which
// each rank posts data that all others can read (package shm). Data for many ranks is written once,
// every rank has all it needs after one step, and no rank waits for one that only forwards.
//
// In every step each rank posts once and then reads what it wants.
type SharedBuffer interface {
	// Posts returns how many bytes a rank may post in a step; 0 if this call cannot use the shared
	// buffer.
	Posts() int
	// Post begins a step and shows p to all ranks in it; PostParts shows several parts, one behind
	// the other. Neither keeps its argument. A call has at most MaxSteps steps.
	Post(ctx context.Context, p []byte) error
	PostParts(ctx context.Context, parts [][]byte) error
	// Read returns what a rank has posted in this step, which must be n bytes. The slice is
	// read-only and valid until the next step.
	Read(ctx context.Context, rank, n int) ([]byte, error)
}

// MaxSteps is the maximum number of steps of one call over a SharedBuffer whose ranks post 64 KiB
// at a time.
const MaxSteps = 1 << 12

// sharedBuffer is the name of the algorithms that need SharedMemory.
const sharedBuffer = "shared-buffer"

const (
	// Up to these lengths every rank that wants the result of an allreduce, or of a reduce, reduces
	// the whole vector itself; of longer ones each rank reduces its share, which takes another
	// step.
	wholeAllreduce = 4 << 10
	wholeReduce    = 64 << 10

	// bcastPiece is the size of a bcast's pieces, so that others read while the root writes.
	bcastPiece = 32 << 10

	// maxSharing is the maximum number of ranks that share one buffer.
	maxSharing = 64

	// maxSharedBufferBytes bounds what one rank sends or receives in several steps, and so these,
	// and fewScan the ranks of a scan of such vectors: each rank reduces what all below it have
	// posted.
	maxSharedBufferBytes = 64 << 20
	fewScan              = 8
)

// What follows tells for which calls the memory has room. All ranks get the same answer, which is
// why gatherv, scatterv and alltoallv, whose ranks do not know the same lengths, have no line.

// fitsOneStep is for calls in which each rank posts once.
func fitsOneStep(_ int, s Shape) bool { return s.Bytes <= s.Posts }

// fitsVector is for vectors that are posted piece by piece.
func fitsVector(_ int, s Shape) bool { return s.Bytes <= maxSharedBufferBytes }

// fitsBlocks is for blocks of which a piece of each is posted at a time.
func fitsBlocks(size int, s Shape) bool {
	return size <= s.Posts && s.Bytes*size <= maxSharedBufferBytes
}

// fitsReduction is for vectors of each piece of which every rank reduces a share.
func fitsReduction(size int, s Shape) bool {
	return s.Elem*size <= s.Posts && s.Bytes <= maxSharedBufferBytes
}

// fitsReductionOfBlocks is for vectors that consist of a block for each rank.
func fitsReductionOfBlocks(size int, s Shape) bool {
	return s.Elem*size <= s.Posts && s.Bytes*size <= maxSharedBufferBytes
}

// fitsScan is for scans. Those of long vectors by many ranks reduce too much.
func fitsScan(size int, s Shape) bool {
	return s.Bytes <= s.Posts || fitsReduction(size, s) && size <= fewScan
}

// posting is one rank's part of a call. Its methods with a context alone are the algorithms.
type posting struct {
	SharedBuffer
	rank, size int
	parts      [][]byte // of a post
	Args
}

// runShared carries out a checked call that fits, and names the algorithm in the error.
func (a *Algorithm) runShared(ctx context.Context, b SharedBuffer, p *Planner, args *Args) error {
	c := posting{SharedBuffer: b, rank: p.rank, size: p.size, Args: *args}
	if err := a.post(c, ctx); err != nil {
		return fmt.Errorf("collectives: %s (%s) on rank %d of %d: %w", a.Collective, a.Name, c.rank, c.size, err)
	}
	return nil
}

func (c posting) barrier(ctx context.Context) error {
	return c.place(ctx, nil, func(int) []byte { return nil })
}

func (c posting) gatherToRoot(ctx context.Context) error { return c.gather(ctx, c.rank == c.Root) }

func (c posting) allgather(ctx context.Context) error { return c.gather(ctx, true) }

func (c posting) allgatherv(ctx context.Context) error {
	return c.place(ctx, c.Send, func(r int) []byte { return c.Recv[c.RecvDispls[r]:][:c.RecvCounts[r]] })
}

func (c posting) reduceToRoot(ctx context.Context) error {
	return c.reduce(ctx, c.rank == c.Root, wholeReduce)
}

func (c posting) allreduce(ctx context.Context) error { return c.reduce(ctx, true, wholeAllreduce) }

func (c posting) reduceScatter(ctx context.Context) error {
	at := 0
	for _, n := range c.RecvCounts[:c.rank] {
		at += n
	}
	if err := c.Post(ctx, c.Send); err != nil {
		return err
	}
	return c.fold(ctx, c.Recv, c.size, len(c.Send), at)
}

func (c posting) scan(ctx context.Context) error { return c.prefix(ctx, c.rank+1) }

func (c posting) exscan(ctx context.Context) error { return c.prefix(ctx, c.rank) }

// pieces calls f with the offset and the length of each piece of n bytes, each of at most piece
// bytes and whole elements; once if n is 0.
func pieces(n, piece, elem int, f func(at, n int) error) error {
	piece = piece / elem * elem
	for at := 0; ; at += piece {
		if err := f(at, min(piece, n-at)); err != nil || at+piece >= n {
			return err
		}
	}
}

func (c posting) bcast(ctx context.Context) error {
	return pieces(len(c.Recv), min(bcastPiece, c.Posts()), 1, func(at, n int) error {
		if c.rank == c.Root {
			return c.Post(ctx, c.Recv[at:][:n])
		}
		if err := c.Post(ctx, nil); err != nil {
			return err
		}
		p, err := c.Read(ctx, c.Root, n)
		copy(c.Recv[at:], p)
		return err
	})
}

func (c *posting) gather(ctx context.Context, wanted bool) error {
	block := len(c.Send)
	return pieces(block, c.Posts(), 1, func(at, n int) error {
		if !wanted {
			return c.Post(ctx, c.Send[at:][:n])
		}
		return c.place(ctx, c.Send[at:][:n], func(r int) []byte { return c.Recv[r*block+at:][:n] })
	})
}

// cut returns the same piece of each rank's block.
func (c *posting) cut(b []byte, block, at, n int) [][]byte {
	c.parts = c.parts[:0]
	for r := range c.size {
		c.parts = append(c.parts, b[r*block+at:][:n])
	}
	return c.parts
}

func (c posting) scatter(ctx context.Context) error {
	block := len(c.Recv)
	return pieces(block, c.Posts()/c.size, 1, func(at, n int) error {
		if c.rank == c.Root {
			copy(c.Recv[at:][:n], c.Send[c.rank*block+at:])
			return c.PostParts(ctx, c.cut(c.Send, block, at, n))
		}
		if err := c.Post(ctx, nil); err != nil {
			return err
		}
		p, err := c.Read(ctx, c.Root, c.size*n)
		if err == nil {
			copy(c.Recv[at:], p[c.rank*n:][:n])
		}
		return err
	})
}

// place posts the rank's own block and copies that of every rank to its slot.
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

// alltoall may have one buffer for both: all of a piece is posted before anything is received.
func (c posting) alltoall(ctx context.Context) error {
	block := len(c.Send) / c.size
	return pieces(block, c.Posts()/c.size, 1, func(at, n int) error {
		if err := c.PostParts(ctx, c.cut(c.Send, block, at, n)); err != nil {
			return err
		}
		for r := range c.size {
			p, err := c.Read(ctx, r, c.size*n)
			if err != nil {
				return err
			}
			copy(c.Recv[r*block+at:][:n], p[c.rank*n:])
		}
		return nil
	})
}

// reduceScatterBlock reduces each rank's own block.
func (c posting) reduceScatterBlock(ctx context.Context) error {
	block, piece := len(c.Recv), c.Posts()/c.size
	if block > piece && offsetIn(c.Send, c.Recv) >= 0 {
		c.Send = bytes.Clone(c.Send) // results would overwrite data not yet posted
	}
	return pieces(block, piece, c.Op.Elem, func(at, n int) error {
		if err := c.PostParts(ctx, c.cut(c.Send, block, at, n)); err != nil {
			return err
		}
		return c.fold(ctx, c.Recv[at:][:n], c.size, c.size*n, c.rank*n)
	})
}

// prefix reduces what the ranks below end have posted.
func (c *posting) prefix(ctx context.Context, end int) error {
	return pieces(len(c.Send), c.Posts(), c.Op.Elem, func(at, n int) error {
		if err := c.Post(ctx, c.Send[at:][:n]); err != nil {
			return err
		}
		return c.fold(ctx, c.Recv[at:][:n], end, n, 0)
	})
}

// fold reduces into to, from the last rank down, so that the order is always that of the ranks.
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

// reduce leaves the result at the ranks that want it. They reduce vectors of at most whole bytes
// themselves. Of longer ones, piece by piece, each rank reduces its share and posts it.
func (c *posting) reduce(ctx context.Context, wanted bool, whole int) error {
	if len(c.Send) <= min(whole, c.Posts()) {
		if err := c.Post(ctx, c.Send); err != nil || !wanted {
			return err
		}
		return c.fold(ctx, c.Recv, c.size, len(c.Send), 0)
	}
	var own []byte // for the share of a rank that does not want the result
	return pieces(len(c.Send), c.Posts(), c.Op.Elem, func(at, n int) error {
		if err := c.Post(ctx, c.Send[at:][:n]); err != nil {
			return err
		}
		share := func(r int) (from, to int) {
			elems := n / c.Op.Elem
			return blockStart(elems, c.size, r) * c.Op.Elem, blockStart(elems, c.size, r+1) * c.Op.Elem
		}
		from, to := share(c.rank)
		if !wanted {
			if own == nil {
				own = make([]byte, to-from)
			}
			if err := c.fold(ctx, own[:to-from], c.size, n, from); err != nil {
				return err
			}
			return c.Post(ctx, own[:to-from])
		}
		all := c.Recv[at:][:n]
		if err := c.fold(ctx, all[from:to], c.size, n, from); err != nil {
			return err
		}
		return c.place(ctx, all[from:to], func(r int) []byte { from, to := share(r); return all[from:to] })
	})
}
