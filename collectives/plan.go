package collectives

import (
	"context"
	"unsafe"

	"github.com/isthmus-grid/isthmus/collectives/schedule"
)

// plan is where an algorithm writes down what one rank does in one call. The regions
// are as long as the caller's buffers.
type plan struct {
	*schedule.Builder
	rank, size, root int
	op               *Op
	in, out          schedule.Region // the buffers to send from and to receive into
	args             *Args
}

// newPlan is for checked arguments.
func newPlan(rank, size int, a *Args) *plan {
	p := &plan{Builder: schedule.NewBuilder(rank, size), rank: rank, size: size, root: a.Root, op: &a.Op, args: a,
		in:  schedule.Region{Space: schedule.Input, Len: len(a.Send)},
		out: schedule.Region{Space: schedule.Output, Len: len(a.Recv)}}
	if off, inside := within(a.Recv, a.Send); inside {
		p.InPlace(off)
	}
	return p
}

// within returns where part begins in whole, if it lies there.
func within(whole, part []byte) (off int, inside bool) {
	if len(whole) == 0 || len(part) == 0 {
		return 0, false
	}
	w, p := uintptr(unsafe.Pointer(&whole[0])), uintptr(unsafe.Pointer(&part[0]))
	return int(p - w), p >= w && p+uintptr(len(part)) <= w+uintptr(len(whole))
}

// run carries the plan out.
func (p *plan) run(ctx context.Context, c Comm) error {
	s := p.Done()
	m := schedule.Memory{p.args.Send, p.args.Recv, make([]byte, s.Scratch)}
	return schedule.Run(ctx, c, s, &m, p.args.Op.apply)
}

// block returns block r of a region of equal ones, of n bytes each.
func block(whole schedule.Region, r, n int) schedule.Region { return whole.Cut(r*n, (r+1)*n) }

// blocks returns n equal blocks from the first on.
func blocks(whole schedule.Region, first, count, n int) schedule.Region {
	return whole.Cut(first*n, (first+count)*n)
}

// placed returns a rank's block of a region with counts and displacements.
func placed(whole schedule.Region, counts, displs []int, r int) schedule.Region {
	return whole.Cut(displs[r], displs[r]+counts[r])
}

// exchange sends to one rank and receives from another.
func (p *plan) exchange(dst int, from schedule.Region, src int, to schedule.Region) {
	p.Receive(src, to)
	p.Send(dst, from)
}
