package mpilib

import (
	"context"
	"fmt"

	"github.com/isthmus-grid/isthmus/mpilib/internal/comm"
	"github.com/isthmus-grid/isthmus/mpilib/internal/debug"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
	"github.com/isthmus-grid/isthmus/mpilib/internal/partitioned"
)

// MaxPartitions is the maximum number of partitions of a message.
const MaxPartitions = partitioned.MaxPartitions

// ErrInactive is the error for releasing a partition of a send that was not started.
var ErrInactive = mpi.ErrInactive

// tagsOf returns the first of n consecutive tags that no other partitioned send of this process on
// c has used. Tags are not reused: a receiver may start its requests in an order other than that of
// the messages.
func (c *Comm) tagsOf(n int) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.parted+n > MaxTag+1 {
		return 0, fmt.Errorf("%w: partitioned sends on %s have had %d partitions; make them once and start them often, or Dup the communicator",
			ErrContexts, c.Name(), c.parted)
	}
	first := c.parted
	c.parted += n
	return first, nil
}

// partition returns a partitioned transfer, for package partitioned, with the sender's rank.
func (c *Comm) partition(what transfer, source int) partitioned.Transfer {
	return partitioned.Transfer{
		Engine: c.world.engine, Group: what.comm.core.Senders(), Offers: c.core.Context + comm.Offers, Parts: c.core.Context + comm.Partitions,
		Peer: c.core.Global(what.peer), Source: source, Tag: what.tag, Null: what.peer == ProcNull, Signs: c.signs(),
		Tags: c.tagsOf, Start: c.world.calls.Start,
		Wait: func(ctx context.Context, h *engine.Handle) error { return waitPartition(ctx, what, h) },
	}
}

// waitPartition waits for a transfer that has no Request, and does not cancel it. The wait of a round that has one is not the program's.
func waitPartition(ctx context.Context, what transfer, h *engine.Handle) (err error) {
	if w := what.comm.world.watch; w == nil || ctx == what.comm.world.calls.Life {
		_, err = engine.WaitAnyHandle(ctx, []*engine.Handle{h}, -1)
	} else {
		_, err = w.WaitAny(ctx, []debug.Request{watchedPartition{h, what}}, []*engine.Handle{h})
	}
	if err != nil {
		return fmt.Errorf("mpilib: waiting for any of 1 requests: %w", err)
	}
	return nil
}

// watchedPartition is a transfer without a Request, as a watcher sees it.
type watchedPartition struct {
	handle *engine.Handle
	what   transfer
}

func (p watchedPartition) Handle() *engine.Handle            { return p.handle }
func (p watchedPartition) Transfer() comm.Transfer           { return p.what.watched() }
func (p watchedPartition) Observation() *debug.Observation   { return new(debug.Observation) } // of nothing
func (p watchedPartition) SetObservation(*debug.Observation) {}

// inPartitioned adds the name of the call and the transfer to err, and passes it to the error
// handler.
func (t transfer) inPartitioned(call string, err error) error {
	if err == nil {
		return nil
	}
	c := t.comm
	return c.raise(fmt.Errorf("mpilib: rank %d: %s of a partitioned %v%s: %w", c.core.Rank, call, t, c.world.watch.Line(), err))
}

func statusOf(st partitioned.Status) Status {
	return Status{Source: st.Source, Tag: st.Tag, Count: st.Count, Bytes: st.Bytes}
}

// background returns a Request that is complete when wait has returned, which it does when the world ends at the latest.
func (t transfer) background(name string, wait func(context.Context) (partitioned.Status, error)) *Request {
	calls := &t.comm.world.calls
	r, complete := grequest(t.comm, name)
	end := func() {
		st, err := wait(calls.Life)
		complete(statusOf(st), err)
	}
	if !calls.Start(end) {
		end()
	}
	return r
}

// PartitionedSend is the sending end of a partitioned transfer. It is inactive until Start, and
// after its completion. Safe for concurrent use: different goroutines may release partitions.
type PartitionedSend struct {
	what transfer
	send *partitioned.Send
}

// PsendInit prepares to send buf to rank dst in partitions equal parts (MPI_Psend_init; MPI-4.1,
// section 4.2.1). It is matched, once, by a PrecvInit there with this rank as source, the same tag
// and communicator, in the order of the calls; no other receive matches it. It does not block. Free
// it at the end.
func PsendInit[T Elem](comm *Comm, buf []T, partitions, dst, tag int) (*PartitionedSend, error) {
	return comm.PsendInit(PartOf(buf), partitions, dst, tag)
}

// PsendInit is the package's PsendInit of a Part.
func (c *Comm) PsendInit(p Part, partitions, dst, tag int) (*PartitionedSend, error) {
	err := c.core.CheckSend(dst, tag)
	s := &PartitionedSend{what: transfer{comm: c, send: true, peer: dst, tag: tag, elem: 1}}
	if err == nil {
		s.send, err = partitioned.NewSend(c.partition(s.what, c.core.Rank), p.p, partitions)
	}
	if err != nil {
		return nil, c.called("PsendInit", err)
	}
	c.core.Occupy(1)
	return s, nil
}

// Start begins a round (MPI_Start): from now on partitions may be released. Start itself sends
// none. It returns ErrActive if the previous round is not over.
func (s *PartitionedSend) Start() error { return s.what.inPartitioned("Start", s.send.Start()) }

// Pready releases partition i (MPI_Pready; MPI-4.1, section 4.2.2): its elements must not change
// until the round is over. It does not block. Each partition is released once per round.
func (s *PartitionedSend) Pready(i int) error {
	return s.what.inPartitioned("Pready", s.send.Pready(i))
}

// PreadyRange releases the partitions low to high, inclusive (MPI_Pready_range; MPI-4.1, section
// 4.2.2).
func (s *PartitionedSend) PreadyRange(low, high int) error {
	if low > high {
		return s.what.inPartitioned("PreadyRange", fmt.Errorf("%w: partitions %d to %d", ErrArg, low, high))
	}
	for i := low; i <= high; i++ {
		if err := s.Pready(i); err != nil {
			return err
		}
	}
	return nil
}

// PreadyList releases the listed partitions (MPI_Pready_list; MPI-4.1, section 4.2.2).
func (s *PartitionedSend) PreadyList(partitions []int) error {
	for _, i := range partitions {
		if err := s.Pready(i); err != nil {
			return err
		}
	}
	return nil
}

// Wait returns when all partitions were released and the program owns the buffer again, after which
// the request is inactive; at once for an inactive one, with the empty status. If ctx is done
// before, it returns ctx's error and the round continues.
func (s *PartitionedSend) Wait(ctx context.Context) (Status, error) {
	st, err := s.send.Wait(ctx)
	return statusOf(st), s.what.inPartitioned("Wait", err)
}

// Test reports whether Wait would return at once, and if so its result (MPI_Test).
func (s *PartitionedSend) Test() (st Status, done bool, err error) {
	if err := s.what.comm.world.unreplicated(reasonPartitions); err != nil {
		return Status{}, false, s.what.inPartitioned("Test", err)
	}
	got, done, err := s.send.Test()
	return statusOf(got), done, s.what.inPartitioned("Wait", err)
}

// Request returns a Request of the active round, for Waitall and similar calls. It ends the round as Wait does, when the round is
// over, and so is called once per round.
func (s *PartitionedSend) Request() *Request { return s.what.background("Psend", s.send.Wait) }

// Free releases the send (MPI_Request_free). It returns ErrActive while a round is active.
func (s *PartitionedSend) Free() error { return s.what.freed(s.send.Free()) }

// freed records that the program has freed a partitioned transfer, unless that failed.
func (t transfer) freed(err error) error {
	if err == nil {
		t.comm.core.Occupy(-1)
	}
	return t.inPartitioned("Free", err)
}

// PartitionedRecv is the receiving end of a partitioned transfer. It is inactive until Start, and
// after its completion. Safe for concurrent use.
type PartitionedRecv struct {
	what transfer
	recv *partitioned.Recv
}

// PrecvInit prepares to receive from rank src into buf, which has partitions equal parts
// (MPI_Precv_init; MPI-4.1, section 4.2.1). Wildcards are not permitted. The sender may have a
// different number of partitions, and fewer elements; more cause ErrTruncate. It does not block.
// Free it at the end.
func PrecvInit[T Elem](comm *Comm, buf []T, partitions, src, tag int) (*PartitionedRecv, error) {
	return comm.PrecvInit(PartOf(buf), partitions, src, tag)
}

// PrecvInit is the package's PrecvInit into a Part.
func (c *Comm) PrecvInit(p Part, partitions, src, tag int) (*PartitionedRecv, error) {
	err := c.core.CheckSend(src, tag) // no wildcards
	r := &PartitionedRecv{what: transfer{comm: c, peer: src, tag: tag, elem: 1}}
	if err == nil {
		r.recv, err = partitioned.NewRecv(c.partition(r.what, src), p.p, partitions)
	}
	if err != nil {
		return nil, c.called("PrecvInit", err)
	}
	c.core.Occupy(1)
	return r, nil
}

// Start begins a round (MPI_Start): the request owns the buffer until the round is over. It returns
// ErrActive if the previous round is not over.
func (r *PartitionedRecv) Start() error { return r.what.inPartitioned("Start", r.recv.Start()) }

// Parrived reports whether the receiver's partition i has arrived: then its elements may be read
// (MPI_Parrived; MPI-4.1, section 4.2.3). For an inactive request it returns true.
func (r *PartitionedRecv) Parrived(i int) (bool, error) {
	if err := r.what.comm.world.unreplicated(reasonPartitions); err != nil {
		return false, r.what.inPartitioned("Parrived", err)
	}
	has, err := r.recv.Parrived(i)
	return has, r.what.inPartitioned("Parrived", err)
}

// Wait returns when the whole message has arrived, after which the request is inactive; at once for
// an inactive one, with the empty status. If ctx is done before, it returns ctx's error and the
// round continues.
func (r *PartitionedRecv) Wait(ctx context.Context) (Status, error) {
	st, err := r.recv.Wait(ctx)
	return statusOf(st), r.what.inPartitioned("Wait", err)
}

// Test reports whether Wait would return at once, and if so its result (MPI_Test).
func (r *PartitionedRecv) Test() (st Status, done bool, err error) {
	if err := r.what.comm.world.unreplicated(reasonPartitions); err != nil {
		return Status{}, false, r.what.inPartitioned("Test", err)
	}
	got, done, err := r.recv.Test()
	return statusOf(got), done, r.what.inPartitioned("Wait", err)
}

// Request is PartitionedSend.Request for a receive. Once it is complete, all partitions count as arrived.
func (r *PartitionedRecv) Request() *Request { return r.what.background("Precv", r.recv.Wait) }

// Free releases the receive (MPI_Request_free). It returns ErrActive while a round is active. A
// send that it has not matched yet still matches it, and no other receive.
func (r *PartitionedRecv) Free() error { return r.what.freed(r.recv.Free()) }
