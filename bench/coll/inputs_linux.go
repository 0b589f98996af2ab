package coll

import (
	"context"
	"errors"
	"fmt"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/collectives/operation"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// inputs are the buffers of an order's call on one rank: a block of the order's size, or one for
// each rank where the call takes so many. The bytes of a block identify its sender and its receiver;
// reductions add numbers that identify the ranks.
type inputs struct {
	comm           *mpilib.Comm
	name           operation.Operation // 0: unknown
	word           string              // its name in the order
	size, root     int
	send, recv     []byte
	numbers, total []float64
	counts, displs []int
}

func newInputs(c *mpilib.Comm, o order) (*inputs, error) {
	a := &inputs{comm: c, word: o.collective, size: o.size, root: o.root}
	a.name, _ = operation.Parse(o.collective) // the call refuses an unknown name, on all ranks
	n := c.Size()
	switch {
	case a.root >= n:
		return nil, fmt.Errorf("root %d of %d ranks", a.root, n)
	case a.size > maxBytes/n:
		return nil, fmt.Errorf("%d blocks of %d bytes: want %d bytes at most", n, a.size, maxBytes)
	}
	sent, received := a.blocks(n)
	if a.name.Reduces() {
		if a.size%number != 0 {
			return nil, fmt.Errorf("%d bytes are not whole numbers of %d", a.size, number)
		}
		a.numbers, a.total = make([]float64, sent*a.size/number), make([]float64, received*a.size/number)
		for i := range a.numbers {
			a.numbers[i] = float64(c.Rank() + 1 + i%7)
		}
		return a, nil
	}
	a.send, a.recv = make([]byte, sent*a.size), make([]byte, received*a.size)
	for i := range a.send {
		a.send[i] = content(c.Rank(), i/a.size, i%a.size)
	}
	a.counts, a.displs = make([]int, n), make([]int, n)
	for r := range n {
		a.counts[r], a.displs[r] = a.size, a.size*r
	}
	return a, nil
}

// blocks returns how many blocks this rank of n sends and receives. No more are there: with all
// ranks on one machine, blocks that no call touches would be gigabytes to fill before each order.
func (a *inputs) blocks(n int) (sent, received int) {
	switch a.name {
	case operation.Alltoall, operation.Alltoallv:
		return n, n
	case operation.Allgather, operation.Allgatherv:
		return 1, n
	case operation.ReduceScatterBlock:
		return n, 1
	case operation.Gather, operation.Gatherv, operation.Scatter, operation.Scatterv:
		if a.comm.Rank() != a.root {
			return 1, 1
		}
		return n, n
	}
	return 1, 1
}

// content returns byte i of the block from rank from to rank to; a rank's only block is for
// rank 0.
func content(from, to, i int) byte { return byte(1 + from*37 + to*101 + i*3) }

// call makes the call.
func (a *inputs) call(ctx context.Context) error {
	err := a.dispatch(ctx)
	if errors.Is(err, collectives.ErrArgument) {
		return &refusal{err}
	}
	return err
}

func (a *inputs) dispatch(ctx context.Context) error {
	c, block, vector := a.comm, a.size, a.size/number
	switch a.name {
	case operation.Barrier:
		return mpilib.Barrier(ctx, c)
	case operation.Bcast:
		if c.Rank() == a.root {
			return mpilib.Bcast(ctx, c, a.send[:block], a.root)
		}
		return mpilib.Bcast(ctx, c, a.recv[:block], a.root)
	case operation.Reduce:
		return mpilib.Reduce(ctx, c, a.numbers[:vector], a.total[:vector], mpilib.Sum[float64], a.root)
	case operation.Allreduce:
		return mpilib.Allreduce(ctx, c, a.numbers[:vector], a.total[:vector], mpilib.Sum[float64])
	case operation.Scan:
		return mpilib.Scan(ctx, c, a.numbers[:vector], a.total[:vector], mpilib.Sum[float64])
	case operation.Exscan:
		return mpilib.Exscan(ctx, c, a.numbers[:vector], a.total[:vector], mpilib.Sum[float64])
	case operation.ReduceScatterBlock:
		return mpilib.ReduceScatterBlock(ctx, c, a.numbers, a.total[:vector], mpilib.Sum[float64])
	case operation.Gather:
		return mpilib.Gather(ctx, c, a.send[:block], a.recv, a.root)
	case operation.Gatherv:
		return mpilib.Gatherv(ctx, c, a.send[:block], a.recv, a.counts, a.displs, a.root)
	case operation.Scatter:
		return mpilib.Scatter(ctx, c, a.send, a.recv[:block], a.root)
	case operation.Scatterv:
		return mpilib.Scatterv(ctx, c, a.send, a.counts, a.displs, a.recv[:block], a.root)
	case operation.Allgather:
		return mpilib.Allgather(ctx, c, a.send[:block], a.recv)
	case operation.Allgatherv:
		return mpilib.Allgatherv(ctx, c, a.send[:block], a.recv, a.counts, a.displs)
	case operation.Alltoall:
		return mpilib.Alltoall(ctx, c, a.send, a.recv)
	case operation.Alltoallv:
		return mpilib.Alltoallv(ctx, c, a.send, a.counts, a.displs, a.recv, a.counts, a.displs)
	}
	return &refusal{fmt.Errorf("no collective %q", a.word)}
}

// check returns what is wrong with the result of a call, or nil.
func (a *inputs) check() error {
	me, n := a.comm.Rank(), a.comm.Size()
	for r := range n {
		var err error
		switch a.name {
		case operation.Barrier:
		case operation.Bcast:
			if me != a.root {
				err = a.arrived(0, a.root, 0)
			}
		case operation.Scatter, operation.Scatterv:
			err = a.arrived(0, a.root, me)
		case operation.Gather, operation.Gatherv:
			if me == a.root {
				err = a.arrived(r, r, 0)
			}
		case operation.Allgather, operation.Allgatherv:
			err = a.arrived(r, r, 0)
		case operation.Alltoall, operation.Alltoallv:
			err = a.arrived(r, r, me)
		default:
			return a.added()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// arrived returns what is wrong with a block of the receive buffer, or nil.
func (a *inputs) arrived(block, from, to int) error {
	for i, got := range a.recv[block*a.size : (block+1)*a.size] {
		if want := content(from, to, i); got != want {
			return fmt.Errorf("%s: byte %d of block %d is %d, want %d", a.name, i, block, got, want)
		}
	}
	return nil
}

// added returns what is wrong with a reduction's result, or nil.
func (a *inputs) added() error {
	me, n, vector := a.comm.Rank(), a.comm.Size(), a.size/number
	first, terms := 0, n // the first element of this rank's result, and the number of addends
	switch a.name {
	case operation.Reduce:
		if me != a.root {
			return nil
		}
	case operation.Scan:
		terms = me + 1
	case operation.Exscan:
		terms = me
	case operation.ReduceScatterBlock:
		first = me * vector
	}
	if terms == 0 {
		return nil // an exscan's first result is not defined
	}
	for i, got := range a.total[:vector] {
		if want := float64(terms*(terms+1)/2 + terms*((first+i)%7)); got != want {
			return fmt.Errorf("%s: number %d is %v, want %v", a.name, i, got, want)
		}
	}
	return nil
}
