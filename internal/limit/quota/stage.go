package quota

import (
	"container/heap"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// A flow's bytes pass up to six stages, one behind the other: the job's, the
// project's, the user's, what the policy of each end's site allows, and the
// daemon's own. Each is a bucket before which
// those who must wait stand in line, by classes that take turns. Who has passed
// a stage does not pass it again for the same bytes.
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

// Turns are those of start-time fair queueing. A class's mark is the bytes that
// it was given so far, and next is who has the lowest. The stage's clock is the
// highest mark at which anybody was served: who comes for the first time, or
// stayed behind since he wanted nothing, starts there. So nobody saves up a
// right to be served, and who leaves the line to copy a piece, as a user's only
// link does each time, comes back with the mark that he left with.

// stage is a bucket and those who wait for it.
type stage struct {
	bucket
	line   line
	clock  int64 // bytes
	turns  uint64
	queued bool // in the Quota's list of those with a line

	links   int               // live, that pass here
	sharers map[string]*class // where classes are users
}

// class is one of those who share a stage.
type class struct {
	first, last *Flow // its requests, the oldest first
	flows       int
	links       int // live, of a class in sharers

	mark  int64  // bytes
	turn  uint64 // when it came or was served last; of equal marks the lowest is next
	place int    // in the line
}

// line is the classes that have requests, a heap (container/heap) whose first is
// next.
type line []*class

func (l line) Len() int { return len(l) }

func (l line) Less(i, j int) bool {
	return l[i].mark < l[j].mark || l[i].mark == l[j].mark && l[i].turn < l[j].turn
}

func (l line) Swap(i, j int) {
	l[i], l[j] = l[j], l[i]
	l[i].place, l[j].place = i, j
}

func (l *line) Push(c any) {
	c.(*class).place = len(*l)
	*l = append(*l, c.(*class))
}

func (l *line) Pop() any {
	last := len(*l) - 1
	c := (*l)[last]
	(*l)[last] = nil
	*l = (*l)[:last]
	return c
}

// join brings a class up to date that had no requests.
func (s *stage) join(c *class) {
	c.mark = max(c.mark, s.clock)
	c.turn = s.turns
	s.turns++
}

// serve gives n bytes to class c. If c stays in the line, its place there is to
// be fixed.
func (s *stage) serve(c *class, n int) {
	s.take(n)
	s.clock = max(s.clock, c.mark)
	c.mark += int64(n)
	c.turn = s.turns
	s.turns++
}

// push puts f at the end of its class's requests.
func (s *stage) push(f *Flow, c *class) {
	f.next = nil
	c.flows++
	if c.first != nil {
		c.last.next = f
		c.last = f
		return
	}
	c.first, c.last = f, f
	s.join(c)
	heap.Push(&s.line, c)
}

// pop serves the request whose turn it is; there must be one.
func (s *stage) pop() *Flow {
	c := s.line[0]
	f := c.first
	c.first = f.next
	c.flows--
	f.next = nil
	s.serve(c, f.want)
	if c.first == nil {
		c.last = nil
		heap.Pop(&s.line)
	} else {
		heap.Fix(&s.line, 0)
	}
	return f
}

// giveBack takes n bytes back that class c was given and did not use.
func (s *stage) giveBack(c *class, n int) {
	if s.rate == 0 {
		return
	}
	s.putBack(n)
	c.mark -= int64(n)
	if c.first != nil {
		heap.Fix(&s.line, c.place)
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
	if c.first == nil {
		heap.Remove(&s.line, c.place)
	}
}

// A round is the time in which each of those who wait is to have its turn. It
// sets how much a flow may ask for at once: little where many wait, so that no
// turn is far off; much where few do, so that a turn is worth its cost.
const (
	roundTime = 50 * time.Millisecond
	minPiece  = 8 << 10   // bytes
	maxPiece  = 256 << 10 // bytes, or a batch of the bucket if that is more
	mostPiece = 1 << 20   // bytes: no link copies more at once
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
		return mostPiece
	}
	classes := len(s.line)
	if c.flows == 0 {
		classes++
	}
	n := s.rate * roundTime.Seconds() / float64(classes*(c.flows+1))
	// A class with one link has one piece of each batch. Were that less than its
	// share of the batch, the links of others would take the rest of it.
	most := min(max(maxPiece, s.rate*batchTime.Seconds()), mostPiece)
	return int(min(max(n, minPiece), most))
}
