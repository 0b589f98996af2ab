package stream

import (
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/wire"
)

// This file sizes windows. Without an advertised window an end may be Window ahead of what the
// other has taken. Where more is in flight, on a path both long and fast, the end that takes the
// data measures its rate, and advertises a larger window in its headers, as TCP receivers do
// (dynamic right-sizing); see wire.LinkHeader. Memory is allocated when bytes arrive, not when a
// window grows.
const (
	// MaxWindow is the largest window, in bytes.
	MaxWindow = 128 << 20

	// extraBytes is how much the windows of all streams of a process, for sending and for
	// receiving, may exceed Window in total, in bytes.
	extraBytes = 256 << 20

	// windowGain is how many times the data of one round trip fits into a window: once for what is
	// in flight, once for what waits for bytes that were lost and sent again, and the same for the
	// growth of both.
	windowGain = 4

	// storedGain is the same for the bytes that were stored because earlier ones had not arrived on
	// another carrier: once for them, once for their growth. With many carriers there is always one
	// that sends lost bytes again, and the others may be several round trips ahead of it.
	storedGain = 2

	minMeasured = 4 * Tick                // minimum time over which a rate is measured, or a round trip
	narrowAfter = 10 * time.Second / Tick // idle ticks after which a window returns to its initial size
)

// windowFor returns the window for a stream taken at rate bytes a second over a path with the given
// round trip, of which up to stored bytes waited for earlier ones.
func windowFor(rate float64, rtt time.Duration, stored uint64) uint64 {
	want := min(windowGain*rate*rtt.Seconds()+storedGain*float64(stored), MaxWindow)
	return max(Window, (uint64(want)+wire.WindowUnit-1)/wire.WindowUnit*wire.WindowUnit)
}

// extra is the remainder of extraBytes.
var extra = budget{left: extraBytes}

// budget is a number of bytes that streams share.
type budget struct {
	mu   sync.Mutex
	left uint64
}

// take takes up to bytes from the budget, in whole units of a window, and returns how many.
func (b *budget) take(bytes uint64) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	bytes = min(bytes, b.left) / wire.WindowUnit * wire.WindowUnit
	b.left -= bytes
	return bytes
}

func (b *budget) giveBack(bytes uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left += bytes
}

// windows is the window state of a stream.
type windows struct {
	in   uint64 // how far the peer may be ahead
	edge uint64 // advertised to the peer: everything below is accepted; 0: none was
	out  uint64 // how far this end goes at most, whatever the peer advertises

	unsent int // see BoundUnsent; 0: the kernel decides

	took   uint64    // bytes taken at the last measurement
	at     time.Time // time of that measurement
	stored uint64    // the most bytes that were stored at a tick since then
	tookAt uint64    // bytes taken at the last tick
	idle   int64     // idle ticks
}

// resize is this file's part of Watch. A stream is idle that has sent and taken everything, and took
// nothing since the last tick: one that keeps up with its peer has also taken everything.
func (s *Stream) resize(now time.Time) {
	w := &s.windows
	busy := s.took != w.tookAt || s.waiting() > 0 || s.recv.Stored() > 0 || s.send.Acked() < s.send.End()
	w.tookAt = s.took
	if busy {
		s.rightSize(now)
	} else {
		s.releaseIdle()
	}
}

// rightSize widens the window of a busy stream for the rate at which it is taken.
func (s *Stream) rightSize(now time.Time) {
	w := &s.windows
	w.idle = 0
	w.stored = max(w.stored, s.recv.Stored())
	if !s.o.Windows || w.in >= MaxWindow {
		return
	}
	var rtt time.Duration
	for _, c := range s.carriers {
		if s.serves(c) {
			rtt = max(rtt, c.least)
		}
	}
	passed := now.Sub(w.at)
	if passed < max(minMeasured, rtt) {
		return
	}
	rate := float64(s.took-w.took) / passed.Seconds()
	stored := w.stored
	w.took, w.at, w.stored = s.took, now, 0
	if want := windowFor(rate, rtt, stored); want > w.in {
		w.in += extra.take(want - w.in)
		s.in.widen(w.in)
	}
}

// advertiseWindow returns the window to put in a header with an acknowledgement, and records its
// edge.
func (s *Stream) advertiseWindow(ack uint64) uint16 {
	w := &s.windows
	if w.in <= Window {
		return 0
	}
	if edge := ack + w.in; edge > w.edge {
		w.edge = edge
		s.recv.Allow(edge)
	}
	return uint16(w.in / wire.WindowUnit)
}

// limit returns the offset up to which the peer may send.
func (s *Stream) limit() uint64 { return max(s.took+Window, s.windows.edge) }

// allowed processes a window that the peer advertised, as far as there is room for unacknowledged
// data. It reports whether more may be written now.
func (s *Stream) allowed(ack uint64, units uint16) bool {
	if units == 0 || s.over {
		return false // a stream that is over has returned its budget
	}
	w := &s.windows
	bytes := min(uint64(units)*wire.WindowUnit, MaxWindow)
	if bytes > w.out {
		w.out += extra.take(bytes - w.out)
		s.out.pages.widen(w.out)
	}
	before := s.send.Acked() + s.send.Window()
	s.send.Allow(ack + min(bytes, w.out))
	return s.send.Acked()+s.send.Window() > before
}

// narrow returns the windows to their initial size. Windows advertised earlier remain valid, but are
// not renewed.
func (s *Stream) narrow() {
	w := &s.windows
	extra.giveBack(w.in - Window + w.out - Window)
	w.in, w.out, w.idle = Window, Window, 0
}
