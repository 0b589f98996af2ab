package quota

import (
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// A flow's bytes pass up to six stages, one behind the other: the job's, the
// project's, the user's, what the policy of each end's site allows, and the
// daemon's own. Each is a bucket before which
// those who must wait stand in line, by classes that take turns (deficit round
// robin: a class whose next request is larger than what it has saved up saves a
// quantum more and lets the others go first). Who has passed a stage does not
// pass it again for the same bytes, so every step costs the same, however many
// wait.
//
//	Ask --> job --> project --> user --> policy --> policy --> total --> may pass
//	        by link  by user    by link  by user    by user    by user
//
// What one site allows may be the first of some links' two policies and the
// second of others'.
//
// So the daemon's rate is shared among users, and a user's among his links,
// however many of them he has.
const (
	atJob = iota
	atProject
	atUser
	atAllowances
	atTotal = atAllowances + overlay.MaxAllowances
	stages  = atTotal + 1
)

// quantum is what a class saves up when its turn passes, in bytes.
const quantum = 16 << 10

// stage is a bucket and those who wait for it.
type stage struct {
	bucket
	first, last *class // in line, the one whose turn it is first
	classes     int    // in line
	queued      bool   // in the Quota's list of those with a line

	links   int               // live, that pass here
	sharers map[string]*class // where classes are users
}

// class is one of those who share a stage.
type class struct {
	next        *class // behind it in the line
	first, last *Flow  // its requests, the oldest first
	flows       int
	deficit     int // bytes it may send in this turn
	links       int // live, of a class in sharers
}

// push puts f at the end of its class's requests.
func (s *stage) push(f *Flow, c *class) {
	f.next = nil
	if c.first == nil {
		c.first, c.last = f, f
		c.deficit = 0
		s.append(c)
		s.classes++
	} else {
		c.last.next = f
		c.last = f
	}
	c.flows++
}

func (s *stage) append(c *class) {
	c.next = nil
	if s.first == nil {
		s.first, s.last = c, c
		return
	}
	s.last.next = c
	s.last = c
}

func (s *stage) popClass() *class {
	c := s.first
	s.first = c.next
	if s.first == nil {
		s.last = nil
	}
	c.next = nil
	return c
}

// pop takes the request whose turn it is; there must be one.
func (s *stage) pop() *Flow {
	for {
		c := s.first
		f := c.first
		if c.deficit < f.want {
			c.deficit += quantum
			s.append(s.popClass())
			continue
		}
		c.deficit -= f.want
		c.first = f.next
		c.flows--
		f.next = nil
		if c.first == nil {
			c.last = nil
			s.popClass()
			s.classes--
		}
		return f
	}
}

// remove takes f out of its class's requests.
func (s *stage) remove(f *Flow, c *class) {
	var before *Flow
	for g := c.first; g != f; g = g.next {
		before = g
	}
	if before == nil {
		c.first = f.next
	} else {
		before.next = f.next
	}
	if c.last == f {
		c.last = before
	}
	f.next = nil
	c.flows--
	if c.first != nil {
		return
	}
	// The class leaves the line.
	s.classes--
	var ahead *class
	for d := s.first; d != c; d = d.next {
		ahead = d
	}
	if ahead == nil {
		s.first = c.next
	} else {
		ahead.next = c.next
	}
	if s.last == c {
		s.last = ahead
	}
	c.next = nil
}

// A round is the time in which each of those who wait is to have its turn. It
// sets how much a flow may ask for at once: little where many wait, so that no
// turn is far off; much where few do, so that a turn is worth its cost.
const (
	roundTime = 50 * time.Millisecond
	minPiece  = 8 << 10   // bytes
	maxPiece  = 256 << 10 // bytes
)

// idle reports whether nobody has a link here and the bucket owes nothing.
func (s *stage) idle(now time.Time) bool {
	if s.links > 0 {
		return false
	}
	s.refill(now)
	return s.rate == 0 || s.level >= s.burst
}

// share is what one more request of class c may have here at once.
func (s *stage) share(c *class) int {
	if s.rate == 0 {
		return maxPiece
	}
	others := s.classes
	if c.flows == 0 {
		others++
	}
	n := s.rate * roundTime.Seconds() / float64(others*(c.flows+1))
	return int(min(max(n, minPiece), maxPiece))
}
