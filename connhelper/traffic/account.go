// Package traffic sums up what one process reports that its links have moved: which of their ends
// are written down one by one, and when they are reported to the frontal. It knows no process, log
// or daemon, and has neither lock nor clock: its state is an Account, which has one owner at a time.
package traffic

import (
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// Bounds of what one process may report about its links. The reports are the process's own, so they
// must not fill the audit log.
const (
	maxOpenLinks = 4096 // open links that are remembered; of others only the end is known
	maxEnded     = 4096 // records of ends at once; those beyond are summed up in one
	endsPerSec   = 16   // and how many more each second
	MaxPassed    = 256  // ends in one call to the frontal
)

// passAfter is how long ends wait for others before the frontal is notified. It is checked when the
// process sends a report, and all are sent when the process leaves.
const passAfter = 5 * time.Second

// Account is what a process reports that its links have moved. The zero Account is empty.
type Account struct {
	open    map[[16]byte]report // links that are not over
	ended   []Ended             // not yet reported to the frontal
	endedAt time.Time           // time of the first of them
	surplus Surplus

	room   float64   // records of ends that may be written now
	roomAt time.Time // when room was computed
}

// report is the last report about a link, and its time.
type report struct {
	overlay.Traffic
	at time.Time
}

// Ended is a link that is over.
type Ended struct {
	overlay.Traffic
	Unsaid time.Duration // how long the process had reported nothing when it was killed; 0: it reported the end
}

// Surplus sums up ends that were too many to be written one by one.
type Surplus struct{ Links, Sent, Received uint64 }

// Take processes a report about a link, and returns the link's end if that is to be written
// individually.
func (a *Account) Take(t overlay.Traffic, now time.Time) (e Ended, write bool) {
	if !t.Over {
		if _, known := a.open[t.Link]; !known && len(a.open) >= maxOpenLinks {
			return e, false
		}
		if a.open == nil {
			a.open = map[[16]byte]report{}
		}
		a.open[t.Link] = report{t, now}
		return e, false
	}
	delete(a.open, t.Link)
	return a.end(Ended{Traffic: t}, now)
}

// end records a link that is over.
func (a *Account) end(e Ended, now time.Time) (_ Ended, write bool) {
	if a.roomAt.IsZero() {
		a.room = maxEnded
	} else {
		a.room = min(maxEnded, a.room+endsPerSec*max(now.Sub(a.roomAt), 0).Seconds())
	}
	a.roomAt = now
	if a.room < 1 {
		a.surplus.Links++
		a.surplus.Sent += e.Sent
		a.surplus.Received += e.Received
		return e, false
	}
	a.room--
	if len(a.ended) == 0 {
		a.endedAt = now
	}
	a.ended = append(a.ended, e)
	return e, true
}

// Lost ends the links whose end the process can no longer report, because it is gone.
func (a *Account) Lost(now time.Time) (write []Ended) {
	for _, t := range a.open {
		e := Ended{Traffic: t.Traffic, Unsaid: max(now.Sub(t.at), time.Nanosecond)}
		e.Lasted += e.Unsaid
		if e, ok := a.end(e, now); ok {
			write = append(write, e)
		}
	}
	clear(a.open)
	return write
}

// Passable returns what to report to the frontal now.
func (a *Account) Passable(now time.Time, all bool) []Ended {
	if !all && len(a.ended) < MaxPassed && now.Sub(a.endedAt) < passAfter {
		return nil
	}
	out := a.ended
	a.ended = nil
	return out
}

// Open returns the number of links that are not over.
func (a *Account) Open() int { return len(a.open) }

// Surplus returns the sum of the ends that were not to be written one by one.
func (a *Account) Surplus() Surplus { return a.surplus }
