package gate

import (
	"context"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/launch/gate/gatepb"
	"github.com/isthmus-grid/isthmus/launch/jobagent"
	"github.com/isthmus-grid/isthmus/launch/reserve"
)

type place = allocate.Process

// booking is one reservation and all that belongs to it here.
//
//	held --Start--> run: the agent's processes, then output files, then Over
//	  |                        | acknowledged, cancelled, or nobody cares
//	  v                        v
//	finish: the agent ends, the folder goes, and with it the booking
type booking struct {
	k    *NodeService
	key  reserve.Key
	name string // of its agent, and of the files about it
	who  Asker
	ask  reserve.Ask

	// Of the node service's Serve.
	hold      reserve.Hold
	stream    *conversation // that is attached; nil: none
	orphan    time.Time     // when it ends for want of one; zero: there is one
	program   *program      // nil before Start
	committed bool
	ending    bool // finish was called

	begun     atomic.Pointer[program] // program, for the streams' readers
	events    *jobagent.Events        // a copy of the agent's
	taken     atomic.Uint64           // of the input, as the agent says
	staged    chan *gatepb.StagedFile // the agent's answer about a file
	ctx       context.Context         // until it is known why it ends
	stop      context.CancelCauseFunc
	busy      context.Context         // while processes run
	idle      context.CancelCauseFunc // ends busy
	since     time.Time               // when it was committed, first of all
	free      chan struct{}           // closed when nobody will ask for its events any more
	once      sync.Once               // closes free
	overCame  chan struct{}           // closed when there is an event Over, or will be none
	overOnce  sync.Once               // closes overCame
	agentGone chan struct{}           // closed when there was an agent, and nothing is left of it
	gone      chan struct{}           // closed when nothing is left
	leave     chan struct{}           // closed when the node service leaves it to the next one
	ended     sync.Once               // tells the node that its processes have ended
	sending   sync.Mutex              // held while something is said to the agent
	starting  sync.Mutex              // held while an agent is started
	hasAgent  bool                    // one was started; written while starting is held

	mu       sync.Mutex // guards the fields below
	folder   string     // "" before it is made
	closed   bool       // no agent is started any more
	left     bool       // leave is closed
	released bool       // free is closed
	files    int        // staged
	bytes    int64      // of them
	link     *jobagent.Link
	exited   map[place]bool // processes of which the agent said how they ended
	over     uint64         // number of the event Over; 0: not yet
}

func (k *NodeService) newBooking(who Asker, ask reserve.Ask) *booking {
	b := &booking{
		k: k, key: ask.Key, name: hex.EncodeToString(ask.Key[:8]), who: who, ask: ask, events: jobagent.NewEvents(),
		staged: make(chan *gatepb.StagedFile, 1), free: make(chan struct{}), overCame: make(chan struct{}),
		agentGone: make(chan struct{}), gone: make(chan struct{}), leave: make(chan struct{}), exited: map[place]bool{},
	}
	b.busy, b.idle = context.WithCancelCause(context.Background())
	b.ctx, b.stop = context.WithCancelCause(context.Background())
	return b
}

// errKilled is why processes are ended; its text is for people.
type errKilled string

func (e errKilled) Error() string { return string(e) }

// whyEnded is why the booking was ended, "" when it was not, or its submitter did it.
func (b *booking) whyEnded() string {
	var killed errKilled
	if errors.As(context.Cause(b.ctx), &killed) {
		return killed.Error()
	}
	return ""
}

// kill ends the processes. Their last words are still said, but nobody is waited for
// who does not listen. An agent that does not do it, is ended itself.
func (b *booking) kill(why string) {
	b.stop(errKilled(why))
	b.tellSoon(&gatepb.ToAgent{Say: &gatepb.ToAgent_End{End: &gatepb.EndJob{Why: why}}})
	b.k.work.Go(func() {
		select {
		case <-b.busy.Done():
		case <-b.leave:
		case <-time.After(killTime):
			b.k.log.Warn("a job agent does not end its job, and is killed", "job", string(b.ask.Job), "agent", b.name)
			b.k.starter.Kill(b.name)
		}
	})
}

// killTime is how long an agent has to end its processes, of which those that do not care
// for SIGTERM have 2 s.
const killTime = 10 * time.Second

// lastWords is how long the submitter of a reservation that was ended may take to hear
// what there is to say.
const lastWords = 3 * time.Second

// launch has the agent start the processes.
func (b *booking) launch() {
	m := &gatepb.Launch{Start: b.program.start, Helper: b.k.opts.Helper}
	b.sendAgent(&gatepb.ToAgent{Say: &gatepb.ToAgent_Launch{Launch: m}})
	b.program.start = nil // the agent has it, and with it the job's key
	b.run()
}

// run waits until all is over that was started.
func (b *booking) run() {
	for _, next := range []chan struct{}{b.overCame, b.free} {
		select {
		case <-next:
		case <-b.leave:
			return
		}
	}
	b.k.do(func(time.Time) { b.finish() })
}

// processesEnded says that no process is left, so that others may book.
func (b *booking) processesEnded() {
	b.ended.Do(func() {
		b.idle(nil)
		b.k.do(func(time.Time) { b.k.node.Exited(b.key) })
	})
}

// isOver notes that all has been said of the job, with the event of that number.
func (b *booking) isOver(event uint64, why string) {
	b.mu.Lock()
	b.over = event
	b.mu.Unlock()
	b.overOnce.Do(func() {
		b.k.log.Info("job ended", "job", string(b.ask.Job), "by", b.who.Identity(), "why", why)
		b.k.auditJob(b, audit.JobEnd, why)
		close(b.overCame)
	})
	if b.heardAll() { // it may have been acknowledged before it was noted
		b.release()
	}
}

// heardAll reports whether the submitter has acknowledged the last event.
func (b *booking) heardAll() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.over != 0 && b.events.Acked(b.over)
}

// release says that nobody will ask for the events any more, so that all can go when
// the processes have ended.
func (b *booking) release() {
	b.once.Do(func() {
		b.mu.Lock()
		b.released = true
		b.mu.Unlock()
		b.tellSoon(&gatepb.ToAgent{Say: &gatepb.ToAgent_Release{Release: &gatepb.Release{}}})
		close(b.free)
	})
}

// finish removes what is left of a booking whose reservation is over. Serve's goroutine
// calls it.
func (b *booking) finish() {
	if b.ending {
		return
	}
	b.ending = true
	b.idle(nil)
	b.release()
	b.k.work.Go(func() {
		b.remove()
		b.k.do(func(time.Time) {
			delete(b.k.bookings, b.key)
			close(b.gone)
		})
	})
}

// tellStream answers the submitter, if it is there; otherwise it asks when it attaches.
func (b *booking) tellStream(m *gatepb.ToSubmitter) {
	var c *conversation
	if b.k.do(func(time.Time) { c = b.stream }) == nil && c != nil {
		c.answer(m)
	}
}

// errOver says that a reservation has ended while something was done for it.
var errOver = errors.New("the reservation has ended")

// home returns the job's folder, which an agent makes that is started when it is first
// asked for.
func (b *booking) home() (string, error) {
	b.starting.Lock()
	defer b.starting.Unlock()
	b.mu.Lock()
	closed, folder := b.closed, b.folder
	b.mu.Unlock()
	switch {
	case closed:
		return "", errOver
	case folder != "":
		return folder, nil
	}
	if _, err := b.k.openStore(); err != nil {
		return "", err
	}
	return b.startAgent()
}

// remove waits for the end of the agent, which removes the folder, and removes what the
// node service keeps about it.
func (b *booking) remove() {
	b.starting.Lock() // for an agent that is being started
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.starting.Unlock()
	if !b.hasAgent {
		return
	}
	<-b.agentGone
	if b.folder != "" { // the agent has said it
		if err := jobagent.RemoveAll(b.folder); err != nil && !errors.Is(err, os.ErrPermission) {
			b.k.log.Warn("files of a job stay", "folder", b.folder, "error", err)
		}
	}
	b.forget()
}

// forget removes the agent's socket and the booking's record.
func (b *booking) forget() {
	os.Remove(filepath.Join(b.k.agents(), b.name))
	os.Remove(b.k.recordFile(b.name))
}
