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
	// MaxSharedBufferRanks bounds the processes that share a shared buffer.
	MaxSharedBufferRanks = 64

	// SharedBufferPiece bounds the bytes of one post.
	SharedBufferPiece = 64 << 10

	sharedBufferCells  = 64  // posts of a process that stay readable at the same time
	sharedBufferPieces = 4   // how many of these may be long: more than postedShort bytes
	postedShort        = 112 // bytes in the cell itself, which are transferred with its stamp
)

// ErrPassed is in the error of [SharedBuffer.Read] when the process has gone on without posting for
// the stamp.
var ErrPassed = errors.New("it has gone on to a later step")

// post announces the data of one post.
type post struct {
	stamp atomic.Uint64
	size  uint32
	piece uint32 // where the data is if it is long
	short [postedShort]byte
}

// poster is what one process writes to the shared buffer, except its pieces, and the word by which
// the others wake it.
type poster struct {
	at     atomic.Uint64 // its last stamp: it no longer reads posts with an earlier one
	_      [apart - 8]byte
	sleeps atomic.Uint32 // set by the process, cleared by all
	_      [apart - 4]byte
	posts  [sharedBufferCells]post
}

const (
	posterBytes       = 3 * page // at least a poster's size
	sharedBufferShare = posterBytes + sharedBufferPieces*SharedBufferPiece
)

// sharedBufferSize returns the size of the segment for a number of processes.
func sharedBufferSize(processes int) (int, error) {
	if processes < 2 || processes > MaxSharedBufferRanks {
		return 0, fmt.Errorf("a shared buffer for %d processes: want 2 to %d", processes, MaxSharedBufferRanks)
	}
	return headBytes + processes*sharedBufferShare, nil
}

// A SharedBuffer is memory on which each of a few processes of a machine posts data that all the
// others may read: a broadcast is written once, and no reader waits for a process that only
// forwards it.
//
// Every post has a stamp, which is greater than those of all earlier posts of the process. All
// processes post for the same stamps in the same order, possibly without data, and each reads the
// posts with its own last stamp. So a process that has posted has finished with earlier posts: a
// process may overwrite one of its own pieces as soon as all have posted with a later stamp.
//
// A SharedBuffer is not safe for concurrent use. The peers may be broken: see Trust in the
// package's documentation.
type SharedBuffer struct {
	seg    *Segment
	me     int
	all    []*poster
	data   [][]byte                   // of each process
	mine   [sharedBufferCells]uint64  // the stamps of this process's posts
	long   [sharedBufferPieces]uint64 // and of those in the pieces
	next   int                        // the cell to overwrite next
	piece  int                        // the piece to overwrite next
	low    uint64                     // all processes have posted for at least this stamp
	met    uint64                     // a bit for each process whose post of the last step was read
	single bool                       // other goroutines run only when a waiting one yields
	waiter *Waiter
	since  time.Time
}

// SharedBuffer returns the segment, made by CreateSharedBuffer or OpenSharedBuffer, as the shared
// buffer of process me, from 0, among processes. others has the processors of the other processes.
// Call it once.
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

// Post posts the concatenation of parts, at most SharedBufferPiece bytes, to all others. It waits
// until one of the process's own pieces is free, and fails when ctx is done or when check, which it
// calls now and then during a long wait, returns an error. After an error nothing has been posted,
// and the stamp may be used again.
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

// Read returns the data that a process posted for stamp, which must be the caller's own last one,
// and waits for it as Post does. The result is in the shared buffer's memory, which does not change
// until the caller posts again.
func (b *SharedBuffer) Read(ctx context.Context, process int, stamp uint64, check func() error) ([]byte, error) {
	p, i := b.all[process], (b.next+sharedBufferCells-1)%sharedBufferCells // the index of the caller's own post, and usually that of the others
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

// find returns the index of the cell with the post for stamp, or -1.
func (p *poster) find(stamp uint64) int {
	for i := range p.posts {
		if p.posts[i].stamp.Load() == stamp {
			return i
		}
	}
	return -1
}

// An aim is what a wait is for: a post for stamp, probably in the cell, or a later one.
type aim struct {
	stamp uint64
	cell  int
}

// reached reports whether it is there. It checks the post's own cell first: that cache line has to
// be fetched anyway.
func (p *poster) reached(a aim) bool {
	return p.posts[a.cell].stamp.Load() == a.stamp || p.at.Load() >= a.stamp
}

// A sleeping process wakes at these intervals by itself, to check the caller's context and check.
const (
	shortSleep = 20 * time.Millisecond
	longSleep  = 100 * time.Millisecond
)

// wait returns when a process has posted what a describes.
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

// sleep is wait after polling without success.
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

// Close unmaps the shared buffer. Do not use it afterwards.
func (b *SharedBuffer) Close() error { return b.seg.Close() }
