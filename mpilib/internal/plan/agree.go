package plan

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/collectives/operation"
	"github.com/isthmus-grid/isthmus/mpilib/internal/buffer"
	"github.com/isthmus-grid/isthmus/mpilib/internal/coll"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
	"github.com/isthmus-grid/isthmus/mpilib/internal/place"
	"github.com/isthmus-grid/isthmus/overlay"
)

// opening is what a rank sends to all others at the first call.
type opening struct {
	Place  place.Record
	Orders uint32 // size of rank 0's orders in bytes
}

// maxOrders bounds the orders, in bytes.
const maxOrders = 1 << 20

// agree makes p's state equal on all ranks, starting from before or, if it is nil, from nothing,
// and lets them look for a shared buffer if that is due. All ranks make the call.
func agree(ctx context.Context, c Call, p *Plan, before *snapshot, b *SharedBuffer) (*snapshot, *SharedBuffer, error) {
	comm := p.comm
	o, err := before, error(nil)
	switch {
	case o != nil:
	case comm.Config().Here().Name == "":
		o = unplaced(comm, p.hint)
	default:
		if o, err = exchangePlaces(ctx, c, comm); err == nil {
			o = o.withHint(p.hint)
		}
	}
	switch {
	case err != nil || comm.Config().Replicated:
	case o.spansSites():
		o, err = compare(ctx, c, comm, o)
	case b == nil && (c.Number() > SharedBufferAfter || wantsSharedBuffer(comm, o)):
		b, err = findSharedBuffer(ctx, c, comm, o)
	}
	return o, b, err
}

// exchangePlaces exchanges the locations of all ranks, and rank 0's orders.
func exchangePlaces(ctx context.Context, c Call, comm Comm) (*snapshot, error) {
	mine := opening{Place: place.RecordOf(comm.Config().Here())}
	orders := comm.Config().Orders.encoded()
	if c.Rank() == 0 {
		mine.Orders = uint32(len(orders))
	}
	all, err := coll.Allgather(ctx, c, c.Size(), mine)
	if err != nil {
		return nil, err
	}
	o := &snapshot{places: make([]overlay.NodeID, len(all))}
	for r := range all {
		if o.places[r], err = all[r].Place.Place(); err != nil {
			return nil, fmt.Errorf("the place of rank %d: %w", r, err)
		}
	}
	if n := all[0].Orders; n > maxOrders {
		return nil, fmt.Errorf("%w: %d bytes of orders, at most %d are possible", mpi.ErrMismatch, n, maxOrders)
	} else if n == 0 {
		return o, nil
	}
	if c.Rank() != 0 {
		orders = make([]byte, all[0].Orders)
	}
	if err := coll.Bcast(ctx, c, orders, 0); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(orders, &o.orders); err != nil {
		return nil, fmt.Errorf("%w: the orders of rank 0: %w", mpi.ErrMismatch, err)
	}
	return o, nil
}

// compare exchanges the measurements of all ranks' links between sites: a record for each pair, in
// the order of the sites.
func compare(ctx context.Context, c Call, comm Comm, o *snapshot) (*snapshot, error) {
	p, err := o.planner(comm)
	if err != nil {
		return nil, err
	}
	c.UsePlanner(p)
	names, _ := o.sites()
	mine, all := make([]pathRecord, len(names)*len(names)), make([]pathRecord, len(names)*len(names))
	known := measured(comm, o)
	for i, from := range names {
		for k, to := range names {
			mine[i*len(names)+k] = known[sitePair{from, to}]
		}
	}
	s, to, _, err := buffer.Views(mine, all)
	if err != nil {
		return nil, err
	}
	better, err := coll.Op("better", true, func(inout, in []pathRecord) {
		for i := range inout {
			inout[i] = inout[i].with(in[i])
		}
	})
	if err != nil {
		return nil, err
	}
	alg, err := collectives.Find(operation.Allreduce, "two-level") // one message between each two sites
	if err == nil {
		err = alg.Run(ctx, c, &collectives.Args{Send: s, Recv: to, Op: better})
	}
	if err != nil {
		return nil, err
	}
	paths := map[sitePair]pathRecord{}
	for i, from := range names {
		for k, to := range names {
			if r := all[i*len(names)+k]; r != (pathRecord{}) {
				paths[sitePair{from, to}] = r
			}
		}
	}
	return o.withPaths(paths), nil
}
