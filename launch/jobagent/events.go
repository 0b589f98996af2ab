package jobagent

import (
	"fmt"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-grid/isthmus/launch/gate/gatepb"
)

// MaxUnacked is how many bytes of events, eventCost for each included, a node keeps that
// the submitter has not acknowledged. Whoever has more to say waits.
const MaxUnacked = 1 << 20

// Events is what happened to a job since it was started: numbered, and kept until
// acknowledged, so that a submitter whose stream broke misses nothing. Safe for
// concurrent use.
type Events struct {
	mu      sync.Mutex
	changed chan struct{} // closed and renewed at every change
	queue   []event
	first   uint64 // number of queue[0]
	bytes   int    // of queue
	mute    bool   // nobody will ever ask for what comes now
}

// event is one of the log.
type event struct {
	*gatepb.ToSubmitter
	size int // bytes
}

// NewEvents returns a log that has no events.
func NewEvents() *Events { return &Events{changed: make(chan struct{}), first: 1} }

// eventCost is what an event takes in memory besides its bytes, so that many small ones
// are no way around the bounds.
const eventCost = 256

func sizeOf(m *gatepb.ToSubmitter) int { return eventCost + proto.Size(m) }

func (e *Events) change() {
	close(e.changed)
	e.changed = make(chan struct{})
}

// Add appends an event. It waits while there are too many, unless the log is mute.
func (e *Events) Add(m *gatepb.ToSubmitter) {
	size := sizeOf(m)
	for {
		e.mu.Lock()
		if e.mute {
			e.mu.Unlock()
			return
		}
		if len(e.queue) == 0 || e.bytes+size <= MaxUnacked {
			e.append(m, size)
			e.mu.Unlock()
			return
		}
		changed := e.changed
		e.mu.Unlock()
		<-changed
	}
}

// Force appends an event that must be said, however many there are. There is a bounded
// number of such for a process.
func (e *Events) Force(m *gatepb.ToSubmitter) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.append(m, sizeOf(m))
}

// maxCopied bounds the bytes of events that a copy holds: what Add lets in, and what was
// forced besides.
const maxCopied = 8 * MaxUnacked

// Put appends an event of another log, of which this one is a copy: with its number,
// unless it is here already. A copy that is empty goes on from any later number. It
// fails where numbers are missing, or where the other keeps no bounds.
func (e *Events) Put(m *gatepb.ToSubmitter) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	next := e.first + uint64(len(e.queue))
	switch {
	case m.Event < next:
		return nil
	case m.Event > next && len(e.queue) > 0:
		return fmt.Errorf("event %d comes where %d is due", m.Event, next)
	case e.bytes > maxCopied:
		return fmt.Errorf("%d bytes of events that nobody acknowledged; at most %d", e.bytes, maxCopied)
	}
	if len(e.queue) == 0 {
		e.first = m.Event
	}
	e.append(m, sizeOf(m))
	return nil
}

// append numbers and keeps an event. mu is held.
func (e *Events) append(m *gatepb.ToSubmitter, size int) {
	m.Event = e.first + uint64(len(e.queue))
	e.queue = append(e.queue, event{m, size})
	e.bytes += size
	e.change()
}

// Silence drops what is added from now on. What is there stays.
func (e *Events) Silence() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mute = true
	e.change()
}

// Ack forgets the events up to a number. Numbers that were not given out yet are
// taken for the last one.
func (e *Events) Ack(to uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.queue) > 0 && e.first <= to {
		e.bytes -= e.queue[0].size
		e.queue[0] = event{}
		e.queue = e.queue[1:]
		e.first++
	}
	e.change()
}

// Next returns the first event after a number that is still kept, or nil and what is
// closed when to ask again.
func (e *Events) Next(after uint64) (*gatepb.ToSubmitter, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	i := uint64(0)
	if after >= e.first {
		i = after - e.first + 1
	}
	if i < uint64(len(e.queue)) {
		return e.queue[i].ToSubmitter, nil
	}
	return nil, e.changed
}

// Acked reports whether everything up to a number was acknowledged.
func (e *Events) Acked(to uint64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.first > to
}

// Last returns the number of the last event that was added; 0: none was.
func (e *Events) Last() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.first + uint64(len(e.queue)) - 1
}
