package collectives

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/isthmus-grid/isthmus/collectives/operation"
	"github.com/isthmus-grid/isthmus/collectives/schedule"
)

// Args are the arguments of one collective call on one rank. Each collective
// uses the fields its function in calls.go has parameters for, with the same
// meaning; Bcast's buffer is Recv. The slices belong to the call until it
// returns.
type Args struct {
	Send, Recv []byte

	SendCounts, SendDispls []int // bytes, one per rank
	RecvCounts, RecvDispls []int // bytes, one per rank

	Root int
	Op   Op
}

// check rejects invalid arguments before anything is sent.
func (a *Args) check(collective operation.Operation, rank, p int) error {
	atRoot := rank == a.Root
	if collective.HasRoot() && (a.Root < 0 || a.Root >= p) {
		return fmt.Errorf("root %d of %d ranks: %w", a.Root, p, ErrArgument)
	}
	switch collective {
	case operation.Reduce, operation.Allreduce, operation.Scan, operation.Exscan:
		if err := a.Op.check(len(a.Send)); err != nil {
			return err
		}
		if atRoot || collective != operation.Reduce {
			return wantLen("receive buffer", len(a.Recv), len(a.Send))
		}
	case operation.Gather, operation.Allgather:
		if atRoot || collective == operation.Allgather {
			return wantLen("receive buffer", len(a.Recv), p*len(a.Send))
		}
	case operation.Scatter:
		if atRoot {
			return wantLen("send buffer", len(a.Send), p*len(a.Recv))
		}
	case operation.Alltoall:
		if len(a.Send)%p != 0 {
			return fmt.Errorf("send buffer of %d bytes is not %d equal blocks: %w", len(a.Send), p, ErrArgument)
		}
		return wantLen("receive buffer", len(a.Recv), len(a.Send))
	case operation.ReduceScatter, operation.ReduceScatterBlock:
		return a.checkReduceScatter(collective, rank, p)
	case operation.Allgatherv:
		if err := checkBlocks("receive", a.Recv, a.RecvCounts, a.RecvDispls, p); err != nil {
			return err
		}
		return wantLen("own send buffer", len(a.Send), a.RecvCounts[rank])
	case operation.Scatterv:
		if !atRoot {
			return nil
		}
		if err := checkBlocks("send", a.Send, a.SendCounts, a.SendDispls, p); err != nil {
			return err
		}
		return wantLen("root's own receive buffer", len(a.Recv), a.SendCounts[rank])
	case operation.Gatherv:
		if !atRoot {
			return nil
		}
		if err := checkBlocks("receive", a.Recv, a.RecvCounts, a.RecvDispls, p); err != nil {
			return err
		}
		return wantLen("root's own send buffer", len(a.Send), a.RecvCounts[rank])
	case operation.Alltoallv:
		if err := checkBlocks("send", a.Send, a.SendCounts, a.SendDispls, p); err != nil {
			return err
		}
		if err := checkBlocks("receive", a.Recv, a.RecvCounts, a.RecvDispls, p); err != nil {
			return err
		}
		return wantLen("own receive block", a.RecvCounts[rank], a.SendCounts[rank])
	}
	return nil
}

func (a *Args) checkReduceScatter(collective operation.Operation, rank, p int) error {
	if err := a.Op.check(len(a.Recv)); err != nil {
		return err
	}
	if collective == operation.ReduceScatterBlock {
		return wantLen("send buffer", len(a.Send), p*len(a.Recv))
	}
	if len(a.RecvCounts) != p {
		return fmt.Errorf("%d counts for %d ranks: %w", len(a.RecvCounts), p, ErrArgument)
	}
	left := len(a.Send)
	for r, n := range a.RecvCounts {
		if n < 0 || n > left {
			return fmt.Errorf("block of rank %d, %d bytes, is not within the send buffer of %d: %w", r, n, len(a.Send), ErrArgument)
		}
		if n%a.Op.Elem != 0 {
			return fmt.Errorf("block of rank %d, %d bytes, is not whole elements of %d bytes: %w", r, n, a.Op.Elem, ErrArgument)
		}
		left -= n
	}
	if left > 0 {
		return fmt.Errorf("send buffer has %d bytes more than the blocks: %w", left, ErrArgument)
	}
	return wantLen("receive buffer", len(a.Recv), a.RecvCounts[rank])
}

// call is everything that a rank's schedule depends on.
type call struct {
	collective      operation.Operation
	in, out         int // lengths of the send and the receive buffer
	inPlace, within int // offset of in within out, and of out within in; -1 if there is none

	sendCounts, sendDispls, recvCounts, recvDispls []int // as in Args

	root, elem  int
	commutative bool
}

func (a *Args) call(collective operation.Operation) call {
	return call{collective: collective, in: len(a.Send), out: len(a.Recv), inPlace: offsetIn(a.Recv, a.Send), within: offsetIn(a.Send, a.Recv),
		sendCounts: a.SendCounts, sendDispls: a.SendDispls, recvCounts: a.RecvCounts, recvDispls: a.RecvDispls,
		root: a.Root, elem: a.Op.Elem, commutative: a.Op.Commutative}
}

// overwrites reports whether results may take the place of data that is still to be sent.
func (c *call) overwrites() bool {
	switch c.collective {
	case operation.Alltoall, operation.Alltoallv:
		return c.inPlace >= 0
	case operation.ReduceScatter, operation.ReduceScatterBlock:
		return c.within >= 0
	}
	return false
}

// offsetIn returns the offset of part in whole, or -1 if part does not lie in whole.
func offsetIn(whole, part []byte) int {
	if len(whole) == 0 || len(part) == 0 {
		return -1
	}
	w, p := uintptr(unsafe.Pointer(&whole[0])), uintptr(unsafe.Pointer(&part[0]))
	if p < w || p+uintptr(len(part)) > w+uintptr(len(whole)) {
		return -1
	}
	return int(p - w)
}

// A scheduleKey is equal for those calls of a rank that have the same schedule.
type scheduleKey struct {
	algorithm       string
	collective      operation.Operation
	in, out         int
	inPlace, within int
	root, elem      int
	commutative     bool
	lists           string // empty if all blocks have the same length
}

// key returns the key of the call when the named algorithm carries it out.
func (c *call) key(algorithm string) scheduleKey {
	return scheduleKey{algorithm, c.collective, c.in, c.out, c.inPlace, c.within, c.root, c.elem, c.commutative, c.lists()}
}

func (c *call) lists() string {
	if c.sendCounts == nil && c.sendDispls == nil && c.recvCounts == nil && c.recvDispls == nil {
		return ""
	}
	k := make([]byte, 0, 64)
	for _, list := range [...][]int{c.sendCounts, c.sendDispls, c.recvCounts, c.recvDispls} {
		k = binary.AppendVarint(k, int64(len(list)))
		for _, n := range list {
			k = binary.AppendVarint(k, int64(n))
		}
	}
	return string(k)
}

// blocks returns where each rank's block lies in either buffer, for the collectives whose buffers
// consist of blocks.
func (c *call) blocks(in, out schedule.Region, size int) (from, to func(int) schedule.Region) {
	equal := func(whole schedule.Region, n int) func(int) schedule.Region {
		return func(r int) schedule.Region { return block(whole, r, n) }
	}
	placed := func(whole schedule.Region, counts, displs []int) func(int) schedule.Region {
		return func(r int) schedule.Region { return whole.Cut(displs[r], displs[r]+counts[r]) }
	}
	switch c.collective {
	case operation.Gather, operation.Allgather:
		return nil, equal(out, in.Len)
	case operation.Gatherv, operation.Allgatherv:
		return nil, placed(out, c.recvCounts, c.recvDispls)
	case operation.Scatter, operation.ReduceScatterBlock:
		return equal(in, out.Len), nil
	case operation.Scatterv:
		return placed(in, c.sendCounts, c.sendDispls), nil
	case operation.Alltoall:
		return equal(in, in.Len/size), equal(out, in.Len/size)
	case operation.Alltoallv:
		return placed(in, c.sendCounts, c.sendDispls), placed(out, c.recvCounts, c.recvDispls)
	case operation.ReduceScatter:
		displs := make([]int, size)
		for r := 1; r < size; r++ {
			displs[r] = displs[r-1] + c.recvCounts[r-1]
		}
		return placed(in, c.recvCounts, displs), nil
	}
	return nil, nil
}

func (op Op) check(n int) error {
	switch {
	case op.Apply == nil:
		return fmt.Errorf("operator %q has no Apply: %w", op.Name, ErrArgument)
	case op.Elem < 1:
		return fmt.Errorf("operator %q has elements of %d bytes: %w", op.Name, op.Elem, ErrArgument)
	case n%op.Elem != 0:
		return fmt.Errorf("vector of %d bytes is not whole elements of %d bytes: %w", n, op.Elem, ErrArgument)
	}
	return nil
}

// apply calls Apply, except for empty vectors, and adds the operator's name to its error.
func (op Op) apply(inout, in []byte) error {
	if len(in) == 0 {
		return nil
	}
	if err := op.Apply(inout, in); err != nil {
		return fmt.Errorf("operator %q: %w", op.Name, err)
	}
	return nil
}

func wantLen(what string, have, want int) error {
	if have != want {
		return fmt.Errorf("%s has %d bytes, want %d: %w", what, have, want, ErrArgument)
	}
	return nil
}

// checkBlocks avoids overflow in its sums: counts and displacements may be any integers.
func checkBlocks(what string, buf []byte, counts, displs []int, p int) error {
	if len(counts) != p || len(displs) != p {
		return fmt.Errorf("%d %s counts and %d displacements for %d ranks: %w", len(counts), what, len(displs), p, ErrArgument)
	}
	for r := range p {
		if counts[r] < 0 || displs[r] < 0 || displs[r] > len(buf) || counts[r] > len(buf)-displs[r] {
			return fmt.Errorf("%s block of rank %d, %d bytes at %d, is outside the buffer of %d: %w",
				what, r, counts[r], displs[r], len(buf), ErrArgument)
		}
	}
	return nil
}
