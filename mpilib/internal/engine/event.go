package engine

// A Event is told to the engine's owner.
type Event struct {
	Kind    EventKind
	Rank    int    // of the world: who is lost, or who sends the note
	Context uint32 // of a note
	Note    []byte // the owner's
}

// EventKind says what a News is about.
type EventKind uint8

// The kinds.
const (
	Lost    EventKind = iota // nothing goes to the rank any more, nor comes: it has failed, left or was not reached
	Note                     // the rank sent one
	Outcast                  // the rank takes this process for failed; comes before it is Lost
)

// eventQueue is the news of which the owner was not told yet. The engine's lock guards it.
type eventQueue struct {
	e      *Engine
	events []Event
	runs   bool // a goroutine tells them
}

// addLost tells the owner that a rank is lost. mu is held.
func (q *eventQueue) addLost(rank int) { q.add(Event{Kind: Lost, Rank: rank}) }

// add queues news for the owner, in order: of each rank what is said here
// in their time, and at most maxNotes notes. mu is held.
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

// deliver tells the owner all news there are.
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
