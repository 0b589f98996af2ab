package partitioned

import (
	"context"
	"errors"
	"fmt"

	"github.com/isthmus-grid/isthmus/mpilib/internal/buffer"
	"github.com/isthmus-grid/isthmus/mpilib/internal/datatype"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
)

// Recv is the receiving end of a partitioned transfer. It is inactive until Start, and after its
// completion. Safe for concurrent use.
type Recv struct {
	partitions
	offered *engine.Handle // of the sender's offer
	offers  []offer        // the only one; the offer is valid once offered is complete
	staged  []byte         // the packed message, if the Part is not contiguous

	round
	waits  bool   // a goroutine waits for the offer
	posted bool   // the round's receives are posted
	landed []bool // by partition of the sender: copied from staged
	fault  error  // of the offer
}

// NewRecv prepares to receive into p, which is divided into n equal parts.
func NewRecv(t Transfer, p buffer.Part, n int) (*Recv, error) {
	parts, err := newPartitions(t, p, n)
	if err != nil {
		return nil, err
	}
	r := &Recv{partitions: parts, offers: make([]offer, 1)}
	if p.Pieces {
		r.staged = make([]byte, p.Size)
	}
	if !r.Null {
		b, err := buffer.View(r.offers)
		if err != nil {
			return nil, err
		}
		r.offered = new(engine.Handle)
		r.Engine.StartRecv(r.offered, r.Group, r.Offers, r.Peer, r.Tag, b)
	}
	return r, nil
}

// Start begins a round (MPI_Start): the request owns the buffer until the round is over. It returns
// ErrActive if the previous round is not over.
func (r *Recv) Start() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.start(); err != nil {
		return err
	}
	r.posted = false
	if r.Null {
		return nil
	}
	if r.offered.Done() {
		r.post()
	} else if !r.waits { // the program may compute until all has arrived
		r.waits = r.Transfer.Start(r.awaitOffer)
	}
	return nil
}

// awaitOffer posts the first round's receives when the offer arrives. It also ends with the world.
func (r *Recv) awaitOffer() {
	<-r.offered.Finished()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waits = false
	r.post()
}

// post posts the round's receives, or sets the error if it cannot; the offer has arrived. mu is
// held.
func (r *Recv) post() {
	if !r.active || r.posted {
		return
	}
	r.posted = true
	if r.fault = r.judge(); r.fault != nil {
		return
	}
	o, to := r.offers[0], r.part.Message
	if r.part.Pieces {
		to = r.staged
	}
	r.moving, r.landed = make([]*engine.Handle, o.Partitions), make([]bool, o.Partitions)
	handles := make([]engine.Handle, o.Partitions)
	for i := range r.moving {
		r.moving[i] = &handles[i]
		r.Engine.StartRecv(r.moving[i], r.Group, r.Parts, r.Peer, int(o.Tag)+i, to[i*o.each():][:o.each()])
	}
}

// judge returns why the offer does not match, or nil.
func (r *Recv) judge() error {
	got, err := r.offered.Result()
	o := r.offers[0]
	size, _ := buffer.Size[offer]()
	switch {
	case err != nil:
		return err
	case int(got.Bytes) != size:
		return fmt.Errorf("%w: the sender's offer has %d bytes, want %d", mpi.ErrCount, got.Bytes, size)
	case o.valid() != nil:
		return o.valid()
	case o.Bytes > int64(r.part.Size):
		return fmt.Errorf("%w: the sender has %d bytes, the buffer %d", mpi.ErrTruncate, o.Bytes, r.part.Size)
	case r.Signs:
		return r.part.Matches(datatype.Signature(o.Types))
	}
	return nil
}

// Parrived reports whether the receiver's partition i has arrived: then its elements may be read
// (MPI_Parrived; MPI-4.1, section 4.2.3). For an inactive request it returns true.
func (r *Recv) Parrived(i int) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.check(i, true); err != nil {
		return false, err
	}
	if !r.active || r.Null {
		return true, nil
	}
	if !r.offered.Done() {
		return false, nil
	}
	r.post()
	if r.fault != nil {
		return false, r.fault
	}
	first, last := r.overlap(i)
	for j := first; j < last; j++ {
		if !r.moving[j].Done() {
			return false, nil
		}
		if err := r.land(j); err != nil {
			return false, err
		}
	}
	return true, nil
}

// overlap returns the sender's partitions that overlap partition i; all of them if i is empty. mu
// is held.
func (r *Recv) overlap(i int) (first, last int) {
	each, low := r.offers[0].each(), i*r.each
	high := min(low+r.each, int(r.offers[0].Bytes))
	if low >= high {
		return 0, len(r.moving)
	}
	return low / each, (high-1)/each + 1
}

// land copies the sender's partition j, which has arrived, to its place. mu is held.
func (r *Recv) land(j int) error {
	got, err := r.moving[j].Result()
	each := r.offers[0].each()
	if err == nil && int(got.Bytes) != each {
		err = fmt.Errorf("%w: it has %d bytes, %d were offered", mpi.ErrCount, got.Bytes, each)
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

// Wait returns when the whole message has arrived, after which the request is inactive; at once for
// an inactive one, with the empty status. If ctx is done before, it returns ctx's error and the
// round continues.
func (r *Recv) Wait(ctx context.Context) (Status, error) {
	if moving, open := r.postedReceives(); open && moving == nil {
		if err := r.awaitEach(ctx, []*engine.Handle{r.offered}); err != nil {
			return emptyStatus, fmt.Errorf("no matching PsendInit yet: %w", err)
		}
	}
	moving, _ := r.postedReceives()
	if err := r.awaitEach(ctx, moving); err != nil {
		return emptyStatus, err
	}
	return r.endRound()
}

// postedReceives returns the receives of the round, if they are posted, and whether there is a round that
// receives anything.
func (r *Recv) postedReceives() (moving []*engine.Handle, open bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.active || r.Null {
		return nil, false
	}
	if r.offered.Done() {
		r.post()
	}
	if !r.posted || r.fault != nil {
		return nil, true
	}
	return r.moving, true
}

// Test reports whether Wait would return at once, and if so its result (MPI_Test).
func (r *Recv) Test() (st Status, done bool, err error) {
	moving, open := r.postedReceives()
	if open && (!r.offered.Done() || !eachDone(moving)) {
		return Status{}, false, nil
	}
	st, err = r.endRound()
	return st, true, err
}

// endRound ends a round whose transfers are complete.
func (r *Recv) endRound() (Status, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !r.active:
		return emptyStatus, nil
	case r.Null:
		r.active = false
		return nullStatus, nil
	case r.fault != nil:
		r.active = false
		return emptyStatus, r.fault
	}
	r.active = false
	var errs []error
	for j := range r.moving {
		errs = append(errs, r.land(j))
	}
	n := int(r.offers[0].Bytes)
	count, err := r.part.Counted(n)
	return Status{Source: r.Source, Tag: r.Tag, Count: count, Bytes: n}, errors.Join(append(errs, err)...)
}
