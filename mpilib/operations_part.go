package mpilib

import (
	"github.com/isthmus-grid/isthmus/mpilib/internal/buffer"
	"github.com/isthmus-grid/isthmus/mpilib/internal/coll"
	"github.com/isthmus-grid/isthmus/mpilib/internal/debug"
)

// The collective calls that transfer Parts, each defined once.

func bcastPart(p buffer.Part, root int) *operation {
	return &operation{"Bcast", debug.Loose(root), p.Err, coll.BcastPart(p, root)}
}

func gatherPart(send, recv buffer.Part, root int) *operation {
	return &operation{"Gather", debug.Loose(root), send.Err, coll.GatherPart(send, recv, root)}
}

func allgatherPart(send, recv buffer.Part) *operation {
	return &operation{"Allgather", debug.Args{Loose: true}, send.Err, coll.AllgatherPart(send, recv)}
}

func scatterPart(send, recv buffer.Part, root int) *operation {
	return &operation{name: "Scatter", args: debug.Loose(root), run: coll.ScatterPart(send, recv, root)}
}

func alltoallPart(send, recv buffer.Part) *operation {
	return &operation{"Alltoall", debug.Args{Loose: true}, send.Err, coll.AlltoallPart(send, recv)}
}

func gathervPart(send buffer.Part, recv []buffer.Part, root int) *operation {
	return &operation{name: "Gatherv", args: debug.Loose(root), run: coll.GathervPart(send, recv, root)}
}

func scattervPart(send []buffer.Part, recv buffer.Part, root int) *operation {
	return &operation{name: "Scatterv", args: debug.Loose(root), run: coll.ScattervPart(send, recv, root)}
}

func allgathervPart(send buffer.Part, recv []buffer.Part) *operation {
	return &operation{"Allgatherv", debug.Args{Loose: true}, send.Err, coll.AllgathervPart(send, recv)}
}
