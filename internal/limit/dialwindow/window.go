package dialwindow

import "time"

// Parameters of the adaptation.
const (
	initialSize = 32   // does not affect any path of a site without a limit
	minSize     = 4    // of a window
	maxSize     = 4096 // of a window

	// limitedSize is the window size at or below which a site is reported to limit connections.
	limitedSize = 16

	// lateAfter is the minimum delay of an answer if the first SYN, or the answer to it, was lost:
	// it is retransmitted after a second (RFC 6298, section 2.1).
	lateAfter = 900 * time.Millisecond

	// slotTime is how long a dial without an answer counts: the host may be down, and dials to live
	// hosts must not wait for that. Where the site limits connections it is limitedSlotTime,
	// because the kernel retransmits the SYN for about as long, and others must not overtake that.
	slotTime        = 4 * time.Second
	limitedSlotTime = 8 * time.Second

	round     = time.Second // minimum between two judgements
	enough    = 4           // answers for a judgement
	staleTime = 10 * time.Second

	// memory is how long a limit is remembered after its last sign.
	memory = 30 * time.Second
)

// window decides how many dials may be unanswered at a time. It has no clock.
//
// A lost packet makes a dial late, too, but not most of them. When a path recovers from an
// interruption, all dials that waited for it are late: the window is small for a while then, which
// costs little, because it grows with each dial that waits for its turn.
type window struct {
	size, open int
	prompt     int       // answers of the round without a delay
	late       int       // answers to a SYN that was not the first
	began      time.Time // start of the round
	until      time.Time // until when the site is assumed to limit connections
	rate       float64   // answers a second at the last sign of a limit
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

// wasLost reports whether an answered dial's first SYN, or the answer to it, was lost. retransmitted
// is how often the SYN was sent again, rtt the round trip that the kernel measured, 0 if it did not:
// from the SYN that was answered, by TCP's timestamps (RFC 7323, section 4). Where a round trip is
// longer than a second each SYN is sent again, before its answer can arrive. The duration alone does
// not show a loss: a busy machine processes an answer late.
func wasLost(retransmitted int, rtt, took time.Duration) bool {
	return retransmitted > 0 && took-rtt >= lateAfter
}

// leave stops counting a dial.
func (w *window) leave() { w.open-- }

// answered records that a dial was answered, at once or late, whether or not the dial is still
// counted.
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

// limited returns approximately how many connections a second the site lets through, and whether it
// limits them.
func (w *window) limited(now time.Time) (rate float64, is bool) {
	return w.rate, now.Before(w.until)
}
