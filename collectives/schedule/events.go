package schedule

import "time"

// event is the beginning or the end of something.
type event struct {
	at   time.Duration
	seq  uint32 // events of one time happen in the order in which they were scheduled
	rank int32
	item int32 // a step of the rank, or a message to it
	what happening
}

type happening uint8

const (
	ready   happening = iota // the steps that the step waits for are done
	leave                    // the message reaches the path of its sender's site
	left                     // that path is free again
	reach                    // the message's beginning reaches the path of its receiver's site
	knock                    // it reaches the path of its receiver, within the site
	arrival                  // of the message
	landing                  // of a message that had to wait for its connection
	done                     // the step is done
)

func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

// events is the queue of future events, in order. Most are scheduled for the current time, after
// all others of that time.
type events struct {
	now   time.Duration
	seq   uint32
	today []event // scheduled for the time at which they were added
	next  int     // the first of these that has not been taken
	later []event // a heap: none comes before its parent, the one at half its index
}

func (q *events) push(e event) {
	if e.at <= q.now {
		q.today = append(q.today, e)
		return
	}
	q.seq++
	e.seq = q.seq
	i := len(q.later)
	q.later = append(q.later, e)
	for i > 0 {
		up := (i - 1) / 2
		if q.later[up].before(&e) {
			break
		}
		q.later[i] = q.later[up]
		i = up
	}
	q.later[i] = e
}

// take returns the next event. Its time becomes the current time.
func (q *events) take() (e event, any bool) {
	if q.next < len(q.today) && (len(q.later) == 0 || q.later[0].at > q.now) {
		e = q.today[q.next]
		q.next++
		return e, true
	}
	if q.next == len(q.today) {
		q.today, q.next = q.today[:0], 0
	}
	if len(q.later) == 0 {
		return e, false
	}
	e = q.pop()
	q.now = e.at
	return e, true
}

func (q *events) pop() event {
	first, n := q.later[0], len(q.later)-1
	e := q.later[n]
	q.later = q.later[:n]
	if n == 0 {
		return first
	}
	i := 0
	for {
		down := 2*i + 1
		if down >= n {
			break
		}
		if down+1 < n && q.later[down+1].before(&q.later[down]) {
			down++
		}
		if e.before(&q.later[down]) {
			break
		}
		q.later[i] = q.later[down]
		i = down
	}
	q.later[i] = e
	return first
}
