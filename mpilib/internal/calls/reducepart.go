package calls

import (
	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/mpilib/internal/buffer"
	"github.com/isthmus-grid/isthmus/mpilib/internal/coll"
	"github.com/isthmus-grid/isthmus/mpilib/internal/debug"
	"github.com/isthmus-grid/isthmus/mpilib/internal/reduction"
)

// The operations that reduce Parts.

// ReducePart is Reduce of Parts.
func ReducePart(send, recv buffer.Part, op reduction.Op, root int) *Operation {
	return reducingPart("Reduce", debug.Loose(root), send, recv, op, func(o collectives.Op) coll.Run {
		return coll.ReducePart(send, recv, o, root)
	})
}

// AllreducePart is Allreduce of Parts.
func AllreducePart(send, recv buffer.Part, op reduction.Op) *Operation {
	return reducingPart("Allreduce", debug.Args{Loose: true}, send, recv, op, func(o collectives.Op) coll.Run {
		return coll.AllreducePart(send, recv, o)
	})
}

// ReduceScatterPart is ReduceScatter of Parts; counts are in elements.
func ReduceScatterPart(send, recv buffer.Part, counts []int, op reduction.Op) *Operation {
	return reducingPart("ReduceScatter", debug.Args{Loose: true}, send, recv, op, func(o collectives.Op) coll.Run {
		size := o.Elem
		if t := send.Layout; t != nil {
			size = int(t.Size())
		}
		return coll.ReduceScatterPart(send, recv, buffer.TimesSize(counts, size), o)
	})
}

// ReduceScatterBlockPart is ReduceScatterBlock of Parts.
func ReduceScatterBlockPart(send, recv buffer.Part, op reduction.Op) *Operation {
	return reducingPart("ReduceScatterBlock", debug.Args{Loose: true}, send, recv, op, func(o collectives.Op) coll.Run {
		return coll.ReduceScatterBlockPart(send, recv, o)
	})
}

// ScanPart is Scan of Parts.
func ScanPart(send, recv buffer.Part, op reduction.Op) *Operation {
	return reducingPart("Scan", debug.Args{Loose: true}, send, recv, op, func(o collectives.Op) coll.Run {
		return coll.ScanPart(send, recv, o)
	})
}

// ExscanPart is Exscan of Parts.
func ExscanPart(send, recv buffer.Part, op reduction.Op) *Operation {
	return reducingPart("Exscan", debug.Args{Loose: true}, send, recv, op, func(o collectives.Op) coll.Run {
		return coll.ExscanPart(send, recv, o)
	})
}

// reducingPart is an operation that reduces Parts. Who only receives gives nothing to send.
func reducingPart(name string, args debug.Args, send, recv buffer.Part, op reduction.Op, run func(collectives.Op) coll.Run) *Operation {
	p := &send
	if send.Err == nil && send.Layout == nil && send.Elem == nil {
		p = &recv
	}
	o, err := op.On(p)
	args.Op = o.Name
	return &Operation{name, args, err, run(o)}
}
