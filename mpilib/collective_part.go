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

// AlltoallvParts is Alltoallv with a Part for, and of, every rank (MPI_Alltoallv; MPI-5.0, section 6.8).
func AlltoallvParts(comm *Comm, send, recv []Part) Collective {
	return Collective{comm, calls.AlltoallvPart(inner(send), inner(recv))}
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

// GatherParts is the Comm's Gather as a Collective.
func GatherParts(comm *Comm, send, recv Part, root int) Collective {
	return Collective{comm, calls.GatherPart(send.p, recv.p, root)}
}

// Gather is the package's Gather of Parts. recv has the elements of all ranks, in rank order; it is
// ignored except at the root.
func (c *Comm) Gather(ctx context.Context, send, recv Part, root int) error {
	return GatherParts(c, send, recv, root).Call(ctx)
}

// AllgatherParts is the Comm's Allgather as a Collective.
func AllgatherParts(comm *Comm, send, recv Part) Collective {
	return Collective{comm, calls.AllgatherPart(send.p, recv.p)}
}

// Allgather is the package's Allgather of Parts; recv is as Gather's.
func (c *Comm) Allgather(ctx context.Context, send, recv Part) error {
	return AllgatherParts(c, send, recv).Call(ctx)
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

// AlltoallParts is the Comm's Alltoall as a Collective.
func AlltoallParts(comm *Comm, send, recv Part) Collective {
	return Collective{comm, calls.AlltoallPart(send.p, recv.p)}
}

// Alltoall is the package's Alltoall of Parts, which have the elements for, and of, all ranks, in
// rank order.
func (c *Comm) Alltoall(ctx context.Context, send, recv Part) error {
	return AlltoallParts(c, send, recv).Call(ctx)
}

// GathervParts is the Comm's Gatherv as a Collective.
func GathervParts(comm *Comm, send Part, recv []Part, root int) Collective {
	return Collective{comm, calls.GathervPart(send.p, inner(recv), root)}
}

// Gatherv is Gather with a Part for every rank: recv[r] is filled with rank r's send
// (MPI_Gatherv; MPI-4.1, section 6.5).
func (c *Comm) Gatherv(ctx context.Context, send Part, recv []Part, root int) error {
	return GathervParts(c, send, recv, root).Call(ctx)
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

// AllgathervParts is the Comm's Allgatherv as a Collective.
func AllgathervParts(comm *Comm, send Part, recv []Part) Collective {
	return Collective{comm, calls.AllgathervPart(send.p, inner(recv))}
}

// Allgatherv is Allgather with a Part for every rank: recv[r] is filled with rank
// r's send (MPI_Allgatherv; MPI-4.1, section 6.7).
func (c *Comm) Allgatherv(ctx context.Context, send Part, recv []Part) error {
	return AllgathervParts(c, send, recv).Call(ctx)
}
