package jobagent

import (
	"fmt"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
)

// MaxUnacked bounds the bytes of unacknowledged events that a node keeps, including eventCost for
// each. At the bound, Add blocks.
const MaxUnacked = 1 << 20

// Events is the log of a job since it was started: numbered events, kept until acknowledged, so
// that a submitter whose stream broke misses nothing. Safe for concurrent use.
type Events struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced at every change
	queue   []event
	first   uint64 // number of queue[0]
	bytes   int    // of queue
	mute    bool   // later events will never be requested
	over    uint64 // number of the last event Over; 0: none has come
}

// event is one event of the log.
type event struct {
	*nodepb.ToSubmitter
	size int // bytes
}

// NewEvents returns an empty log.
func NewEvents() *Events { return &Events{changed: make(chan struct{}), first: 1} }

// eventCost is the memory of an event besides its bytes, so that many small events cannot evade the
// bounds.
const eventCost = 256

func sizeOf(m *nodepb.ToSubmitter) int { return eventCost + proto.Size(m) }

func (e *Events) change() {
	close(e.changed)
	e.changed = make(chan struct{})
}

// Add appends an event. It blocks while there are too many, unless the log is mute.
func (e *Events) Add(m *nodepb.ToSubmitter) {
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

// Force appends an event that must not be lost or delayed, however many there are. Each process
// causes a bounded number of these.
func (e *Events) Force(m *nodepb.ToSubmitter) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.append(m, sizeOf(m))
}

// maxCopied bounds the bytes of events in a copy: what Add admits, and forced events.
const maxCopied = 8 * MaxUnacked

// Put appends an event of another log, of which this log is a copy: under its number, unless it is
// here already. An empty copy continues from any later number. Put fails if numbers are missing, or
// if the other log exceeds the bounds.
func (e *Events) Put(m *nodepb.ToSubmitter) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	next := e.first + uint64(len(e.queue))
	switch {
	case m.Event < next:
		return nil
	case m.Event > next && len(e.queue) > 0:
		return fmt.Errorf("event %d comes where %d is due", m.Event, next)
	case e.bytes > maxCopied:
		return fmt.Errorf("%d bytes of events without an acknowledgement; at most %d", e.bytes, maxCopied)
	}
	if len(e.queue) == 0 {
		e.first = m.Event
	}
	e.append(m, sizeOf(m))
	return nil
}

// append numbers and stores an event. The caller must hold mu.
func (e *Events) append(m *nodepb.ToSubmitter, size int) {
	m.Event = e.first + uint64(len(e.queue))
	e.queue = append(e.queue, event{m, size})
	e.bytes += size
	if m.GetOver() != nil {
		e.over = m.Event
	}
	e.change()
}

// Silence drops events added from now on. Existing events stay.
func (e *Events) Silence() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mute = true
	e.change()
}

// Ack drops the events up to a number. A number not used yet counts as the last one.
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

// Next returns the first stored event after a number, or nil and a channel that is closed when to
// call again.
func (e *Events) Next(after uint64) (*nodepb.ToSubmitter, <-chan struct{}) {
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

// Finished reports whether the job's last event, Over, was acknowledged, and so all.
func (e *Events) Finished() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.over != 0 && e.first > e.over
}

// Last returns the number of the last event that was added; 0: none.
func (e *Events) Last() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.first + uint64(len(e.queue)) - 1
}
