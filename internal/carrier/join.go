package carrier

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// Options of a join. The zero value bounds nothing.
type Options struct {
	// Limit ends the join with ErrLimit once more than this many bytes arrived, both directions
	// together. 0 is no limit.
	Limit uint64

	// Idle ends the join with an overlay.ErrTimeout when neither direction moved a byte for that
	// long (noticed after at most twice that). 0 means never.
	Idle time.Duration

	// Meter counts while the join runs. It serves one join and may be nil.
	Meter *Meter

	// Pacer limits the rate of the join; nil does not. It serves one join, which stops it when the
	// join is cut.
	Pacer Pacer

	// KeepControl keeps the congestion control of both sockets. Otherwise a socket that loses data
	// without a full queue gets one that tolerates loss.
	KeepControl bool

	// Lossy shares between joins which paths lose data; nil does not.
	Lossy *LossyPaths
}

// Pacer decides when bytes may pass. Both directions call its methods concurrently, 0 from a to b
// and 1 from b to a.
type Pacer interface {
	// Paced reports whether Take has to be called. The answer may change at any time.
	Paced() bool

	// Take waits until some of n bytes, which have arrived, may pass, and returns how many; 0 when
	// the pacer was stopped.
	Take(dir, n int) int

	// Return returns n bytes that Take allowed and that did not pass.
	Return(dir, n int)

	// Stop ends every Take, now and later. It may be called more than once.
	Stop()
}

// ErrLimit means that a join moved all the bytes it was allowed.
var ErrLimit = errors.New("the link's byte limit is used up")

// Meter counts what a running join moves. Stats may be called at any time.
type Meter struct {
	spliced, copied [2]atomic.Uint64 // by direction: 0 from a to b
}

// Stats is what a join moved.
type Stats struct {
	AToB, BToA uint64 // bytes, each way
	Spliced    uint64 // bytes of both directions that went from socket to socket inside the kernel
	Copied     uint64 // bytes of both directions that passed through this process's memory
}

// Total returns the bytes of both directions.
func (s Stats) Total() uint64 { return s.AToB + s.BToA }

// Stats returns the counts so far. It is safe for concurrent use.
func (m *Meter) Stats() Stats {
	s0, s1, c0, c1 := m.spliced[0].Load(), m.spliced[1].Load(), m.copied[0].Load(), m.copied[1].Load()
	return Stats{AToB: s0 + c0, BToA: s1 + c1, Spliced: s0 + s1, Copied: c0 + c1}
}

// Join copies from a to b and from b to a until both have ended, and closes both before it returns.
// On Linux the bytes of two *net.TCPConn go through a pipe inside the kernel and never through this
// process's memory.
//
// An end of stream on one side becomes an end of stream on the other while the opposite direction
// continues. A reset stays a reset. A side that does not read stops the other from sending once
// socket buffers and pipe are full; so does a Pacer that makes a direction wait, before anything is
// read.
//
// Join returns nil when both directions ended regularly. Otherwise it returns the cause: ErrLimit,
// overlay.ErrTimeout (idle), the cause of ctx, or the first socket error; then both sides get a
// reset, so that neither mistakes a truncated stream for a complete one. a and b must not be in use
// elsewhere; deadlines set on them before are removed.
func Join(ctx context.Context, a, b Stream, o Options) (Stats, error) {
	if o.Meter == nil {
		o.Meter = new(Meter)
	}
	err := newJoint(a, b, o).run(ctx)
	return o.Meter.Stats(), err
}
