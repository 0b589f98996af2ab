package mpilib

import "context"

// Bcast is the package's Bcast of a Part. The ranks' types may differ as long as
// they have the same basic elements.
func (c *Comm) Bcast(ctx context.Context, p Part, root int) error {
	return bcastPart(p.p, root).call(ctx, c)
}

// Ibcast is the package's Ibcast of a Part.
func (c *Comm) Ibcast(p Part, root int) *Request { return bcastPart(p.p, root).start(c) }

// BcastInit is the package's BcastInit of a Part.
func (c *Comm) BcastInit(p Part, root int) *Persistent { return bcastPart(p.p, root).init(c) }

// Gather is the package's Gather of Parts. recv has the elements of all ranks, in rank order; it is
// ignored except at the root.
func (c *Comm) Gather(ctx context.Context, send, recv Part, root int) error {
	return gatherPart(send.p, recv.p, root).call(ctx, c)
}

// Igather is the package's Igather of Parts.
func (c *Comm) Igather(send, recv Part, root int) *Request {
	return gatherPart(send.p, recv.p, root).start(c)
}

// GatherInit is the package's GatherInit of Parts.
func (c *Comm) GatherInit(send, recv Part, root int) *Persistent {
	return gatherPart(send.p, recv.p, root).init(c)
}

// Allgather is the package's Allgather of Parts; recv is as Gather's.
func (c *Comm) Allgather(ctx context.Context, send, recv Part) error {
	return allgatherPart(send.p, recv.p).call(ctx, c)
}

// Iallgather is the package's Iallgather of Parts.
func (c *Comm) Iallgather(send, recv Part) *Request { return allgatherPart(send.p, recv.p).start(c) }

// AllgatherInit is the package's AllgatherInit of Parts.
func (c *Comm) AllgatherInit(send, recv Part) *Persistent {
	return allgatherPart(send.p, recv.p).init(c)
}

// Scatter is the package's Scatter of Parts. send has the elements of all ranks, in rank order; it
// is ignored except at the root.
func (c *Comm) Scatter(ctx context.Context, send, recv Part, root int) error {
	return scatterPart(send.p, recv.p, root).call(ctx, c)
}

// Iscatter is the package's Iscatter of Parts.
func (c *Comm) Iscatter(send, recv Part, root int) *Request {
	return scatterPart(send.p, recv.p, root).start(c)
}

// ScatterInit is the package's ScatterInit of Parts.
func (c *Comm) ScatterInit(send, recv Part, root int) *Persistent {
	return scatterPart(send.p, recv.p, root).init(c)
}

// Alltoall is the package's Alltoall of Parts, which have the elements for, and of, all ranks, in
// rank order.
func (c *Comm) Alltoall(ctx context.Context, send, recv Part) error {
	return alltoallPart(send.p, recv.p).call(ctx, c)
}

// Ialltoall is the package's Ialltoall of Parts.
func (c *Comm) Ialltoall(send, recv Part) *Request { return alltoallPart(send.p, recv.p).start(c) }

// AlltoallInit is the package's AlltoallInit of Parts.
func (c *Comm) AlltoallInit(send, recv Part) *Persistent { return alltoallPart(send.p, recv.p).init(c) }

// Gatherv is Gather with a Part for every rank: recv[r] is filled with rank r's send
// (MPI_Gatherv; MPI-4.1, section 6.5).
func (c *Comm) Gatherv(ctx context.Context, send Part, recv []Part, root int) error {
	return gathervPart(send.p, inner(recv), root).call(ctx, c)
}

// Igatherv starts a Gatherv of Parts.
func (c *Comm) Igatherv(send Part, recv []Part, root int) *Request {
	return gathervPart(send.p, inner(recv), root).start(c)
}

// GathervInit prepares a Gatherv of Parts.
func (c *Comm) GathervInit(send Part, recv []Part, root int) *Persistent {
	return gathervPart(send.p, inner(recv), root).init(c)
}

// Scatterv is Scatter with a Part for every rank: send[r] goes to rank r
// (MPI_Scatterv; MPI-4.1, section 6.6).
func (c *Comm) Scatterv(ctx context.Context, send []Part, recv Part, root int) error {
	return scattervPart(inner(send), recv.p, root).call(ctx, c)
}

// Iscatterv starts a Scatterv of Parts.
func (c *Comm) Iscatterv(send []Part, recv Part, root int) *Request {
	return scattervPart(inner(send), recv.p, root).start(c)
}

// ScattervInit prepares a Scatterv of Parts.
func (c *Comm) ScattervInit(send []Part, recv Part, root int) *Persistent {
	return scattervPart(inner(send), recv.p, root).init(c)
}

// Allgatherv is Allgather with a Part for every rank: recv[r] is filled with rank
// r's send (MPI_Allgatherv; MPI-4.1, section 6.7).
func (c *Comm) Allgatherv(ctx context.Context, send Part, recv []Part) error {
	return allgathervPart(send.p, inner(recv)).call(ctx, c)
}

// Iallgatherv starts an Allgatherv of Parts.
func (c *Comm) Iallgatherv(send Part, recv []Part) *Request {
	return allgathervPart(send.p, inner(recv)).start(c)
}

// AllgathervInit prepares an Allgatherv of Parts.
func (c *Comm) AllgathervInit(send Part, recv []Part) *Persistent {
	return allgathervPart(send.p, inner(recv)).init(c)
}
