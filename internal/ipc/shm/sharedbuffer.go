package shm

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"
)

const (
	// MaxSharedBufferRanks is how many processes may share a shared buffer.
	MaxSharedBufferRanks = 64

	// SharedBufferPiece is how many bytes a process may post at a time.
	SharedBufferPiece = 64 << 10

	sharedBufferCells  = 64  // posts of a process that stay readable at the same time
	sharedBufferPieces = 4   // of which so many may be long: more than postedShort bytes
	postedShort        = 112 // bytes that a cell holds itself, which move with its stamp
)

// ErrPassed is in the error of [SharedBuffer.Read] when the process that is waited for has gone on
// without posting.
var ErrPassed = errors.New("it has gone on to a later step")

// post announces what a process has posted.
type post struct {
	stamp atomic.Uint64
	size  uint32
	piece uint32 // where it is long
	short [postedShort]byte
}

// poster is what one process writes of the shared buffer, beside its pieces, and the word by which
// the others wake it.
type poster struct {
	at     atomic.Uint64 // its last stamp: it reads nothing any more that bears an earlier one
	_      [apart - 8]byte
	sleeps atomic.Uint32 // set by the process, cleared by all
	_      [apart - 4]byte
	posts  [sharedBufferCells]post
}

const (
	posterBytes       = 3 * page // at least a poster's size
	sharedBufferShare = posterBytes + sharedBufferPieces*SharedBufferPiece
)

// sharedBufferSize is the size of the segment for so many processes.
func sharedBufferSize(processes int) (int, error) {
	if processes < 2 || processes > MaxSharedBufferRanks {
		return 0, fmt.Errorf("a shared buffer for %d processes: want 2 to %d", processes, MaxSharedBufferRanks)
	}
	return headBytes + processes*sharedBufferShare, nil
}

// A SharedBuffer is memory on which each of a few processes of a machine posts what all the others
// may read: what is said to many is written once, and who reads waits for nobody who only
// passes it on.
//
// What is posted bears a stamp, which is greater than that of all the process posted before. All
// processes post for the same stamps in the same order, if only nothing, and each reads what
// bears its own last stamp. So who has posted is through with what came before: a process may
// write over one of its own pieces as soon as all have posted something later than it.
//
// A SharedBuffer is for one goroutine at a time. The peers may be broken: see Trust in the package's
// documentation.
type SharedBuffer struct {
	seg    *Segment
	me     int
	all    []*poster
	data   [][]byte                   // of each process
	mine   [sharedBufferCells]uint64  // the stamps of this process's posts
	long   [sharedBufferPieces]uint64 // and of those in the pieces
	next   int                        // which cell is written over next
	piece  int                        // and which piece
	low    uint64                     // all processes have posted for this stamp at least
	met    uint64                     // a bit for each of which the last step's post was read
	single bool                       // other goroutines run only where who waits lets them
	waiter *Waiter
	since  time.Time
}

// SharedBuffer returns the segment, which CreateSharedBuffer or OpenSharedBuffer made, as the shared buffer of the
// given process, from 0, of so many. others says on which processors those run. Call it once.
func (s *Segment) SharedBuffer(me, processes int, others []CPUs) *SharedBuffer {
	b := &SharedBuffer{seg: s, me: me, since: time.Now(), single: runtime.GOMAXPROCS(0) == 1}
	for i := range processes {
		share := s.mem[headBytes+i*sharedBufferShare:][:sharedBufferShare:sharedBufferShare]
		b.all = append(b.all, (*poster)(unsafe.Pointer(&share[0])))
		b.data = append(b.data, share[posterBytes:])
	}
	b.waiter = NewWaiter(WaitPolicy{Crowded: Crowded(Allowed(), others)})
	return b
}

// Post shows what the parts hold one behind the other, at most SharedBufferPiece bytes, to all others. It waits until one of the
// process's own pieces is free, and gives up when ctx is done or when check, which is called now and
// then while it waits for long, returns an error. After an error nothing has been posted, and the stamp
// may be used again.
func (b *SharedBuffer) Post(ctx context.Context, stamp uint64, check func() error, parts ...[]byte) error {
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	if size > SharedBufferPiece {
		return fmt.Errorf("shm: a post of %d bytes, at most %d are possible", size, SharedBufferPiece)
	}
	i := b.next
	old := b.mine[i]
	if size > postedShort {
		old = max(old, b.long[b.piece])
	}
	if old > 0 && b.low <= old {
		for _, p := range b.all {
			if err := b.wait(ctx, p, aim{old + 1, 0}, check); err != nil {
				return err
			}
		}
		b.low = old + 1
	}
	cell := &b.all[b.me].posts[i]
	to := cell.short[:]
	if size > postedShort {
		to = b.data[b.me][b.piece*SharedBufferPiece:][:SharedBufferPiece]
		cell.piece, b.long[b.piece] = uint32(b.piece), stamp
		b.piece = (b.piece + 1) % sharedBufferPieces
	}
	for _, p := range parts {
		to = to[copy(to, p):]
	}
	cell.size = uint32(size)
	raceRelease()
	cell.stamp.Store(stamp)
	b.all[b.me].at.Store(stamp)
	b.mine[i], b.next, b.met = stamp, (i+1)%sharedBufferCells, 1<<b.me
	for r, other := range b.all {
		if r != b.me && other.sleeps.Load() == 1 && other.sleeps.CompareAndSwap(1, 0) {
			wakeFutex(&other.sleeps)
		}
	}
	return nil
}

// Read returns what a process has posted for stamp, the caller's own last one, and waits for it
// as Post does. It is the shared buffer's memory, which stays as it is until the caller posts again.
func (b *SharedBuffer) Read(ctx context.Context, process int, stamp uint64, check func() error) ([]byte, error) {
	p, i := b.all[process], (b.next+sharedBufferCells-1)%sharedBufferCells // where the caller's own is, and mostly the others'
	if err := b.wait(ctx, p, aim{stamp, i}, check); err != nil {
		return nil, err
	}
	if p.posts[i].stamp.Load() != stamp {
		if i = p.find(stamp); i < 0 {
			return nil, fmt.Errorf("shm: process %d of the shared buffer: %w", process, ErrPassed)
		}
	}
	raceAcquire()
	if b.met |= 1 << process; b.met == 1<<len(b.all)-1 {
		b.low = stamp
	}
	cell := &p.posts[i]
	n, piece := cell.size, int(cell.piece)
	switch {
	case n <= postedShort:
		return cell.short[:n:n], nil
	case n <= SharedBufferPiece && piece < sharedBufferPieces:
		return b.data[process][piece*SharedBufferPiece:][:n:n], nil
	}
	return nil, fmt.Errorf("shm: process %d of the shared buffer posts %d bytes in piece %d: %w", process, n, piece, ErrCorrupt)
}

// find returns in which cell the post for stamp is, or -1.
func (p *poster) find(stamp uint64) int {
	for i := range p.posts {
		if p.posts[i].stamp.Load() == stamp {
			return i
		}
	}
	return -1
}

// An aim is what is waited for: a post for stamp, probably in the cell, or a later one.
type aim struct {
	stamp uint64
	cell  int
}

// reached reports whether it is there. A post's own cell is looked at first: its line has to be
// fetched anyway.
func (p *poster) reached(a aim) bool {
	return p.posts[a.cell].stamp.Load() == a.stamp || p.at.Load() >= a.stamp
}

// Sleepers look after themselves so often: for the caller's context and check.
const (
	shortSleep = 20 * time.Millisecond
	longSleep  = 100 * time.Millisecond
)

// wait returns when a process has posted what is aimed at.
func (b *SharedBuffer) wait(ctx context.Context, p *poster, a aim, check func() error) error {
	if p.reached(a) {
		return nil
	}
	b.waiter.Begin()
	for i := 1; ; i++ {
		if b.waiter.Spinning() {
			Pause()
		} else {
			switch b.waiter.Next(time.Since(b.since), false) {
			case Spin:
				Pause()
			case Yield:
				YieldCPU()
			case Nap:
				NapCPU()
			case Park:
				return b.sleep(ctx, p, a, check)
			}
			if b.single && i%YieldEvery == 0 {
				runtime.Gosched()
			}
		}
		if p.reached(a) {
			b.waiter.Found()
			return nil
		}
	}
}

// sleep is wait for who has polled in vain.
func (b *SharedBuffer) sleep(ctx context.Context, p *poster, a aim, check func() error) error {
	sleeps := &b.all[b.me].sleeps
	defer sleeps.Store(0)
	for d := shortSleep; ; d = min(2*d, longSleep) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := check(); err != nil {
			return err
		}
		sleeps.Store(1)
		if p.reached(a) {
			return nil
		}
		waitFutex(sleeps, 1, d)
		if p.reached(a) {
			return nil
		}
	}
}

// Close unmaps the shared buffer, which must not be used after that.
func (b *SharedBuffer) Close() error { return b.seg.Close() }
