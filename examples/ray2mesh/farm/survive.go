package farm

import (
	"context"
	"errors"
	"fmt"

	"github.com/isthmus-grid/isthmus/mpilib"
)

// What a rank has traced it keeps, the arrivals as well as what they add to the mesh.
// So with a process, whichever, there dies what it has traced and nothing else. Those that are
// left give each other roles again, the first is master, tell that one what they have, and it
// deals what is missing. No death needs to be told from another, and none is too many while
// two are left.

// isLoss reports whether an error comes of a rank that has died, or left, or of what
// others do about it.
func isLoss(err error) bool {
	return errors.Is(err, mpilib.ErrProcFailed) || errors.Is(err, mpilib.ErrRevoked) || errors.Is(err, mpilib.ErrFinalized)
}

// attempt has all ranks do something together, with those that are left when some die
// meanwhile, until all that live have done it. Where ranks have replicas these go on in the place of those that die, and the
// job ends with a rank that has lost all of them.
func (f *farm) attempt(ctx context.Context, do func() error) error {
	if f.comm.World().Replicas() > 1 {
		return do()
	}
	for {
		err := do()
		if err != nil && !isLoss(err) {
			return err
		}
		agreed, lossErr := f.agree(ctx, err == nil)
		if agreed {
			return nil
		}
		if lossErr == nil {
			lossErr = f.shrink(ctx)
		}
		if lossErr != nil {
			return errors.Join(err, lossErr)
		}
	}
}

// agree reports whether all ranks have done it and live.
func (f *farm) agree(ctx context.Context, done bool) (bool, error) {
	all := uint64(1)
	if !done {
		all = 0
		for _, c := range []*mpilib.Comm{f.comm, f.upper, f.lower} {
			if c != nil {
				c.Revoke() // so that no rank waits for this one; it fails only on one that was freed
			}
		}
	}
	all, err := f.comm.Agree(ctx, all)
	if err != nil && !errors.Is(err, mpilib.ErrProcFailed) {
		return false, err
	}
	return err == nil && all == 1, nil
}

// shrink goes on with those that are left.
func (f *farm) shrink(ctx context.Context) error {
	left, err := f.comm.Shrink(ctx)
	if err != nil {
		return err
	}
	gone := f.comm.Size() - left.Size()
	f.orphaned = append(f.orphaned, left)
	if f.lost += gone; gone == 0 {
		return errors.New("all ranks live, but do not get on")
	}
	if err := f.move(left); err != nil {
		return fmt.Errorf("%d ranks have died: %w", f.lost, err)
	}
	return nil
}

// move has the farm be that of another communicator's ranks.
func (f *farm) move(comm *mpilib.Comm) error {
	if f.comm == comm {
		return nil
	}
	f.part()
	f.comm = comm
	return f.assign()
}

// close frees what the farm has made. Others that have moved there are done.
func (f *farm) close() {
	f.part()
	for _, c := range f.orphaned {
		c.Free() // fails only when it was freed before
	}
}

// collectProgress has the master know what all have traced before.
func (f *farm) collectProgress(ctx context.Context) error {
	if f.comm.Rank() == 0 {
		f.ledger = newLedger(f.rays)
	}
	if f.lost == 0 {
		return nil
	}
	ranks, own := f.comm.Size(), f.tracer.traced
	counts, at := make([]int, ranks), make([]int, ranks)
	if err := mpilib.Gather(ctx, f.comm, []int{len(own)}, counts, 0); err != nil {
		return err
	}
	total := 0
	for r, n := range counts {
		at[r], total = total, total+n
	}
	all := make([]arrival, total)
	if err := mpilib.Gatherv(ctx, f.comm, own, all, counts, at, 0); err != nil {
		return err
	}
	if f.comm.Rank() == 0 {
		return f.ledger.enter(all)
	}
	return nil
}

// handle counts a chunk.
func (f *farm) handle() {
	f.handled++
	if f.fault != nil {
		f.fault(f.handled)
	}
}
