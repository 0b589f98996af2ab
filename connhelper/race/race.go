// Package race decides in which order and at which times the techniques of a plan are tried, takes
// the best connection that is ready in time, and makes the first of many links to a site find out
// for the others. It does not know how a technique is carried out. What it remembers is in a Cache,
// whose lock is its only one.
package race

import (
	"context"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// The techniques of a plan race: each starts a little after the previous one, or as soon as that
// one failed, so that a path which cannot work costs no more than its head start. The relay starts
// early, because it always works, and when it is ready waits a while for a better technique.
const (
	relayStart = 50 * time.Millisecond  // after the first technique
	stagger    = 100 * time.Millisecond // between the others
	patience   = 500 * time.Millisecond // how long a ready carrier waits for a better one, from the start of the race

	// most is the longest head start of a technique that is known to work. It may have stopped
	// working, and then a job has waited that long for nothing.
	most = 400 * time.Millisecond

	// lastStart is when the last resorts start, unless everything else has failed before. What works
	// has connected by then in all likelihood, and most of a dial's budget is left, even where the
	// others fail in silence.
	lastStart = 2 * time.Second
)

// Entry is one technique in a race.
type Entry struct {
	Step  overlay.Step
	Start time.Duration // after the start of the race, at the latest
	Last  bool          // a last resort: no ready carrier waits for it unless it runs
}

// LineUp returns when each step of a plan starts. The technique that last won between these sites,
// if any, goes first, and the others follow only if it takes twice as long as it did: unnecessary
// attempts cost other daemons something. The steps in last follow one after the other when all of
// these have failed, or have not connected for so long that they will hardly do.
func LineUp(steps, last []overlay.Step, winner DialResult) []Entry {
	headStart := min(2*winner.Took, most)
	if winner.Technique == overlay.Relay {
		headStart = 0 // there may be a better one
	}
	var order []overlay.Step
	for _, s := range steps {
		if s.Technique == winner.Technique {
			order = append([]overlay.Step{s}, order...)
		} else {
			order = append(order, s)
		}
	}
	var entries []Entry
	next := time.Duration(0)
	for i, s := range order {
		switch {
		case i == 0:
			entries = append(entries, Entry{Step: s})
			next = max(stagger, headStart)
		case s.Technique == steps[0].Technique:
			// It is better than the last winner, which may have won by bad luck: it starts at the
			// same time, or it would never win again.
			entries = append(entries, Entry{Step: s})
		case s.Technique == overlay.Relay:
			entries = append(entries, Entry{Step: s, Start: max(relayStart, headStart)})
		default:
			entries = append(entries, Entry{Step: s, Start: next})
			next += stagger
		}
	}
	for i, s := range last {
		entries = append(entries, Entry{Step: s, Start: lastStart + time.Duration(i)*stagger, Last: true})
	}
	return entries
}

// entryState is the state of one entry in a race.
type entryState uint8

const (
	waiting entryState = iota // not started
	running
	ready
	failed
)

// pick returns which entry to take now, or -1: the best ready one, if no better one is possible any
// more or the race has lasted long enough.
func pick(entries []Entry, at []entryState, elapsed time.Duration) int {
	best := -1
	for i := range entries {
		if at[i] == ready && (best < 0 || entries[i].Step.Technique.PreferredTo(entries[best].Step.Technique)) {
			best = i
		}
	}
	if best < 0 || elapsed >= patience {
		return best
	}
	for i, e := range entries {
		if (at[i] == waiting && !e.Last || at[i] == running) && e.Step.Technique.PreferredTo(entries[best].Step.Technique) {
			return -1
		}
	}
	return best
}

// Dropper is a connection that was made and can be dropped when another is taken.
type Dropper interface{ Drop() }

// Outcome is the result of one entry of a race.
type Outcome[C Dropper] struct {
	Entry int // its index
	Conn  C   // if Err is nil
	Err   error
	Took  time.Duration // from the start of the race
}

// runner is one race under way. The goroutine in run owns it.
type runner[C Dropper] struct {
	entries  []Entry
	at       []entryState
	got      []Outcome[C] // of entries that are ready or failed
	begin    time.Time
	arrivals chan Outcome[C] // buffered for all: senders never block
	start    func(i int)
}

// Run runs the entries by try until one is taken, and cancels the others: their contexts end, and
// connections that they still make are dropped. Attempts are started by spawn and may outlast the
// race; the caller waits for them. Run returns the outcomes of those that ended by themselves and
// the index of the winner among the entries, or -1.
func Run[C Dropper](ctx context.Context, spawn func(func()), entries []Entry, try func(context.Context, overlay.Step) (C, error)) (got []Outcome[C], winner int) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &runner[C]{
		entries: entries, at: make([]entryState, len(entries)), begin: time.Now(), arrivals: make(chan Outcome[C], len(entries)),
	}
	r.start = func(i int) {
		r.at[i] = running
		spawn(func() {
			c, err := try(ctx, entries[i].Step)
			r.arrivals <- Outcome[C]{i, c, err, time.Since(r.begin)}
		})
	}
	winner = r.run(ctx)
	cancel()
	spawn(func() { r.clear(winner) })
	return r.got, winner
}

// run returns the winner, or -1 when all have failed.
func (r *runner[C]) run(ctx context.Context) int {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		elapsed := time.Since(r.begin)
		if i := pick(r.entries, r.at, elapsed); i >= 0 {
			return i
		}
		if ctx.Err() == nil {
			r.launch(elapsed)
		}
		if !r.busy() {
			return -1
		}
		timer.Reset(r.sleep(elapsed))
		select {
		case o := <-r.arrivals:
			r.at[o.Entry] = ready
			if o.Err != nil {
				r.at[o.Entry] = failed
			}
			r.got = append(r.got, o)
		case <-timer.C:
		}
	}
}

// launch starts the entries that are due; if nothing runs then, the next one.
func (r *runner[C]) launch(elapsed time.Duration) {
	next := -1
	for i, e := range r.entries {
		if r.at[i] != waiting {
			continue
		}
		if e.Start <= elapsed {
			r.start(i)
		} else if next < 0 || e.Start < r.entries[next].Start {
			next = i
		}
	}
	if next >= 0 && !r.busy() {
		r.start(next)
	}
}

func (r *runner[C]) busy() bool {
	for _, s := range r.at {
		if s == running || s == ready {
			return true
		}
	}
	return false
}

// sleep returns how long nothing is due unless an attempt ends.
func (r *runner[C]) sleep(elapsed time.Duration) time.Duration {
	d := time.Hour
	if elapsed < patience {
		d = patience - elapsed
	}
	for i, e := range r.entries {
		if r.at[i] == waiting {
			d = min(d, max(e.Start-elapsed, 0))
		}
	}
	return d
}

// clear waits for the attempts that still run and drops unwanted connections.
func (r *runner[C]) clear(winner int) {
	for _, o := range r.got {
		if o.Err == nil && o.Entry != winner {
			o.Conn.Drop()
		}
	}
	for _, s := range r.at {
		if s == running {
			if o := <-r.arrivals; o.Err == nil {
				o.Conn.Drop()
			}
		}
	}
}
