package debug

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/mpilib/internal/comm"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
	"github.com/isthmus-grid/isthmus/mpilib/internal/trace"
)

const (
	traceEvery  = 200 * time.Millisecond
	clockRounds = 8
	clockBound  = 5 * time.Second // for all of them
)

// A timeline is the part of a Watcher that writes the observed events.
type timeline struct {
	w     *Watcher
	out   *trace.Writer
	times chan clockNote // answers of rank 0

	mu        sync.Mutex // guards the rest; a leaf
	rings     []ring
	sent      numbers // messages
	received  numbers
	colls     map[*comm.Core]*PendingCall // under way
	linkState map[int]string              // by peer
}

// A ring holds spans that do not overlap: viewers require that for a thread, and a goroutine has no
// name.
type ring struct {
	busy bool
	end  time.Duration
}

// A span is a pending call.
type span struct {
	ring  int
	begun time.Duration
}

// clockNote is a request for the time, or its answer.
type clockNote struct {
	Sent int64 `json:"sent"` // nanoseconds since 1970, by the clock of the asker
	Time int64 `json:"time"` // by the clock of who answers
}

func newTimeline(w *Watcher, name string) (*timeline, error) {
	rank := w.cfg.Engine.Rank()
	title := fmt.Sprintf("rank %d", rank)
	if place := w.cfg.Here(); place.Name != "" {
		title += " on " + place.String()
	}
	out, err := trace.Open(name, rank, title)
	if err != nil {
		return nil, err
	}
	return &timeline{w: w, out: out, times: make(chan clockNote, clockRounds), colls: map[*comm.Core]*PendingCall{}, linkState: map[int]string{}}, nil
}

// serve aligns the clock and flushes periodically, until ctx ends.
func (t *timeline) serve(ctx context.Context) {
	t.align(ctx)
	tick := time.NewTicker(traceEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			t.recordLinks()
			t.out.Flush()
		case <-ctx.Done():
			return
		}
	}
}

// clock is the time of this machine on the timeline's time scale.
func (t *timeline) clock() int64 { return t.out.Start().Add(t.out.Now()).UnixNano() }

// align asks rank 0 for the time several times, and uses the answer with the shortest round trip.
func (t *timeline) align(ctx context.Context) {
	if t.w.cfg.Engine.Rank() == 0 {
		t.out.Align(0)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, clockBound)
	defer cancel()
	best, ahead := time.Duration(-1), time.Duration(0)
	for range clockRounds {
		if t.w.send(0, note{Kind: noteClock, Clock: &clockNote{Sent: t.clock()}}) != nil {
			break
		}
		select {
		case n := <-t.times:
			now := t.clock()
			if took := time.Duration(now - n.Sent); best < 0 || took < best {
				best, ahead = took, time.Duration(n.Time-(n.Sent+now)/2)
			}
			continue
		case <-ctx.Done():
		}
		break
	}
	if best < 0 {
		t.out.Add(trace.Event{Phase: trace.Instant, Name: "rank 0 did not send its time: this rank's own clock is used", At: t.out.Now()})
	}
	if ahead.Abs() <= best/2 {
		ahead = 0 // within the measurement error
	}
	t.out.Align(ahead)
}

// answerClock answers a request for the time, and handleClock handles an answer.
func (t *timeline) answerClock(to int, asked clockNote) {
	asked.Time = t.clock()
	t.w.send(to, note{Kind: noteTime, Clock: &asked})
}

func (t *timeline) handleClock(n clockNote) {
	select {
	case t.times <- n:
	default: // more than were requested
	}
}

// begin reserves a free ring for a call.
func (t *timeline) begin() span {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.out.Now()
	for i := range t.rings {
		if !t.rings[i].busy {
			t.rings[i].busy = true
			return span{i, max(now, t.rings[i].end)}
		}
	}
	t.rings = append(t.rings, ring{busy: true})
	return span{len(t.rings) - 1, now}
}

// finish writes a call.
func (t *timeline) finish(s span, name string, args map[string]any) {
	t.mu.Lock()
	end := max(t.out.Now(), s.begun)
	t.rings[s.ring] = ring{end: end + 1}
	t.mu.Unlock()
	t.out.Add(trace.Event{Phase: trace.Complete, Name: name, Kind: "call", At: s.begun, For: end - s.begun, Thread: s.ring, Args: args})
}

// started records a request that is about to start.
func (t *timeline) started(r Request, n int) {
	s := r.Observation()
	if what := r.Transfer(); what.Send {
		s.id = t.name(&t.sent, t.w.cfg.Engine.Rank(), what.Comm.Global(what.Peer), s.context, what.Tag)
	} else if what.Peer != mpi.AnySource && what.Tag != mpi.AnyTag {
		s.id = t.name(&t.received, what.Comm.Global(what.Peer), t.w.cfg.Engine.Rank(), s.context, what.Tag)
	}
	if s.call.name == "" {
		return // it is part of a collective call, which reports it later
	}
	at := t.begin()
	t.finish(at, s.call.name, map[string]any{"what": r.Transfer().String(), "bytes": n, "line": s.call.line})
	if r.Transfer().Send { // after its call, so that no file of a killed process ends between them
		t.out.Add(trace.Event{Phase: trace.FlowStart, Name: "message", Kind: "message", ID: s.id, At: at.begun, Thread: at.ring})
	}
}

// partSent records a send that is part of a collective call.
func (t *timeline) partSent(s *Observation) {
	t.out.Add(trace.Event{Phase: trace.FlowStart, Name: "message", Kind: "message", ID: s.id, At: max(t.out.Now(), s.coll.span.begun), Thread: s.coll.span.ring})
}

// ended records, once, a request that has completed.
func (t *timeline) ended(r Request) {
	s := r.Observation()
	got, err := r.Handle().Result()
	if r.Transfer().Send || err != nil || got.Cancelled || s.ended.Swap(true) {
		return
	}
	if s.id == "" {
		s.id = t.name(&t.received, got.Source, t.w.cfg.Engine.Rank(), s.context, got.Tag)
	}
	if s.coll != nil {
		t.out.Add(trace.Event{Phase: trace.FlowEnd, Name: "message", Kind: "message", ID: s.id, At: max(t.out.Now(), s.coll.span.begun), Thread: s.coll.span.ring})
		return
	}
	at := t.begin()
	t.out.Add(trace.Event{Phase: trace.FlowEnd, Name: "message", Kind: "message", ID: s.id, At: at.begun, Thread: at.ring})
	t.finish(at, fmt.Sprintf("received from rank %d", got.Source), map[string]any{"tag": got.Tag, "bytes": got.Bytes, "on": r.Transfer().Comm.Name()})
}

// entered records a collective call.
func (t *timeline) entered(c *PendingCall) {
	c.span = t.begin()
	if c.alone {
		return // over reports its end
	}
	t.mu.Lock()
	before := t.colls[c.comm]
	t.colls[c.comm] = c
	t.mu.Unlock()
	if before != nil {
		t.over(before)
	}
}

// left records the end of a call on a communicator, which may not be a collective one.
func (t *timeline) left(comm *comm.Core) {
	t.mu.Lock()
	c := t.colls[comm]
	delete(t.colls, comm)
	t.mu.Unlock()
	if c != nil {
		t.over(c)
	}
}

func (t *timeline) over(c *PendingCall) {
	t.finish(c.span, c.call.name, map[string]any{"on": c.comm.Name(), "number": c.key.Call, "line": c.call.line})
}

// recordLinks writes changes of the links.
func (t *timeline) recordLinks() {
	for _, l := range t.w.cfg.Links() {
		now := fmt.Sprintf("link to rank %d: %s", l.Peer, l.Technique)
		if l.Proxy != "" {
			now += " through " + l.Proxy
		}
		if l.Carriers != 1 {
			now += fmt.Sprintf(", %d carriers", l.Carriers)
		}
		t.mu.Lock()
		before := t.linkState[l.Peer]
		t.linkState[l.Peer] = now
		t.mu.Unlock()
		if before != now {
			t.out.Add(trace.Event{Phase: trace.Instant, Name: now, Kind: "link", At: t.out.Now(),
				Args: map[string]any{"reason": l.Reason, "rtt_ms": l.RTTMS, "setup_ms": l.SetupMS, "node": l.PeerNode}})
		}
	}
}

// close flushes the timeline.
func (t *timeline) close() error { return t.out.Close() }

// numbers counts messages from one rank to another in a context with a tag: the first one sent is
// the first one received. That gives names for arrows that both ends derive independently. Receives
// from any source or with any tag are counted at their end, others at their start; if a program
// mixes them for messages of one kind, arrows may be crossed.
//
// Counters that are unused for long are removed.
type numbers struct{ young, old map[string]int }

const maxNumbers = 1 << 15

func (n *numbers) next(key string) int {
	i, known := n.young[key]
	if !known {
		i = n.old[key]
	}
	if len(n.young) >= maxNumbers && !known {
		n.old, n.young = n.young, nil
	}
	if n.young == nil {
		n.young = map[string]int{}
	}
	n.young[key] = i + 1
	return i
}

func (t *timeline) name(n *numbers, from, to int, context uint32, tag int) string {
	key := fmt.Sprintf("%d-%d.%d.%d", from, to, context, tag)
	t.mu.Lock()
	defer t.mu.Unlock()
	return fmt.Sprintf("%s.%d", key, n.next(key))
}
