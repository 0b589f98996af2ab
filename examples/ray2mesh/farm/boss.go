package farm

import (
	"context"
	"fmt"
	"slices"

	"github.com/isthmus-grid/isthmus/mpilib"
)

// A batch is a big chunk that a boss has been dealt, and its results so far.
type batch struct {
	chunk
	arrivals []arrival
}

// batches are those that are not done, at most as many as a boss has credits.
type batches []*batch

// enter puts arrivals, all of one batch, where they belong. If that batch is done
// with them it is taken out and returned, by number of ray.
func (b *batches) enter(arrivals []arrival) (done *batch, err error) {
	i := slices.IndexFunc(*b, func(b *batch) bool {
		ray := arrivals[0].Ray
		return ray >= b.First && ray < b.First+b.Count
	})
	if i < 0 {
		return nil, fmt.Errorf("ray %d is of no chunk that is not done", arrivals[0].Ray)
	}
	at := (*b)[i]
	at.arrivals = append(at.arrivals, arrivals...)
	if int64(len(at.arrivals)) < at.Count {
		return nil, nil
	}
	*b = slices.Delete(*b, i, i+1)
	slices.SortFunc(at.arrivals, func(a, b arrival) int { return int(a.Ray - b.Ray) })
	return at, nil
}

// bossState is a boss between the master and its workers.
type bossState struct {
	*dealer
	above   *mpilib.Comm
	open    batches
	endings int             // times that it has been told "no more"
	got     [1]chunk        // what the receive from above fills
	up      *mpilib.Request // receives from above; nil when all has arrived
	down    *mpilib.Request // receives from below; nil when the buffer is in use, or nothing will come
}

// pass is a boss: it deals what it is dealt, and answers a big chunk when all
// parts of it are answered.
func (f *farm) pass(ctx context.Context) (dealt, error) {
	b := &bossState{dealer: f.newDealer(f.lower, func(int) int64 { return f.chunk }), above: f.upper}
	for range bossesCredit {
		if err := mpilib.Send(ctx, b.above, []arrival{}, 0, tagResult); err != nil {
			return b.dealt, err
		}
	}
	b.up = mpilib.Irecv(b.above, b.got[:], 0, tagChunk)
	for b.left > 0 {
		if err := b.handleOne(ctx); err != nil {
			return b.dealt, err
		}
	}
	return b.dealt, nil
}

// handleOne waits for one message, from above or from below, and does what follows.
func (b *bossState) handleOne(ctx context.Context) error {
	if b.down == nil && b.due > 0 { // a receive of nothing would match what belongs to another run
		b.down = mpilib.Irecv(b.comm, b.buf, mpilib.AnySource, tagResult)
	}
	i, st, err := mpilib.Waitany(ctx, b.up, b.down)
	if err != nil {
		return err
	}
	if i == 0 {
		b.dealtTo()
	} else {
		b.down = nil
		err = b.answer(ctx, st)
	}
	if err != nil {
		return err
	}
	return b.deal(ctx)
}

// dealtTo records the chunk received from above.
func (b *bossState) dealtTo() {
	if c := b.got[0]; c.Count > 0 {
		b.queue.put(c)
		b.open = append(b.open, &batch{chunk: c})
	} else {
		b.endings++
	}
	b.up = nil
	if b.endings < bossesCredit {
		b.up = mpilib.Irecv(b.above, b.got[:], 0, tagChunk)
		return
	}
	b.queue.close()
}

// answer records a worker's results, and passes a big chunk's results on.
func (b *bossState) answer(ctx context.Context, st mpilib.Status) error {
	n, err := mpilib.GetCount[arrival](st)
	if err != nil {
		return err
	}
	arrivals, err := b.heard(ctx, st.Source, n)
	if err != nil || n == 0 {
		return err
	}
	done, err := b.open.enter(arrivals)
	if err != nil || done == nil {
		return err
	}
	return mpilib.Send(ctx, b.above, done.arrivals, 0, tagResult)
}
