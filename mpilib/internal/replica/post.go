package replica

import (
	"maps"
	"slices"
)

// AnySource is the source of a receive of which a point decides whose message it gets.
const AnySource = -1

// A Receive is a receive that the program posts. Its memory is the caller's.
type Receive struct {
	Context uint32
	Source  int    // rank, or AnySource until it is posted
	Tag     int    // or any negative number
	Line    string // as of Begin, if it is from AnySource
	Owner   any    // the caller's

	point uint64 // whose outcome says what it gets; 0: none
}

// Point returns the point that decides what r gets; 0: none does. It is to be decided when r has matched a message, or was
// cancelled, if r was posted with AnySource.
func (r *Receive) Point() uint64 { return r.point }

// Post is called for each receive, in the program's order. It is posted at once, unless what it gets, or what an
// earlier one in its context gets, is still to be decided elsewhere: then it could take a message that is not
// its own. A receive from any source is posted with the source and tag that were decided.
func (p *Process) Post(r *Receive) {
	if r.Source == AnySource {
		r.point = p.Begin(KindReceive, r.Line)
	}
	queue := p.receives[r.Context]
	if len(queue) == 0 && p.post(r) {
		return
	}
	p.receives[r.Context] = append(queue, r)
}

// post posts r if that can be done now.
func (p *Process) post(r *Receive) bool {
	if r.point == 0 {
		p.emit(Effect{Kind: Post, Receive: r})
		return true
	}
	o, answer := p.Outcome(r.point)
	switch {
	case answer == Wait && !p.IsLeader():
		return false
	case answer == Replay && o.Source == Cancelled:
		p.emit(Effect{Kind: Cancel, Receive: r})
		return true
	case answer == Replay:
		r.Source, r.Tag = o.Source, o.Tag
	}
	p.emit(Effect{Kind: Post, Receive: r})
	return true
}

// postAll posts the receives that waited, as far as it is decided what they get.
func (p *Process) postAll() {
	for _, context := range slices.Sorted(maps.Keys(p.receives)) {
		queue := p.receives[context]
		for len(queue) > 0 && p.post(queue[0]) {
			queue = queue[1:]
		}
		if len(queue) > 0 {
			p.receives[context] = queue
		} else {
			delete(p.receives, context)
		}
	}
}

// Withdraw takes back a receive that no message has matched, which the program has given up. That is no outcome: a
// program does not do it in one replica only.
func (p *Process) Withdraw(r *Receive) {
	l := &p.log
	queue := slices.DeleteFunc(p.receives[r.Context], func(q *Receive) bool { return q == r })
	if p.receives[r.Context] = queue; len(queue) == 0 {
		delete(p.receives, r.Context)
	}
	if _, open := l.open[r.point]; open {
		if position := l.positions[r.point]; position == 0 && p.IsLeader() {
			p.Decide(r.point, Outcome{Source: Cancelled})
		} else {
			p.markUsed(r.point, position)
		}
	}
	p.postAll()
}
