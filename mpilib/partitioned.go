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

// MaxPartitions is how many partitions a message may have.
const MaxPartitions = partitioned.MaxPartitions

// ErrInactive is that of giving away a partition of a send that was not started.
var ErrInactive = mpi.ErrInactive

// tagsOf returns the first of n tags in a row that no other partitioned send of this
// process on c has had. None is used twice: a receiver may start its requests in
// another order than that of the messages.
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

// partition is a partitioned transfer, for package partitioned, with the sender's rank.
func (c *Comm) partition(what transfer, source int) partitioned.Transfer {
	return partitioned.Transfer{
		Engine: c.world.engine, Group: what.parties(), Offers: c.core.Context + comm.Offers, Parts: c.core.Context + comm.Partitions,
		Peer: c.core.Global(what.peer), Source: source, Tag: what.tag, Null: what.peer == ProcNull, Signs: c.signs(),
		Tags: c.tagsOf, Start: c.world.comms.start,
		Wait: func(ctx context.Context, h *engine.Handle) error { return waitPartition(ctx, what, h) },
	}
}

// waitPartition waits for a transfer that no Request is of, and gives it not up.
func waitPartition(ctx context.Context, what transfer, h *engine.Handle) (err error) {
	if w := what.comm.world.watch; w == nil {
		_, err = engine.WaitAnyHandle(ctx, []*engine.Handle{h}, -1)
	} else {
		_, err = w.WaitAny(ctx, []debug.Request{watchedPartition{h, what}}, []*engine.Handle{h})
	}
	if err != nil {
		return fmt.Errorf("mpilib: waiting for any of 1 requests: %w", err)
	}
	return nil
}

// watchedPartition is a transfer that no Request is of, as a watcher sees it.
type watchedPartition struct {
	handle *engine.Handle
	what   transfer
}

func (p watchedPartition) Handle() *engine.Handle    { return p.handle }
func (p watchedPartition) Transfer() debug.Transfer  { return p.what.watched() }
func (p watchedPartition) Sighting() *debug.Sighting { return new(debug.Sighting) } // of nothing
func (p watchedPartition) See(*debug.Sighting)       {}

// inPartitioned says in which call of which transfer err came up, and has the error
// handler see it.
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

// PartitionedSend is the sending end of a partitioned transfer. It is inactive until
// Start, and from its completion on. Safe for concurrent use: partitions may be given
// away by different goroutines.
type PartitionedSend struct {
	what transfer
	send *partitioned.Send
}

// PsendInit prepares to send buf to rank dst in partitions equal parts (MPI_Psend_init;
// MPI-4.1, section 4.2.1). It is matched, once, by a PrecvInit there with this rank as
// source, the same tag and communicator, in the order of the calls; no other receive
// matches it. It does not wait. Free it in the end.
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
	c.occupy(1)
	return s, nil
}

// Start begins a round (MPI_Start): from now on partitions may be given away. None of
// them is sent by this. It returns ErrActive if the round before is not over.
func (s *PartitionedSend) Start() error { return s.what.inPartitioned("Start", s.send.Start()) }

// Pready gives partition i away (MPI_Pready; MPI-4.1, section 4.2.2): its elements must
// not change until the round is over. It does not wait. Each partition is given away
// once in a round.
func (s *PartitionedSend) Pready(i int) error {
	return s.what.inPartitioned("Pready", s.send.Pready(i))
}

// PreadyRange gives the partitions low to high, high included, away (MPI_Pready_range;
// MPI-4.1, section 4.2.2).
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

// PreadyList gives the listed partitions away (MPI_Pready_list; MPI-4.1, section
// 4.2.2).
func (s *PartitionedSend) PreadyList(partitions []int) error {
	for _, i := range partitions {
		if err := s.Pready(i); err != nil {
			return err
		}
	}
	return nil
}

// Wait returns when all partitions were given away and the buffer is the program's
// again, after which the request is inactive; at once for an inactive one, with the
// empty status. When ctx is done before, it returns ctx's error and the round goes on.
func (s *PartitionedSend) Wait(ctx context.Context) (Status, error) {
	st, err := s.send.Wait(ctx)
	return statusOf(st), s.what.inPartitioned("Wait", err)
}

// Test says whether Wait would return at once, and if so what (MPI_Test).
func (s *PartitionedSend) Test() (st Status, done bool, err error) {
	got, done, err := s.send.Test()
	return statusOf(got), done, s.what.inPartitioned("Wait", err)
}

// Free says that the program will not start the send again (MPI_Request_free). It
// returns ErrActive while a round is under way.
func (s *PartitionedSend) Free() error { return s.what.freed(s.send.Free()) }

// freed notes that the program will not start a partitioned transfer again, unless that
// failed.
func (t transfer) freed(err error) error {
	if err == nil {
		t.comm.occupy(-1)
	}
	return t.inPartitioned("Free", err)
}

// PartitionedRecv is the receiving end of a partitioned transfer. It is inactive until
// Start, and from its completion on. Safe for concurrent use.
type PartitionedRecv struct {
	what transfer
	recv *partitioned.Recv
}

// PrecvInit prepares to receive from rank src into buf, which has partitions equal
// parts (MPI_Precv_init; MPI-4.1, section 4.2.1). Neither wildcard is possible. The
// sender may have another number of partitions, and fewer elements; more are
// ErrTruncate. It does not wait. Free it in the end.
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
	c.occupy(1)
	return r, nil
}

// Start begins a round (MPI_Start): the buffer is the request's until it is over. It
// returns ErrActive if the round before is not.
func (r *PartitionedRecv) Start() error { return r.what.inPartitioned("Start", r.recv.Start()) }

// Parrived reports whether partition i of the receiver's has arrived: then its elements
// may be read (MPI_Parrived; MPI-4.1, section 4.2.3). Of an inactive request all have.
func (r *PartitionedRecv) Parrived(i int) (bool, error) {
	has, err := r.recv.Parrived(i)
	return has, r.what.inPartitioned("Parrived", err)
}

// Wait returns when all of the message is here, after which the request is inactive; at
// once for an inactive one, with the empty status. When ctx is done before, it returns
// ctx's error and the round goes on.
func (r *PartitionedRecv) Wait(ctx context.Context) (Status, error) {
	st, err := r.recv.Wait(ctx)
	return statusOf(st), r.what.inPartitioned("Wait", err)
}

// Test says whether Wait would return at once, and if so what (MPI_Test).
func (r *PartitionedRecv) Test() (st Status, done bool, err error) {
	got, done, err := r.recv.Test()
	return statusOf(got), done, r.what.inPartitioned("Wait", err)
}

// Free says that the program will not start the receive again (MPI_Request_free). It
// returns ErrActive while a round is under way. A send that it has not met yet still
// meets it, and no other.
func (r *PartitionedRecv) Free() error { return r.what.freed(r.recv.Free()) }
