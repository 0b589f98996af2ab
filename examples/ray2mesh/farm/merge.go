package farm

import (
	"context"

	"github.com/isthmus-grid/isthmus/mpilib"
)

// merge is the third phase: all learn what the master has seen, and of the mesh
// each rank gets a part, to which all ranks have added theirs.
func (f *farm) merge(ctx context.Context, o *outcome) (err error) {
	if f.comm.Rank() == 0 {
		if o.summary, err = f.ledger.sum(); err != nil {
			return err
		}
	}
	seen := []summary{o.summary}
	if err := mpilib.Bcast(ctx, f.comm, seen, 0); err != nil {
		return err
	}
	o.summary = seen[0]
	first, part, err := f.exchange(ctx)
	if err != nil {
		return err
	}
	sums := []uint64{checksumOf(first, part)}
	if err := mpilib.Allreduce(ctx, f.comm, sums, sums, mpilib.Sum); err != nil {
		return err
	}
	o.mesh = sums[0]
	return nil
}

// exchange returns this rank's part of the mesh, added up over all ranks, and its
// first cell.
func (f *farm) exchange(ctx context.Context) (first int, part []int64, err error) {
	ranks, rank, cells := f.comm.Size(), f.comm.Rank(), len(f.tracer.mesh)
	begin := func(r int) int { return r * cells / ranks }
	own := begin(rank+1) - begin(rank)
	sizes, places := make([]int, ranks), make([]int, ranks)
	receive, at := make([]int, ranks), make([]int, ranks)
	for r := range ranks {
		places[r], sizes[r] = begin(r), begin(r+1)-begin(r)
		receive[r], at[r] = own, r*own
	}
	all := make([]int64, ranks*own)
	if err := mpilib.Alltoallv(ctx, f.comm, f.tracer.mesh, sizes, places, all, receive, at); err != nil {
		return 0, nil, err
	}
	part = make([]int64, own)
	for i, length := range all {
		part[i%own] += length
	}
	return begin(rank), part, nil
}
