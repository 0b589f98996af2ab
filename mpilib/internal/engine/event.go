package engine

// An Event is reported to the engine's owner.
type Event struct {
	Kind    EventKind
	Rank    int    // world rank: the lost one, or the sender of the note
	Context uint32 // of a note
	Note    []byte // the owner's
}

// EventKind is the kind of an Event.
type EventKind uint8

// The kinds.
const (
	Lost    EventKind = iota // no messages to or from the rank any more: it has failed, left or could not be reached
	Note                     // the rank has sent one
	Outcast                  // the rank treats this process as failed; precedes its Lost
)

// eventQueue holds the events that were not reported to the owner yet. The engine's lock guards it.
type eventQueue struct {
	e      *Engine
	events []Event
	runs   bool // a goroutine is reporting them
}

// addLost reports to the owner that a rank is lost. mu is held.
func (q *eventQueue) addLost(rank int) { q.add(Event{Kind: Lost, Rank: rank}) }

// add queues an event for the owner, in order. The number of events is bounded: for each rank one of each
// kind, and at most maxNotes notes. mu is held.
func (q *eventQueue) add(n Event) {
	e := q.e
	if e.cfg.OnEvent == nil || e.ctx.Err() != nil {
		return
	}
	q.events = append(q.events, n)
	if !q.runs {
		q.runs = true
		e.work.Go(q.deliver)
	}
}

// deliver reports the queued events to the owner, without holding mu.
func (q *eventQueue) deliver() {
	e := q.e
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(q.events) > 0 {
		n := q.events[0]
		q.events = q.events[1:]
		if n.Kind == Note {
			p := e.peers[n.Rank]
			p.notes--
			p.noteBytes -= len(n.Note)
		}
		e.mu.Unlock()
		e.cfg.OnEvent(n)
		e.mu.Lock()
	}
	q.events, q.runs = nil, false
}
