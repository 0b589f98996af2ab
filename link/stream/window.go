package stream

import (
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/wire"
)

// This file sizes windows. Without a word an end may be Window ahead of what the other
// has taken. Where more is under way, on a path both long and fast, the end that takes the data
// measures how much of it comes, and promises a larger window in its headers, as TCP's
// receivers do (dynamic right-sizing); wire.LinkHeader says how. Memory is had when bytes come,
// and not when a window grows.
const (
	// MaxWindow is the largest window, in bytes.
	MaxWindow = 128 << 20

	// extraBytes is what the windows of all streams of a process may be beyond Window,
	// those of what they send and of what they receive, in bytes.
	extraBytes = 256 << 20

	// windowGain is how many times what comes in a round trip fits into a window: once
	// for what is under way, once for what waits for bytes that were lost and sent again,
	// and as much for the growth of both.
	windowGain = 4

	minMeasured = 4 * Tick                // time over which a rate is measured, or a round trip
	narrowAfter = 10 * time.Second / Tick // ticks idle, after which a window is as it was in the beginning
)

// windowFor returns the window for a stream of which so many bytes a second are taken
// over a path with a round trip.
func windowFor(rate float64, rtt time.Duration) uint64 {
	want := min(windowGain*rate*rtt.Seconds(), MaxWindow)
	return max(Window, (uint64(want)+wire.WindowUnit-1)/wire.WindowUnit*wire.WindowUnit)
}

// extra is what is left of extraBytes.
var extra = budget{left: extraBytes}

// budget is bytes that streams share.
type budget struct {
	mu   sync.Mutex
	left uint64
}

// take returns as many of the bytes as there are, in whole units of a window.
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

// windows are those of a stream.
type windows struct {
	in   uint64 // how far the peer may be ahead
	edge uint64 // what is below was promised to be taken; 0: nothing was said
	out  uint64 // how far this end is at most, whatever the peer promises

	took uint64    // at the last measurement,
	at   time.Time // which was then
	idle int64     // ticks
}

// rightSize is what Watch does for this file while the stream is busy.
func (s *Stream) rightSize(now time.Time) {
	w := &s.windows
	w.idle = 0
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
	w.took, w.at = s.took, now
	if want := windowFor(rate, rtt); want > w.in {
		w.in += extra.take(want - w.in)
		s.in.widen(w.in)
	}
}

// advertiseWindow returns what a header with an acknowledgement says of the window. What it
// promises is kept.
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

// limit is up to where the peer may send.
func (s *Stream) limit() uint64 { return max(s.took+Window, s.windows.edge) }

// allowed takes a promise of the peer's, as far as there is room for what was not
// acknowledged. It reports whether more may be written now.
func (s *Stream) allowed(ack uint64, units uint16) bool {
	if units == 0 || s.over {
		return false // what is over has given back what it had
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

// narrow has the windows be as they were in the beginning. What was promised stays so, but
// it is not promised again.
func (s *Stream) narrow() {
	w := &s.windows
	extra.giveBack(w.in - Window + w.out - Window)
	w.in, w.out, w.idle = Window, Window, 0
}
