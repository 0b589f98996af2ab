package core

import (
	"context"
	"math"

	"github.com/isthmus-grid/isthmus/mpilib"
)

// partitioned is an end of a partitioned transfer (MPI-5.0, chapter 4). It stays active until its completion was returned to
// the program, although the round may be over before.
type partitioned struct {
	end
	current *mpilib.Request // of the round; nil: it is not active
}

// end is a *mpilib.PartitionedSend or a *mpilib.PartitionedRecv.
type end interface {
	Start() error
	Request() *mpilib.Request
	Free() error
}

// Start begins a round.
func (p *partitioned) Start() error {
	if p.current != nil {
		return failure(errRequest, "%v is active; wait for it", partitionedTransfer)
	}
	err := p.end.Start()
	if err == nil {
		p.current = p.end.Request()
	}
	return err
}

// Request returns the request of the active round.
func (p *partitioned) Request() *mpilib.Request { return p.current }

// Wait returns when the active round is over.
func (p *partitioned) Wait(ctx context.Context) (mpilib.Status, error) {
	r := p.current
	p.current = nil
	return r.Wait(ctx)
}

// preparePartitioned makes an end for so many partitions of count elements each, and stores the handle of its request. No
// hints are known.
func preparePartitioned(call string, buf uintptr, partitions int32, count int64, datatype, comm, info, out uintptr,
	make func(c *communicator, p mpilib.Part) (end, error)) int32 {
	return onComm(call, comm, func(c *communicator) error {
		if partitions < 1 {
			return failure(errArg, "%d partitions", partitions)
		}
		if count > math.MaxInt64/int64(partitions) {
			return failure(errCount, "%d partitions of %d elements", partitions, count)
		}
		if _, err := infoOf(info); err != nil {
			return err
		}
		var b builder
		p := b.part(buf, int64(partitions)*count, datatype)
		if b.err != nil {
			return b.err
		}
		made, err := make(c, p)
		if err == nil {
			store(out, requests.Add(&request{comm: c, held: partitionedTransfer, repeated: &partitioned{end: made}}))
		}
		return err
	})
}

// PsendInit prepares a partitioned send (MPI-5.0, section 4.2.1).
func PsendInit(buf uintptr, partitions int32, count int64, datatype uintptr, dest, tag int32, comm, info, request uintptr) int32 {
	return preparePartitioned("MPI_Psend_init", buf, partitions, count, datatype, comm, info, request, func(c *communicator, p mpilib.Part) (end, error) {
		return c.PsendInit(p, int(partitions), rankOf(dest), tagOf(tag))
	})
}

// PrecvInit prepares a partitioned receive.
func PrecvInit(buf uintptr, partitions int32, count int64, datatype uintptr, source, tag int32, comm, info, request uintptr) int32 {
	return preparePartitioned("MPI_Precv_init", buf, partitions, count, datatype, comm, info, request, func(c *communicator, p mpilib.Part) (end, error) {
		return c.PrecvInit(p, int(partitions), rankOf(source), tagOf(tag))
	})
}

// onPartitioned makes a call on the partitioned transfer of a handle, which is that of an end of one kind.
func onPartitioned[E end](call string, handle uintptr, f func(E) error) int32 {
	q, err := requestOf(handle)
	if err == nil && q != nil {
		if p, ok := q.repeated.(*partitioned); ok {
			if e, ok := p.end.(E); ok {
				return q.comm.result(call, f(e))
			}
		}
	}
	if err == nil {
		err = failure(errRequest, "%#x is no request of such a partitioned transfer", handle)
	}
	return onWorld(call, err)
}

// Pready releases a partition of a send (MPI-5.0, section 4.2.2).
func Pready(partition int32, request uintptr) int32 {
	return onPartitioned("MPI_Pready", request, func(s *mpilib.PartitionedSend) error { return s.Pready(int(partition)) })
}

// PreadyRange releases some partitions.
func PreadyRange(low, high int32, request uintptr) int32 {
	return onPartitioned("MPI_Pready_range", request, func(s *mpilib.PartitionedSend) error { return s.PreadyRange(int(low), int(high)) })
}

// PreadyList releases the partitions of a list.
func PreadyList(length int32, partitions, request uintptr) int32 {
	return onPartitioned("MPI_Pready_list", request, func(s *mpilib.PartitionedSend) error {
		if length < 0 {
			return failure(errArg, "%d partitions", length)
		}
		return s.PreadyList(integers(partitions, int(length), 0))
	})
}

// Parrived returns whether a partition of a receive has arrived.
func Parrived(request uintptr, partition int32, flag uintptr) int32 {
	return onPartitioned("MPI_Parrived", request, func(r *mpilib.PartitionedRecv) error {
		arrived, err := r.Parrived(int(partition))
		if err == nil {
			store(flag, logicalOf(arrived))
		}
		return err
	})
}
