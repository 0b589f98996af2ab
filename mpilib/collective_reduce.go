package mpilib

import (
	"context"
	"fmt"

	"github.com/isthmus-grid/isthmus/mpilib/internal/calls"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
	"github.com/isthmus-grid/isthmus/mpilib/internal/reduction"
)

// ErrOp (MPI_ERR_OP) fails reductions without an operator, or with elements for which it is not defined.
var ErrOp = mpi.ErrOp

// Reduction is an operator on the elements of Parts, of whatever datatype (MPI_Op), as Op is on
// those of slices. Combine is the function of a program's own.
type (
	Reduction = reduction.Op
	Combine   = reduction.Combine
)

// ReductionNamed returns the predefined operator with the standard's name, "MPI_SUM" or "MPI_MINLOC"
// (MPI-5.0, sections 6.9.2 and 6.9.4). It takes elements of the named types for which the standard
// defines it, and of Go's types that are like them, but no long doubles, for which Go has no
// arithmetic. Calls with others fail with ErrOp. Logical operators take integers: 0 is false.
func ReductionNamed(name string) (Reduction, error) { return reduction.Named(name) }

// NewReduction creates an operator of the program for any datatype (MPI_Op_create; MPI-5.0, section
// 6.9.5). It must be associative, up to rounding, and be the same on all ranks; commutative allows
// operands to be exchanged.
func NewReduction(name string, commutative bool, combine Combine) Reduction {
	return reduction.New(name, commutative, combine)
}

// ReduceLocal sets inout[i] = in[i] op inout[i] for every element, without a message
// (MPI_Reduce_local; MPI-5.0, section 6.9.8). The Parts have the same type and as many elements.
func ReduceLocal(in, inout Part, op Reduction) error {
	if err := op.Local(&in.p, &inout.p); err != nil {
		return fmt.Errorf("mpilib: ReduceLocal: %w", err)
	}
	return nil
}

// Collective is a collective call on a communicator with its arguments, not yet made. The calls of
// collective.go have one for Parts, BcastParts for Bcast.
type Collective struct {
	comm *Comm
	call *calls.Operation
}

// As is c as a call of another operation, such as NeighborAllgather, which does the same: errors and the debug mode name it.
func (c Collective) As(operation string) Collective {
	call := *c.call
	call.Name = operation
	return Collective{c.comm, &call}
}

// Call makes the call and waits for it, as Allreduce does.
func (c Collective) Call(ctx context.Context) error { return blocking(ctx, c.comm, c.call) }

// Start makes the nonblocking call, as Iallreduce does (MPI-5.0, section 6.12).
func (c Collective) Start() *Request { return nonblocking(c.comm, c.call) }

// Init prepares the persistent call, as AllreduceInit does (MPI-5.0, section 6.13).
func (c Collective) Init() *Persistent { return persistent(c.comm, c.call) }

// ReduceParts is Reduce of Parts (MPI_Reduce; MPI-5.0, section 6.9.1). Both have the same type and, at
// root, as many elements. The zero Part is given where there is nothing to send, or to receive.
func ReduceParts(comm *Comm, send, recv Part, op Reduction, root int) Collective {
	return Collective{comm, calls.ReducePart(send.p, recv.p, op, root)}
}

// AllreduceParts is Allreduce of Parts (MPI_Allreduce; MPI-5.0, section 6.9.6).
func AllreduceParts(comm *Comm, send, recv Part, op Reduction) Collective {
	return Collective{comm, calls.AllreducePart(send.p, recv.p, op)}
}

// ReduceScatterParts is ReduceScatter of Parts; counts are in elements (MPI_Reduce_scatter; MPI-5.0,
// section 6.10.2).
func ReduceScatterParts(comm *Comm, send, recv Part, counts []int, op Reduction) Collective {
	return Collective{comm, calls.ReduceScatterPart(send.p, recv.p, counts, op)}
}

// ReduceScatterBlockParts is ReduceScatterBlock of Parts (MPI_Reduce_scatter_block; MPI-5.0, section 6.10.1).
func ReduceScatterBlockParts(comm *Comm, send, recv Part, op Reduction) Collective {
	return Collective{comm, calls.ReduceScatterBlockPart(send.p, recv.p, op)}
}

// ScanParts is Scan of Parts (MPI_Scan; MPI-5.0, section 6.11.1).
func ScanParts(comm *Comm, send, recv Part, op Reduction) Collective {
	return Collective{comm, calls.ScanPart(send.p, recv.p, op)}
}

// ExscanParts is Exscan of Parts (MPI_Exscan; MPI-5.0, section 6.11.2). At rank 0 recv may be the zero Part.
func ExscanParts(comm *Comm, send, recv Part, op Reduction) Collective {
	return Collective{comm, calls.ExscanPart(send.p, recv.p, op)}
}
