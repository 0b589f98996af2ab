package reserve

import (
	"cmp"
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// How a node remembers the submissions that it has no room for.
const (
	waiterTime  = 10 * time.Second // from a submission's last Ask until it is forgotten; it asks every second or two
	keptTime    = 3 * time.Second  // for which free room is kept for a waiting submission
	maxWaiters  = 256
	maxWaiting  = 16               // waiting submissions of one identity
	maxHeadWait = 10 * time.Second // that a submission may claim to have waited before the node heard of it
)

// queue are the submissions that wait for room, at this node or others: they ask again and again. When there is room, a submission has it only if none of those before it can use it. First
// are those of the identity with the fewest reservations here, then those that wait longest: one user's
// hundred jobs do not keep another's first one waiting.
//
// Room is kept for keptTime, since those that come first may wait for other nodes as well, or their
// submitters may be dead: then anyone has it, until the node has had no room again. So nobody can
// block a node by waiting.
type queue struct {
	all  []*waiter
	kept time.Time // since when room is kept; zero: it is not
}

// waiter is a submission that waits.
type waiter struct {
	job   overlay.JobID
	by    string // identity
	ask   Ask    // the last one
	since time.Time
	last  time.Time // of the Ask
	left  bool      // it had room, and gave it back: until it asks again, none is kept for it
}

// heard records an Ask of a submission that waits: one that asks for the first time may yet run elsewhere.
func (q *queue) heard(by string, m Ask, now time.Time) {
	q.all = slices.DeleteFunc(q.all, func(w *waiter) bool { return now.Sub(w.last) > waiterTime })
	w := q.find(by, m.Job)
	if w == nil && m.Queue && m.Waited > 0 && len(q.all) < maxWaiters && q.of(by) < maxWaiting {
		w = &waiter{job: m.Job, by: by, since: now.Add(-min(m.Waited, maxHeadWait))}
		q.all = append(q.all, w)
	}
	if w != nil {
		w.ask, w.last, w.left = m, now, false
	}
}

// gaveBack records that a submission has given up the room that it had. It may be a spare host of one that
// runs elsewhere, or ask again when it has tried other nodes.
func (q *queue) gaveBack(by string, job overlay.JobID) {
	if w := q.find(by, job); w != nil {
		w.left = true
	}
}

// full records that there is no room: when there is, it will be kept again.
func (q *queue) full() { q.kept = time.Time{} }

func (q *queue) find(by string, job overlay.JobID) *waiter {
	i := slices.IndexFunc(q.all, func(w *waiter) bool { return w.job == job && w.by == by })
	if i < 0 {
		return nil
	}
	return q.all[i]
}

// of returns how many submissions of an identity wait.
func (q *queue) of(by string) (n int) {
	for _, w := range q.all {
		if w.by == by {
			n++
		}
	}
	return n
}

// started forgets a submission: it has what it waited for.
func (q *queue) started(by string, job overlay.JobID) {
	q.all = slices.DeleteFunc(q.all, func(w *waiter) bool { return w.job == job && w.by == by })
}

// before returns the submissions that come before an Ask and for which room is kept, at most free ones:
// so many more jobs may be here. held says how many reservations an identity has, and fits whether a
// submission has none yet and there is room for it by itself. The time for which room is kept begins at
// the first call.
func (q *queue) before(by string, m Ask, free int, held map[string]int, fits func(Ask) bool, now time.Time) []*waiter {
	own := q.find(by, m.Job)
	if own == nil {
		own = &waiter{job: m.Job, by: by, since: now}
	}
	compare := func(a, b *waiter) int {
		return cmp.Or(cmp.Compare(held[a.by], held[b.by]), a.since.Compare(b.since), cmp.Compare(a.job, b.job))
	}
	first := slices.DeleteFunc(slices.Clone(q.all), func(w *waiter) bool { return w == own || w.left || compare(w, own) >= 0 || !fits(w.ask) })
	if len(first) == 0 {
		return nil
	}
	if q.kept.IsZero() {
		q.kept = now
	}
	if now.Sub(q.kept) > keptTime {
		return nil
	}
	slices.SortFunc(first, compare)
	return first[:min(len(first), free)]
}
