package carrier

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// Options of a join. The zero value bounds nothing.
type Options struct {
	// Limit ends the join with ErrLimit once more than so many bytes arrived,
	// both directions together. 0 is no limit.
	Limit uint64

	// Idle ends the join with an overlay.ErrTimeout when neither direction
	// moved a byte for that long (noticed after at most twice that). 0 is for
	// ever.
	Idle time.Duration

	// Meter counts while the join runs. It serves one join and may be nil.
	Meter *Meter

	// Pacer holds the join to a rate; nil does not. It serves one join, which
	// stops it when the join is cut.
	Pacer Pacer

	// KeepControl leaves both sockets the congestion control that they have. Otherwise
	// one that loses data, which no queue dropped, gets one that bears it.
	KeepControl bool
}

// Pacer says when bytes may pass. Its methods are called by both directions at
// the same time, 0 from a to b and 1 from b to a.
type Pacer interface {
	// Paced reports whether Take has to be asked. It may change at any time.
	Paced() bool

	// Take waits until some of n bytes, which have arrived, may pass, and says
	// how many; 0 when the pacer was stopped.
	Take(dir, n int) int

	// Return gives back n bytes that Take allowed and that did not pass.
	Return(dir, n int)

	// Stop ends every Take, now and later. It may be called more than once.
	Stop()
}

// ErrLimit says that a join moved all the bytes it was allowed.
var ErrLimit = errors.New("the link's byte limit is used up")

// Meter counts live what a join moves. Read it at any time with Stats.
type Meter struct {
	spliced, copied [2]atomic.Uint64 // by direction: 0 from a to b
}

// Stats is what a join moved.
type Stats struct {
	AToB, BToA uint64 // bytes, each way
	Spliced    uint64 // bytes of both that went from socket to socket inside the kernel
	Copied     uint64 // bytes of both that passed through this process's memory
}

// Total returns the bytes of both directions.
func (s Stats) Total() uint64 { return s.AToB + s.BToA }

// Stats returns the counts so far. Safe for concurrent use.
func (m *Meter) Stats() Stats {
	s0, s1, c0, c1 := m.spliced[0].Load(), m.spliced[1].Load(), m.copied[0].Load(), m.copied[1].Load()
	return Stats{AToB: s0 + c0, BToA: s1 + c1, Spliced: s0 + s1, Copied: c0 + c1}
}

// Join copies from a to b and from b to a until both have ended, and closes
// both before it returns. On Linux the bytes of two *net.TCPConn go through a
// pipe inside the kernel and never through this process's memory.
//
// An end of stream on one side becomes an end of stream on the other while the
// opposite direction goes on. A reset stays a reset. A side that does not read
// stops the other from sending once socket buffers and pipe are full; so does a
// Pacer that has one wait, before anything is read.
//
// Join returns nil when both directions ended properly. Otherwise it says what
// ended it: ErrLimit, overlay.ErrTimeout (idle), the cause of ctx, or the
// socket error that came first; then both sides get a reset, so that nobody
// takes a cut stream for a whole one. a and b must not be in use elsewhere;
// deadlines set on them before are lifted.
func Join(ctx context.Context, a, b Stream, o Options) (Stats, error) {
	if o.Meter == nil {
		o.Meter = new(Meter)
	}
	err := newJoint(a, b, o).run(ctx)
	return o.Meter.Stats(), err
}
