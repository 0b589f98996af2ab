package mpilib

import (
	"context"

	"github.com/isthmus-grid/isthmus/mpilib/internal/calls"
)

// BarrierCall is Barrier as a Collective.
func BarrierCall(comm *Comm) Collective { return Collective{comm, calls.Barrier()} }

// AlltoallwParts is Alltoallw as a Collective.
func AlltoallwParts(comm *Comm, send, recv []Part) Collective {
	return Collective{comm, calls.Alltoallw(inner(send), inner(recv))}
}

// NeighborAlltoallwParts is NeighborAlltoallw as a Collective.
func NeighborAlltoallwParts(comm *Comm, send, recv []Part) Collective {
	return Collective{comm, calls.NeighborAlltoallw(&comm.core, inner(send), inner(recv))}
}

// BcastParts is the Comm's Bcast as a Collective.
func BcastParts(comm *Comm, p Part, root int) Collective {
	return Collective{comm, calls.BcastPart(p.p, root)}
}

// Bcast is the package's Bcast of a Part. The ranks' types may differ as long as
// they have the same basic elements.
func (c *Comm) Bcast(ctx context.Context, p Part, root int) error {
	return BcastParts(c, p, root).Call(ctx)
}

// Ibcast is the package's Ibcast of a Part.
func (c *Comm) Ibcast(p Part, root int) *Request { return BcastParts(c, p, root).Start() }

// BcastInit is the package's BcastInit of a Part.
func (c *Comm) BcastInit(p Part, root int) *Persistent { return BcastParts(c, p, root).Init() }

// GatherParts is the Comm's Gather as a Collective.
func GatherParts(comm *Comm, send, recv Part, root int) Collective {
	return Collective{comm, calls.GatherPart(send.p, recv.p, root)}
}

// Gather is the package's Gather of Parts. recv has the elements of all ranks, in rank order; it is
// ignored except at the root.
func (c *Comm) Gather(ctx context.Context, send, recv Part, root int) error {
	return GatherParts(c, send, recv, root).Call(ctx)
}

// Igather is the package's Igather of Parts.
func (c *Comm) Igather(send, recv Part, root int) *Request {
	return GatherParts(c, send, recv, root).Start()
}

// GatherInit is the package's GatherInit of Parts.
func (c *Comm) GatherInit(send, recv Part, root int) *Persistent {
	return GatherParts(c, send, recv, root).Init()
}

// AllgatherParts is the Comm's Allgather as a Collective.
func AllgatherParts(comm *Comm, send, recv Part) Collective {
	return Collective{comm, calls.AllgatherPart(send.p, recv.p)}
}

// Allgather is the package's Allgather of Parts; recv is as Gather's.
func (c *Comm) Allgather(ctx context.Context, send, recv Part) error {
	return AllgatherParts(c, send, recv).Call(ctx)
}

// Iallgather is the package's Iallgather of Parts.
func (c *Comm) Iallgather(send, recv Part) *Request { return AllgatherParts(c, send, recv).Start() }

// AllgatherInit is the package's AllgatherInit of Parts.
func (c *Comm) AllgatherInit(send, recv Part) *Persistent {
	return AllgatherParts(c, send, recv).Init()
}

// ScatterParts is the Comm's Scatter as a Collective.
func ScatterParts(comm *Comm, send, recv Part, root int) Collective {
	return Collective{comm, calls.ScatterPart(send.p, recv.p, root)}
}

// Scatter is the package's Scatter of Parts. send has the elements of all ranks, in rank order; it
// is ignored except at the root.
func (c *Comm) Scatter(ctx context.Context, send, recv Part, root int) error {
	return ScatterParts(c, send, recv, root).Call(ctx)
}

// Iscatter is the package's Iscatter of Parts.
func (c *Comm) Iscatter(send, recv Part, root int) *Request {
	return ScatterParts(c, send, recv, root).Start()
}

// ScatterInit is the package's ScatterInit of Parts.
func (c *Comm) ScatterInit(send, recv Part, root int) *Persistent {
	return ScatterParts(c, send, recv, root).Init()
}

// AlltoallParts is the Comm's Alltoall as a Collective.
func AlltoallParts(comm *Comm, send, recv Part) Collective {
	return Collective{comm, calls.AlltoallPart(send.p, recv.p)}
}

// Alltoall is the package's Alltoall of Parts, which have the elements for, and of, all ranks, in
// rank order.
func (c *Comm) Alltoall(ctx context.Context, send, recv Part) error {
	return AlltoallParts(c, send, recv).Call(ctx)
}

// Ialltoall is the package's Ialltoall of Parts.
func (c *Comm) Ialltoall(send, recv Part) *Request { return AlltoallParts(c, send, recv).Start() }

// AlltoallInit is the package's AlltoallInit of Parts.
func (c *Comm) AlltoallInit(send, recv Part) *Persistent { return AlltoallParts(c, send, recv).Init() }

// GathervParts is the Comm's Gatherv as a Collective.
func GathervParts(comm *Comm, send Part, recv []Part, root int) Collective {
	return Collective{comm, calls.GathervPart(send.p, inner(recv), root)}
}

// Gatherv is Gather with a Part for every rank: recv[r] is filled with rank r's send
// (MPI_Gatherv; MPI-4.1, section 6.5).
func (c *Comm) Gatherv(ctx context.Context, send Part, recv []Part, root int) error {
	return GathervParts(c, send, recv, root).Call(ctx)
}

// Igatherv starts a Gatherv of Parts.
func (c *Comm) Igatherv(send Part, recv []Part, root int) *Request {
	return GathervParts(c, send, recv, root).Start()
}

// GathervInit prepares a Gatherv of Parts.
func (c *Comm) GathervInit(send Part, recv []Part, root int) *Persistent {
	return GathervParts(c, send, recv, root).Init()
}

// ScattervParts is the Comm's Scatterv as a Collective.
func ScattervParts(comm *Comm, send []Part, recv Part, root int) Collective {
	return Collective{comm, calls.ScattervPart(inner(send), recv.p, root)}
}

// Scatterv is Scatter with a Part for every rank: send[r] goes to rank r
// (MPI_Scatterv; MPI-4.1, section 6.6).
func (c *Comm) Scatterv(ctx context.Context, send []Part, recv Part, root int) error {
	return ScattervParts(c, send, recv, root).Call(ctx)
}

// Iscatterv starts a Scatterv of Parts.
func (c *Comm) Iscatterv(send []Part, recv Part, root int) *Request {
	return ScattervParts(c, send, recv, root).Start()
}

// ScattervInit prepares a Scatterv of Parts.
func (c *Comm) ScattervInit(send []Part, recv Part, root int) *Persistent {
	return ScattervParts(c, send, recv, root).Init()
}

// AllgathervParts is the Comm's Allgatherv as a Collective.
func AllgathervParts(comm *Comm, send Part, recv []Part) Collective {
	return Collective{comm, calls.AllgathervPart(send.p, inner(recv))}
}

// Allgatherv is Allgather with a Part for every rank: recv[r] is filled with rank
// r's send (MPI_Allgatherv; MPI-4.1, section 6.7).
func (c *Comm) Allgatherv(ctx context.Context, send Part, recv []Part) error {
	return AllgathervParts(c, send, recv).Call(ctx)
}

// Iallgatherv starts an Allgatherv of Parts.
func (c *Comm) Iallgatherv(send Part, recv []Part) *Request {
	return AllgathervParts(c, send, recv).Start()
}

// AllgathervInit prepares an Allgatherv of Parts.
func (c *Comm) AllgathervInit(send Part, recv []Part) *Persistent {
	return AllgathervParts(c, send, recv).Init()
}
