package core

import "github.com/isthmus-grid/isthmus/mpilib"

// reduction is a call that reduces, before its buffers are known to be valid.
type reduction struct {
	c              *communicator
	sent, received int64 // elements
	counts         []int // of a call that scatters the result
}

// reduced describes a call that reduces count elements at sendbuf into as many at recvbuf; set, if it is not nil, changes
// these numbers. The call is in place if the program says so.
func reduced(sendbuf, recvbuf uintptr, count int64, datatype, op uintptr, set func(r *reduction),
	made func(r *reduction, send, recv mpilib.Part, op mpilib.Reduction) mpilib.Collective) description {
	return func(c *communicator, b *builder) mpilib.Collective {
		r := &reduction{c: c, sent: count, received: count}
		if set != nil {
			set(r)
		}
		from := sendbuf
		if from == inPlace {
			from = recvbuf
		}
		o := b.operands(datatype, op)
		return made(r, b.operand(o, from, r.sent), b.operand(o, recvbuf, r.received), o.op)
	}
}

// operands is operandsOf; after an error it is of no elements.
func (b *builder) operands(datatype, op uintptr) operands {
	d, err := typeOf(datatype)
	var o operands
	if err == nil {
		o, err = operandsOf(d, op)
	}
	b.failed(err)
	b.user = o.isUser
	return o
}

// operand is count elements at an address that are reduced, or the result.
func (b *builder) operand(o operands, address uintptr, count int64) mpilib.Part {
	p, err := o.part(address, count)
	b.failed(err)
	return p
}

// reduce describes a Reduce.
func reduce(sendbuf, recvbuf uintptr, count int64, datatype, op uintptr, root int32) description {
	return reduced(sendbuf, recvbuf, count, datatype, op, func(r *reduction) {
		if !r.c.isRoot(root) {
			r.received = 0
		} else if r.c.IsInter() {
			r.sent = 0
		}
	}, func(r *reduction, send, recv mpilib.Part, op mpilib.Reduction) mpilib.Collective {
		return mpilib.ReduceParts(r.c.Comm, send, recv, op, rankOf(root))
	})
}

// allreduce describes an Allreduce.
func allreduce(sendbuf, recvbuf uintptr, count int64, datatype, op uintptr) description {
	return reduced(sendbuf, recvbuf, count, datatype, op, nil, func(r *reduction, send, recv mpilib.Part, op mpilib.Reduction) mpilib.Collective {
		return mpilib.AllreduceParts(r.c.Comm, send, recv, op)
	})
}

// reduceScatter describes a ReduceScatter.
func reduceScatter(sendbuf, recvbuf, recvcounts, datatype, op uintptr, wide int32) description {
	return scattered(sendbuf, recvbuf, datatype, op, func(n int) []int { return integers(recvcounts, n, wide) })
}

// reduceScatterBlock describes a ReduceScatterBlock.
func reduceScatterBlock(sendbuf, recvbuf uintptr, recvcount int64, datatype, op uintptr) description {
	return reduced(sendbuf, recvbuf, recvcount, datatype, op, func(r *reduction) {
		r.sent *= int64(r.c.Size())
	}, func(r *reduction, send, recv mpilib.Part, op mpilib.Reduction) mpilib.Collective {
		return mpilib.ReduceScatterBlockParts(r.c.Comm, send, recv, op)
	})
}

// scattered describes a ReduceScatter in blocks of so many elements as counts returns.
func scattered(sendbuf, recvbuf, datatype, op uintptr, counts func(n int) []int) description {
	return reduced(sendbuf, recvbuf, 0, datatype, op, func(r *reduction) {
		r.counts = counts(r.c.Size())
		for _, n := range r.counts {
			r.sent += int64(n)
		}
		r.received = int64(r.counts[r.c.Rank()])
	}, func(r *reduction, send, recv mpilib.Part, op mpilib.Reduction) mpilib.Collective {
		return mpilib.ReduceScatterParts(r.c.Comm, send, recv, r.counts, op)
	})
}

// scan describes a Scan.
func scan(sendbuf, recvbuf uintptr, count int64, datatype, op uintptr) description {
	return reduced(sendbuf, recvbuf, count, datatype, op, nil, func(r *reduction, send, recv mpilib.Part, op mpilib.Reduction) mpilib.Collective {
		return mpilib.ScanParts(r.c.Comm, send, recv, op)
	})
}

// exscan describes an Exscan. Rank 0 need not have memory for a result.
func exscan(sendbuf, recvbuf uintptr, count int64, datatype, op uintptr) description {
	return reduced(sendbuf, recvbuf, count, datatype, op, func(r *reduction) {
		if recvbuf == 0 && r.c.Rank() == 0 {
			r.received = 0
		}
	}, func(r *reduction, send, recv mpilib.Part, op mpilib.Reduction) mpilib.Collective {
		return mpilib.ExscanParts(r.c.Comm, send, recv, op)
	})
}

// ReduceLocal applies an operation to two buffers.
func ReduceLocal(inbuf, inoutbuf uintptr, count int64, datatype, op uintptr) int32 {
	var b builder
	o := b.operands(datatype, op)
	in, inout := b.operand(o, inbuf, count), b.operand(o, inoutbuf, count)
	if b.err == nil {
		b.err = mpilib.ReduceLocal(in, inout, o.op)
	}
	return onWorld("MPI_Reduce_local", b.err)
}
