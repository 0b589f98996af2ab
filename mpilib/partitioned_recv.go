package mpilib

import (
	"context"
	"errors"
	"fmt"

	"github.com/isthmus-grid/isthmus/mpilib/internal/buffer"
	"github.com/isthmus-grid/isthmus/mpilib/internal/datatype"
)

// PartitionedRecv is the receiving end of a partitioned transfer. It is inactive until
// Start, and from its completion on. Safe for concurrent use.
type PartitionedRecv struct {
	partitions
	offered *Request         // of the sender's offer
	told    []partitionOffer // one; the offer once offered is complete
	staged  []byte           // the message, where the Part is in pieces

	partitionRound
	waits  bool   // a goroutine waits for the offer
	posted bool   // the round's receives are
	landed []bool // by partition of the sender: taken from staged
	fault  error  // of the offer
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
	r, err := c.precvInit(p.p, partitions, src, tag)
	if err != nil {
		return nil, c.called("PrecvInit", err)
	}
	return r, nil
}

func (c *Comm) precvInit(p buffer.Part, n, src, tag int) (*PartitionedRecv, error) {
	if err := c.checkSend(src, tag); err != nil { // no wildcards
		return nil, err
	}
	what := transfer{comm: c, peer: src, tag: tag, elem: 1}
	parts, err := newPartitions(what, p, n)
	if err != nil {
		return nil, err
	}
	r := &PartitionedRecv{partitions: parts, told: make([]partitionOffer, 1)}
	if p.Pieces {
		r.staged = make([]byte, p.Size)
	}
	if !r.null() {
		b, err := buffer.View(r.told)
		if err != nil {
			return nil, err
		}
		r.offered = newRequest(what)
		c.world.engine.StartRecv(&r.offered.core, what.parties(), c.context+offerContext, c.global(src), tag, b)
	}
	c.occupy(1)
	return r, nil
}

// Start begins a round (MPI_Start): the buffer is the request's until it is over. It
// returns ErrActive if the round before is not.
func (r *PartitionedRecv) Start() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.start(); err != nil {
		return r.called("Start", err)
	}
	r.posted = false
	if r.null() {
		return nil
	}
	if r.offered.core.Done() {
		r.post()
	} else if !r.waits { // the program may compute until all has come
		r.waits = r.comm().world.comms.start(r.awaitOffer)
	}
	return nil
}

// awaitOffer posts the first round's receives when the offer is here. It ends, too,
// when the world does.
func (r *PartitionedRecv) awaitOffer() {
	<-r.offered.core.Finished()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waits = false
	r.post()
}

// post posts the round's receives, or finds out why it cannot; the offer is here. mu is
// held.
func (r *PartitionedRecv) post() {
	if !r.active || r.posted {
		return
	}
	r.posted = true
	if r.fault = r.judge(); r.fault != nil {
		return
	}
	o, to := r.told[0], r.part.Message
	if r.part.Pieces {
		to = r.staged
	}
	r.moving, r.landed = make([]*Request, o.Partitions), make([]bool, o.Partitions)
	for i := range r.moving {
		r.moving[i] = r.transfer(int(o.Tag)+i, to[i*o.each():][:o.each()])
	}
}

// judge says why the offer cannot be taken.
func (r *PartitionedRecv) judge() error {
	st, err := r.offered.status()
	o := r.told[0]
	size, _ := buffer.Size[partitionOffer]()
	switch {
	case err != nil:
		return err
	case st.Bytes != size:
		return fmt.Errorf("%w: the sender's offer has %d bytes, want %d", ErrCount, st.Bytes, size)
	case o.valid() != nil:
		return o.valid()
	case o.Bytes > int64(r.part.Size):
		return fmt.Errorf("%w: the sender has %d bytes, the buffer %d", ErrTruncate, o.Bytes, r.part.Size)
	case r.comm().signs():
		return r.part.Matches(datatype.Signature(o.Types))
	}
	return nil
}

// Parrived reports whether partition i of the receiver's has arrived: then its elements
// may be read (MPI_Parrived; MPI-4.1, section 4.2.3). Of an inactive request all have.
func (r *PartitionedRecv) Parrived(i int) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.check(i, true); err != nil {
		return false, r.called("Parrived", err)
	}
	if !r.active || r.null() {
		return true, nil
	}
	if !r.offered.core.Done() {
		return false, nil
	}
	r.post()
	if r.fault != nil {
		return false, r.called("Parrived", r.fault)
	}
	first, last := r.overlap(i)
	for j := first; j < last; j++ {
		if !r.moving[j].core.Done() {
			return false, nil
		}
		if err := r.land(j); err != nil {
			return false, r.called("Parrived", err)
		}
	}
	return true, nil
}

// overlap returns which of the sender's partitions have something for partition i; all
// of them when i has nothing to receive. mu is held.
func (r *PartitionedRecv) overlap(i int) (first, last int) {
	each, low := r.told[0].each(), i*r.each
	high := min(low+r.each, int(r.told[0].Bytes))
	if low >= high {
		return 0, len(r.moving)
	}
	return low / each, (high-1)/each + 1
}

// land puts partition j of the sender's, which has arrived, where it belongs. mu is
// held.
func (r *PartitionedRecv) land(j int) error {
	st, err := r.moving[j].status()
	each := r.told[0].each()
	if err == nil && st.Bytes != each {
		err = fmt.Errorf("%w: it has %d bytes, %d were offered", ErrCount, st.Bytes, each)
	}
	if err != nil {
		return fmt.Errorf("partition %d of the sender's: %w", j, err)
	}
	if !r.landed[j] && r.part.Pieces {
		r.part.Scatter(r.staged[j*each:][:each], j*each)
	}
	r.landed[j] = true
	return nil
}

// Wait returns when all of the message is here, after which the request is inactive; at
// once for an inactive one, with the empty status. When ctx is done before, it returns
// ctx's error and the round goes on.
func (r *PartitionedRecv) Wait(ctx context.Context) (Status, error) {
	if moving, open := r.begun(); open && moving == nil {
		if err := awaitEach(ctx, []*Request{r.offered}); err != nil {
			return emptyStatus, r.called("Wait", fmt.Errorf("no matching PsendInit yet: %w", err))
		}
	}
	moving, _ := r.begun()
	if err := awaitEach(ctx, moving); err != nil {
		return emptyStatus, r.called("Wait", err)
	}
	return r.over()
}

// begun returns the receives of the round, if they are posted, and whether there is a
// round that receives anything.
func (r *PartitionedRecv) begun() (moving []*Request, open bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.active || r.null() {
		return nil, false
	}
	if r.offered.core.Done() {
		r.post()
	}
	if !r.posted || r.fault != nil {
		return nil, true
	}
	return r.moving, true
}

// Test says whether Wait would return at once, and if so what (MPI_Test).
func (r *PartitionedRecv) Test() (st Status, done bool, err error) {
	moving, open := r.begun()
	if open && (!r.offered.core.Done() || !eachDone(moving)) {
		return Status{}, false, nil
	}
	st, err = r.over()
	return st, true, err
}

// over ends a round whose transfers are complete.
func (r *PartitionedRecv) over() (Status, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !r.active:
		return emptyStatus, nil
	case r.null():
		r.active = false
		return nullStatus, nil
	case r.fault != nil:
		r.active = false
		return emptyStatus, r.called("Wait", r.fault)
	}
	r.active = false
	var errs []error
	for j := range r.moving {
		errs = append(errs, r.land(j))
	}
	n := int(r.told[0].Bytes)
	count, err := r.part.Counted(n)
	return Status{Source: r.what.peer, Tag: r.what.tag, Count: count, Bytes: n}, r.called("Wait", errors.Join(append(errs, err)...))
}

// Free says that the program will not start the receive again (MPI_Request_free). It
// returns ErrActive while a round is under way. A send that it has not met yet still
// meets it, and no other.
func (r *PartitionedRecv) Free() error { return r.called("Free", r.free(r.comm())) }
