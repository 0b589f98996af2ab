package debug

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
	"github.com/isthmus-grid/isthmus/mpilib/internal/waitfor"
)

// The ranks' watchers exchange messages in their own context, encoded as JSON: there are few of
// them, and all processes run the same version.

// note is a message from one Watcher to another.
type note struct {
	Kind    noteKind        `json:"kind"`
	From    int             `json:"from"` // world rank
	Entry   *entry          `json:"entry,omitempty"`
	Verdict *verdict        `json:"verdict,omitempty"`
	Stuck   *waitfor.Report `json:"stuck,omitempty"`
	Lost    []lost          `json:"lost,omitempty"`
	Clock   *clockNote      `json:"clock,omitempty"`
}

type noteKind string

const (
	noteEntry     noteKind = "entry"     // a rank has entered a collective call
	noteVerdict   noteKind = "verdict"   // whether all have entered the same
	noteAlive     noteKind = "alive"     // empty; its sender learns whether the receiver has left
	noteStuck     noteKind = "stuck"     // what a rank waits for that has done nothing for a while
	noteFinal     noteKind = "final"     // a rank has entered Finalize
	noteAllFinal  noteKind = "all-final" // all have
	noteEnd       noteKind = "end"       // behind the last message to a rank
	noteLost      noteKind = "lost"      // the messages that were never received there
	noteLeaving   noteKind = "leaving"   // a rank has all its answers
	noteAllLeaves noteKind = "all-leave" // all have
	noteClock     noteKind = "clock"     // a request for the time
	noteTime      noteKind = "time"      // and its answer
)

// maxNote bounds a message to a Watcher, in bytes. Longer ones are lost.
const maxNote = 256 << 10

// noMembers is the group of the watchers' receives: a failure of one rank does not end them.
type noMembers struct{}

func (noMembers) Member(int) bool       { return false }
func (noMembers) Whole() bool           { return false }
func (noMembers) Acknowledged(int) bool { return false }

// listen receives notes until the engine ends.
func (w *Watcher) listen(ctx context.Context) {
	buf := make([]byte, maxNote)
	for {
		var r engine.Request
		w.cfg.Engine.Irecv(&r, noMembers{}, w.cfg.Context, mpi.AnySource, mpi.AnyTag, buf)
		got, err := r.Wait(ctx)
		if errors.Is(err, mpi.ErrTruncate) {
			continue
		}
		if err != nil {
			return
		}
		var n note
		if json.Unmarshal(buf[:got.Bytes], &n) == nil {
			n.From = got.Source
			w.handle(n)
		}
	}
}

// handle handles a note. It does not block.
func (w *Watcher) handle(n note) {
	switch {
	case n.Kind == noteEntry && n.Entry != nil:
		w.compare(n.From, *n.Entry)
	case n.Kind == noteVerdict && n.Verdict != nil:
		w.decided(*n.Verdict)
	case n.Kind == noteStuck && n.Stuck != nil:
		w.collect(*n.Stuck)
	case n.Kind == noteClock && n.Clock != nil && w.timeline != nil:
		w.timeline.answerClock(n.From, *n.Clock)
	case n.Kind == noteTime && n.Clock != nil && w.timeline != nil:
		w.timeline.handleClock(*n.Clock)
	case n.Kind == noteEnd:
		w.send(n.From, note{Kind: noteLost, Lost: w.lostFrom(n.From)})
	case n.Kind == noteLost:
		w.answered(n.From, n.Lost)
	case n.Kind == noteFinal || n.Kind == noteLeaving:
		w.arrive(n.Kind)
	case n.Kind == noteAllFinal || n.Kind == noteAllLeaves:
		w.released(n.Kind)
	}
}

// send sends a note, or returns an error if the other rank has left. It does not block.
func (w *Watcher) send(world int, n note) error {
	if world == w.cfg.Engine.Rank() {
		n.From = world
		w.handle(n)
		return nil
	}
	b, err := json.Marshal(n)
	if err != nil {
		return err
	}
	r := new(engine.Request)
	w.cfg.Engine.Isend(r, noMembers{}, w.cfg.Context, world, 0, b, engine.Standard, false)
	if r.Done() {
		_, err = r.Result()
	}
	return err
}
