package mpilib

import (
	"context"

	"github.com/isthmus-grid/isthmus/mpilib/internal/calls"
)

// Bcast is the package's Bcast of a Part. The ranks' types may differ as long as
// they have the same basic elements.
func (c *Comm) Bcast(ctx context.Context, p Part, root int) error {
	return blocking(ctx, c, calls.BcastPart(p.p, root))
}

// Ibcast is the package's Ibcast of a Part.
func (c *Comm) Ibcast(p Part, root int) *Request { return nonblocking(c, calls.BcastPart(p.p, root)) }

// BcastInit is the package's BcastInit of a Part.
func (c *Comm) BcastInit(p Part, root int) *Persistent {
	return persistent(c, calls.BcastPart(p.p, root))
}

// Gather is the package's Gather of Parts. recv has the elements of all ranks, in rank order; it is
// ignored except at the root.
func (c *Comm) Gather(ctx context.Context, send, recv Part, root int) error {
	return blocking(ctx, c, calls.GatherPart(send.p, recv.p, root))
}

// Igather is the package's Igather of Parts.
func (c *Comm) Igather(send, recv Part, root int) *Request {
	return nonblocking(c, calls.GatherPart(send.p, recv.p, root))
}

// GatherInit is the package's GatherInit of Parts.
func (c *Comm) GatherInit(send, recv Part, root int) *Persistent {
	return persistent(c, calls.GatherPart(send.p, recv.p, root))
}

// Allgather is the package's Allgather of Parts; recv is as Gather's.
func (c *Comm) Allgather(ctx context.Context, send, recv Part) error {
	return blocking(ctx, c, calls.AllgatherPart(send.p, recv.p))
}

// Iallgather is the package's Iallgather of Parts.
func (c *Comm) Iallgather(send, recv Part) *Request {
	return nonblocking(c, calls.AllgatherPart(send.p, recv.p))
}

// AllgatherInit is the package's AllgatherInit of Parts.
func (c *Comm) AllgatherInit(send, recv Part) *Persistent {
	return persistent(c, calls.AllgatherPart(send.p, recv.p))
}

// Scatter is the package's Scatter of Parts. send has the elements of all ranks, in rank order; it
// is ignored except at the root.
func (c *Comm) Scatter(ctx context.Context, send, recv Part, root int) error {
	return blocking(ctx, c, calls.ScatterPart(send.p, recv.p, root))
}

// Iscatter is the package's Iscatter of Parts.
func (c *Comm) Iscatter(send, recv Part, root int) *Request {
	return nonblocking(c, calls.ScatterPart(send.p, recv.p, root))
}

// ScatterInit is the package's ScatterInit of Parts.
func (c *Comm) ScatterInit(send, recv Part, root int) *Persistent {
	return persistent(c, calls.ScatterPart(send.p, recv.p, root))
}

// Alltoall is the package's Alltoall of Parts, which have the elements for, and of, all ranks, in
// rank order.
func (c *Comm) Alltoall(ctx context.Context, send, recv Part) error {
	return blocking(ctx, c, calls.AlltoallPart(send.p, recv.p))
}

// Ialltoall is the package's Ialltoall of Parts.
func (c *Comm) Ialltoall(send, recv Part) *Request {
	return nonblocking(c, calls.AlltoallPart(send.p, recv.p))
}

// AlltoallInit is the package's AlltoallInit of Parts.
func (c *Comm) AlltoallInit(send, recv Part) *Persistent {
	return persistent(c, calls.AlltoallPart(send.p, recv.p))
}

// Gatherv is Gather with a Part for every rank: recv[r] is filled with rank r's send
// (MPI_Gatherv; MPI-4.1, section 6.5).
func (c *Comm) Gatherv(ctx context.Context, send Part, recv []Part, root int) error {
	return blocking(ctx, c, calls.GathervPart(send.p, inner(recv), root))
}

// Igatherv starts a Gatherv of Parts.
func (c *Comm) Igatherv(send Part, recv []Part, root int) *Request {
	return nonblocking(c, calls.GathervPart(send.p, inner(recv), root))
}

// GathervInit prepares a Gatherv of Parts.
func (c *Comm) GathervInit(send Part, recv []Part, root int) *Persistent {
	return persistent(c, calls.GathervPart(send.p, inner(recv), root))
}

// Scatterv is Scatter with a Part for every rank: send[r] goes to rank r
// (MPI_Scatterv; MPI-4.1, section 6.6).
func (c *Comm) Scatterv(ctx context.Context, send []Part, recv Part, root int) error {
	return blocking(ctx, c, calls.ScattervPart(inner(send), recv.p, root))
}

// Iscatterv starts a Scatterv of Parts.
func (c *Comm) Iscatterv(send []Part, recv Part, root int) *Request {
	return nonblocking(c, calls.ScattervPart(inner(send), recv.p, root))
}

// ScattervInit prepares a Scatterv of Parts.
func (c *Comm) ScattervInit(send []Part, recv Part, root int) *Persistent {
	return persistent(c, calls.ScattervPart(inner(send), recv.p, root))
}

// Allgatherv is Allgather with a Part for every rank: recv[r] is filled with rank
// r's send (MPI_Allgatherv; MPI-4.1, section 6.7).
func (c *Comm) Allgatherv(ctx context.Context, send Part, recv []Part) error {
	return blocking(ctx, c, calls.AllgathervPart(send.p, inner(recv)))
}

// Iallgatherv starts an Allgatherv of Parts.
func (c *Comm) Iallgatherv(send Part, recv []Part) *Request {
	return nonblocking(c, calls.AllgathervPart(send.p, inner(recv)))
}

// AllgathervInit prepares an Allgatherv of Parts.
func (c *Comm) AllgathervInit(send Part, recv []Part) *Persistent {
	return persistent(c, calls.AllgathervPart(send.p, inner(recv)))
}
