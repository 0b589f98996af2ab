package gate

import (
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-grid/isthmus/launch/gate/gatepb"
)

// maxUnacked is how many bytes of events a node keeps that the submitter has not
// acknowledged. Whoever has more to say waits.
const maxUnacked = 1 << 20

// events is what happened to a job since it was started: numbered, and kept until
// acknowledged, so that a submitter whose stream broke misses nothing. Safe for
// concurrent use.
type events struct {
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

func newEvents() *events { return &events{changed: make(chan struct{}), first: 1} }

func (e *events) change() {
	close(e.changed)
	e.changed = make(chan struct{})
}

// add appends an event. It waits while there are too many, unless the log is mute.
func (e *events) add(m *gatepb.ToSubmitter) {
	size := proto.Size(m)
	for {
		e.mu.Lock()
		if e.mute {
			e.mu.Unlock()
			return
		}
		if len(e.queue) == 0 || e.bytes+size <= maxUnacked {
			e.append(m, size)
			e.mu.Unlock()
			return
		}
		changed := e.changed
		e.mu.Unlock()
		<-changed
	}
}

// force appends an event that must be said, however many there are. There is a bounded
// number of such for a process.
func (e *events) force(m *gatepb.ToSubmitter) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.append(m, proto.Size(m))
}

// append numbers and keeps an event. mu is held.
func (e *events) append(m *gatepb.ToSubmitter, size int) {
	m.Event = e.first + uint64(len(e.queue))
	e.queue = append(e.queue, event{m, size})
	e.bytes += size
	e.change()
}

// silence drops what is added from now on. What is there stays.
func (e *events) silence() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mute = true
	e.change()
}

// ack forgets the events up to a number. Numbers that were not given out yet are
// taken for the last one.
func (e *events) ack(to uint64) {
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

// next returns the first event after a number that is still kept, or nil and what is
// closed when to ask again.
func (e *events) next(after uint64) (*gatepb.ToSubmitter, <-chan struct{}) {
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

// acked reports whether everything up to a number was acknowledged.
func (e *events) acked(to uint64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.first > to
}
