package calls

import (
	"github.com/isthmus-grid/isthmus/mpilib/internal/buffer"
	"github.com/isthmus-grid/isthmus/mpilib/internal/coll"
	"github.com/isthmus-grid/isthmus/mpilib/internal/debug"
)

// The operations that transfer Parts, except Alltoallw, which has no other variant.

// BcastPart is Bcast of Parts.
func BcastPart(p buffer.Part, root int) *Operation {
	return &Operation{"Bcast", debug.Loose(root), p.Err, coll.BcastPart(p, root)}
}

// GatherPart is Gather of Parts.
func GatherPart(send, recv buffer.Part, root int) *Operation {
	return &Operation{"Gather", debug.Loose(root), send.Err, coll.GatherPart(send, recv, root)}
}

// AllgatherPart is Allgather of Parts.
func AllgatherPart(send, recv buffer.Part) *Operation {
	return &Operation{"Allgather", debug.Args{Loose: true}, send.Err, coll.AllgatherPart(send, recv)}
}

// ScatterPart is Scatter of Parts.
func ScatterPart(send, recv buffer.Part, root int) *Operation {
	return &Operation{Name: "Scatter", args: debug.Loose(root), run: coll.ScatterPart(send, recv, root)}
}

// AlltoallPart is Alltoall of Parts.
func AlltoallPart(send, recv buffer.Part) *Operation {
	return &Operation{"Alltoall", debug.Args{Loose: true}, send.Err, coll.AlltoallPart(send, recv)}
}

// GathervPart is Gatherv of Parts.
func GathervPart(send buffer.Part, recv []buffer.Part, root int) *Operation {
	return &Operation{Name: "Gatherv", args: debug.Loose(root), run: coll.GathervPart(send, recv, root)}
}

// ScattervPart is Scatterv of Parts.
func ScattervPart(send []buffer.Part, recv buffer.Part, root int) *Operation {
	return &Operation{Name: "Scatterv", args: debug.Loose(root), run: coll.ScattervPart(send, recv, root)}
}

// AlltoallvPart is Alltoallv of Parts, which may differ as those of Alltoallw.
func AlltoallvPart(send, recv []buffer.Part) *Operation {
	return &Operation{Name: "Alltoallv", args: debug.Args{Loose: true}, run: Alltoallw(send, recv).run}
}

// AllgathervPart is Allgatherv of Parts.
func AllgathervPart(send buffer.Part, recv []buffer.Part) *Operation {
	return &Operation{"Allgatherv", debug.Args{Loose: true}, send.Err, coll.AllgathervPart(send, recv)}
}
