package dialwindow

import "time"

// How the window adapts.
const (
	initialSize = 32   // which no path of a site that is not limited notices
	minSize     = 4    // of a window
	maxSize     = 4096 // of a window

	// limitedSize is that of a window from which on the site is said to limit connections.
	limitedSize = 16

	// lateAfter is what an answer takes at least if the first SYN, or the answer to it,
	// was lost: it is sent again after a second (RFC 6298, section 2.1). It counts where
	// the kernel does not tell (retransmitted).
	lateAfter = 900 * time.Millisecond

	// turnTime is how long a dial without an answer counts: nobody may be there, and who is
	// must not wait for that. Where the site limits connections it is limitedTurnTime, for the
	// kernel sends the SYN again about as long, and others must not be ahead of that.
	turnTime        = 4 * time.Second
	limitedTurnTime = 8 * time.Second

	round     = time.Second // at least between two judgements
	enough    = 4           // answers for a judgement
	staleTime = 10 * time.Second

	// memory is how long a limit is remembered that does not show any more.
	memory = 30 * time.Second
)

// window says how many dials may be without an answer at a time. It has no clock.
//
// A lost packet makes a dial late, too, but not most of them. When a path that was
// cut is back, all are late that waited for it: the window is small for a while
// then, which costs little, for it grows with each dial that waits for its turn.
type window struct {
	size, open int
	prompt     int       // answers of the round that came at once
	late       int       // and those that took a second and more
	began      time.Time // the round
	until      time.Time // the site is taken to limit connections
	rate       float64   // answers a second when that showed last
}

func newWindow() window { return window{size: initialSize} }

// admit reports whether one more dial may begin, and counts it.
func (w *window) admit(now time.Time) bool {
	if !w.until.IsZero() && now.After(w.until) {
		*w = window{size: max(w.size, initialSize), open: w.open}
	}
	if w.open >= w.size {
		return false
	}
	w.open++
	return true
}

// leave has a dial count no more.
func (w *window) leave() { w.open-- }

// answered notes that a dial was answered, at once or late, the dial being counted
// still or not.
func (w *window) answered(now time.Time, late bool) {
	if now.Sub(w.began) > staleTime {
		w.began, w.prompt, w.late = now, 0, 0
	}
	if !late {
		w.prompt++
		if 2*w.open >= w.size {
			w.size = min(w.size+1, maxSize)
		}
	} else {
		w.late++
	}
	if elapsed := now.Sub(w.began); elapsed >= round && w.prompt+w.late >= enough {
		w.judge(now, elapsed)
	}
}

// judge ends a round.
func (w *window) judge(now time.Time, elapsed time.Duration) {
	if w.late > w.prompt {
		w.size = max(w.size/2, minSize)
		if w.size <= limitedSize {
			w.until, w.rate = now.Add(memory), float64(w.prompt+w.late)/elapsed.Seconds()
		}
	}
	w.began, w.prompt, w.late = now, 0, 0
}

// limited returns how many connections a second the site lets through, about, and
// whether it limits them.
func (w *window) limited(now time.Time) (rate float64, is bool) {
	return w.rate, now.Before(w.until)
}
