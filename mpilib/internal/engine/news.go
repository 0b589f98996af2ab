package engine

// A News is told to the engine's owner.
type News struct {
	Kind    NewsKind
	Rank    int    // of the world: who is lost, or who sends the note
	Context uint32 // of a note
	Note    []byte // the owner's
}

// NewsKind says what a News is about.
type NewsKind uint8

// The kinds.
const (
	Lost    NewsKind = iota // nothing goes to the rank any more, nor comes: it has failed, left or was not reached
	Note                    // the rank sent one
	Outcast                 // the rank takes this process for failed; comes before it is Lost
)

// newsQueue is the news of which the owner was not told yet. The engine's lock guards it.
type newsQueue struct {
	e    *Engine
	news []News
	runs bool // a goroutine tells them
}

// lost tells the owner that a rank is lost. mu is held.
func (q *newsQueue) lost(rank int) { q.add(News{Kind: Lost, Rank: rank}) }

// add queues news for the owner, in order: of each rank what is said here
// in their time, and at most maxNotes notes. mu is held.
func (q *newsQueue) add(n News) {
	e := q.e
	if e.cfg.OnNews == nil || e.ctx.Err() != nil {
		return
	}
	q.news = append(q.news, n)
	if !q.runs {
		q.runs = true
		e.work.Go(q.run)
	}
}

// run tells the owner all news there are.
func (q *newsQueue) run() {
	e := q.e
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(q.news) > 0 {
		n := q.news[0]
		q.news = q.news[1:]
		if n.Kind == Note {
			p := e.peers[n.Rank]
			p.notes--
			p.noteBytes -= len(n.Note)
		}
		e.mu.Unlock()
		e.cfg.OnNews(n)
		e.mu.Lock()
	}
	q.news, q.runs = nil, false
}
