package quota

import (
	"container/heap"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// A flow's bytes pass up to six stages, one after the other: the job's, the project's, the user's,
// the policy of each end's site, and the daemon's own. Each is a bucket with a queue of waiting
// requests, by classes that take turns. A request that has passed a stage does not pass it again
// for the same bytes.
//
//	Ask --> job --> project --> user --> policy --> policy --> total --> may pass
//	        by link  by user    by link  by user    by user    by user
//
// The allowance of one site may be the first policy stage of some links and the second of others.
//
// So the daemon's rate is shared among users, and a user's among the user's links, however many
// there are.
const (
	atJob = iota
	atProject
	atUser
	atAllowances
	atTotal = atAllowances + overlay.MaxAllowances
	stages  = atTotal + 1
)

// Turns follow start-time fair queueing. A class's mark is the bytes that it was granted so far,
// and the class with the lowest mark is next. The stage's clock is the highest mark at which any
// class was served: a class that is new, or fell behind because it was idle, starts there. So no
// class accumulates a right to be served, and a class that leaves the queue to copy a piece, as a
// user's only link does each time, returns with the mark that it left with.

// stage is a bucket and the classes that wait for it.
type stage struct {
	bucket
	line   line
	clock  int64 // bytes
	turns  uint64
	queued bool // in the Quota's list of stages with a queue

	links   int               // live links through this stage
	sharers map[string]*class // where classes are users
}

// class is one of the classes that share a stage.
type class struct {
	first, last *Flow // its requests, the oldest first
	flows       int
	links       int // live links, for a class in sharers

	mark  int64  // bytes
	seq   uint64 // when it arrived or was served last; among equal marks the lowest is next
	place int    // index in the queue
}

// line is the classes with requests, a heap (container/heap) whose first is next.
type line []*class

func (l line) Len() int { return len(l) }

func (l line) Less(i, j int) bool {
	return l[i].mark < l[j].mark || l[i].mark == l[j].mark && l[i].seq < l[j].seq
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

// join updates the mark of a class that had no requests.
func (s *stage) join(c *class) {
	c.mark = max(c.mark, s.clock)
	c.seq = s.turns
	s.turns++
}

// serve grants n bytes to class c. If c stays in the queue, the caller must fix its place there.
func (s *stage) serve(c *class, n int) {
	s.take(n)
	s.clock = max(s.clock, c.mark)
	c.mark += int64(n)
	c.seq = s.turns
	s.turns++
}

// push appends f to its class's requests.
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

// giveBack returns n bytes that class c was granted and did not use.
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

// remove removes f from its class's requests.
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

// A round is the time in which every waiting class should have its turn. It determines how much a
// flow may ask for at once: little with many waiting, so that no turn is far off; much with few, so
// that a turn is worth its cost.
const (
	roundTime = 50 * time.Millisecond
	minPiece  = 8 << 10   // bytes
	maxPiece  = 256 << 10 // bytes, or a batch of the bucket if that is more
	mostPiece = 1 << 20   // bytes: no link copies more at once
)

// idle reports whether no link passes here and the bucket has no debt.
func (s *stage) idle(now time.Time) bool {
	if s.links > 0 {
		return false
	}
	s.refill(now)
	return s.rate == 0 || s.level >= s.burst
}

// share returns how much one more request of class c may ask for at once.
func (s *stage) share(c *class) int {
	if s.rate == 0 {
		return mostPiece
	}
	classes := len(s.line)
	if c.flows == 0 {
		classes++
	}
	n := s.rate * roundTime.Seconds() / float64(classes*(c.flows+1))
	// A class with one link gets one piece of each batch. If that were less than its share of the
	// batch, the links of others would take the rest of it.
	most := min(max(maxPiece, s.rate*batchTime.Seconds()), mostPiece)
	return int(min(max(n, minPiece), most))
}
