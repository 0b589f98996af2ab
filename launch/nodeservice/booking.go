package nodeservice

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
	"github.com/isthmus-grid/isthmus/launch/jobagent"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/launch/reserve"
	"github.com/isthmus-grid/isthmus/launch/watch"
)

type place = allocate.Process

// oneShot is something that happens once: done is closed then.
type oneShot struct {
	done chan struct{}
	once *sync.Once
}

func newOneShot() oneShot { return oneShot{make(chan struct{}), new(sync.Once)} }

// happen does what belongs to it, unless it has happened already, and closes done.
func (o oneShot) happen(f func()) {
	o.once.Do(func() {
		f()
		close(o.done)
	})
}

// booking is one reservation and its local state.
//
//	held --Start--> run: the agent's processes, then output files, then Over
//	  |                        | acknowledged, cancelled, or no submitter is attached
//	  v                        v
//	finish: the agent ends, the folder is removed, and the booking with it
type booking struct {
	k    *NodeService
	key  reserve.Key
	name string // of its agent, and of its files
	who  Asker
	ask  reserve.Ask

	// Used only by the goroutine of NodeService.Serve.
	hold    reserve.Hold
	stream  *conversation // the attached stream; nil: none
	orphan  time.Time     // when it ends without a stream; zero: one is attached
	program *program      // nil before Start
	changes
	committed bool
	ending    bool // finish was called

	begun     atomic.Pointer[program]      // program, for the streams' readers
	events    *jobagent.Events             // a copy of the agent's
	taken     atomic.Pointer[nodepb.Taken] // what the agent said of the input last
	staged    chan *nodepb.StagedFile      // the agent's answer about a file
	ctx       context.Context              // cancelled with the reason why the booking ends
	stop      context.CancelCauseFunc
	busy      context.Context         // not done while processes run
	idle      context.CancelCauseFunc // ends busy
	since     time.Time               // when it was first committed
	free      oneShot                 // its events will not be requested any more
	overKnown oneShot                 // the event Over is known, or will not come
	forgets   sync.Once               // has deaths forgotten in the end
	agentGone chan struct{}           // closed when there was an agent and nothing is left of it
	gone      chan struct{}           // closed when nothing is left of the booking
	leave     chan struct{}           // closed when this node service leaves it to the next one
	ended     sync.Once               // reports to reserve.Node once that its processes have ended
	sending   sync.Mutex              // held while a message is sent to the agent
	starting  sync.Mutex              // held while an agent is started
	account   *Account                // of the agent, nil: none was started; written while starting is held

	mu       sync.Mutex // guards the fields below
	folder   string     // "" before it is created
	closed   bool       // no further agent may start
	left     bool       // leave is closed
	released bool       // free is closed
	files    int        // number of staged files
	bytes    int64      // their size
	link     *jobagent.Link
	exited   map[place]bool // processes whose exit the agent has reported
	over     uint64         // number of the event Over; 0: not yet
}

// changes is what became of the hosts of a job with spares since it started.
type changes struct {
	joined []watch.Host // those that have joined it
	dead   []string     // those that its watch here has taken for dead
}

func (k *NodeService) newBooking(who Asker, ask reserve.Ask) *booking {
	b := &booking{
		k: k, key: ask.Key, name: hex.EncodeToString(ask.Key[:8]), who: who, ask: ask, events: jobagent.NewEvents(),
		staged: make(chan *nodepb.StagedFile, 1), free: newOneShot(), overKnown: newOneShot(),
		agentGone: make(chan struct{}), gone: make(chan struct{}), leave: make(chan struct{}), exited: map[place]bool{},
	}
	b.busy, b.idle = context.WithCancelCause(context.Background())
	b.ctx, b.stop = context.WithCancelCause(context.Background())
	return b
}

// errKilled is why processes are killed; its text is for people.
type errKilled string

func (e errKilled) Error() string { return string(e) }

// whyEnded returns why the booking was ended; "" if it was not, or if its submitter ended it.
func (b *booking) whyEnded() string {
	var killed errKilled
	if errors.As(context.Cause(b.ctx), &killed) {
		return killed.Error()
	}
	return ""
}

// kill ends the processes. Their remaining output is still sent, but an unresponsive submitter is
// not waited for. An agent that does not comply is killed.
func (b *booking) kill(why string) {
	b.stop(errKilled(why))
	b.sendAgentLater(&nodepb.ToAgent{Say: &nodepb.ToAgent_End{End: &nodepb.EndJob{Why: []byte(why)}}})
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

// killTime is how long an agent may take to end its processes; those that ignore SIGTERM have 2 s
// of it.
const killTime = 10 * time.Second

// endAckTimeout is how long the submitter of a reservation that was ended may take to receive the
// remaining events.
const endAckTimeout = 3 * time.Second

// launch makes the agent start the processes.
func (b *booking) launch() {
	b.reportAbsent(b.program)
	m := &nodepb.Launch{Start: b.program.start, Helper: []byte(b.k.opts.Helper)}
	b.sendAgent(&nodepb.ToAgent{Say: &nodepb.ToAgent_Launch{Launch: m}})
	b.program.start = nil                          // the agent has it now, and the job's key with it
	if taken := b.taken.Load(); taken.GetWants() { // an agent that does not say so does not say this either
		b.tookInput(taken)
	}
	b.run()
}

// run waits until the job is over and its events are not needed any more.
func (b *booking) run() {
	for _, next := range []chan struct{}{b.overKnown.done, b.free.done} {
		select {
		case <-next:
		case <-b.leave:
			return
		}
	}
	b.k.do(func(time.Time) { b.finish() })
}

// processesEnded reports that no process is left, so that the node can be booked again.
func (b *booking) processesEnded() {
	b.ended.Do(func() {
		b.idle(nil)
		b.k.do(func(time.Time) { b.k.node.Exited(b.key) })
	})
}

// isOver records that the event with that number is the job's last.
func (b *booking) isOver(event uint64, why string) {
	b.mu.Lock()
	b.over = event
	b.mu.Unlock()
	b.overKnown.happen(func() {
		b.k.log.Info("job ended", "job", string(b.ask.Job), "by", b.who.Identity(), "why", why)
		b.k.auditJob(b, audit.JobEnd, why)
	})
	if b.isAcknowledged() { // it may have been acknowledged before it was recorded
		b.release()
	}
}

// isAcknowledged reports whether the submitter has acknowledged the last event.
func (b *booking) isAcknowledged() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.over != 0 && b.events.Acked(b.over)
}

// release records that the events will not be requested any more, so that the booking can be
// removed when the processes have ended.
func (b *booking) release() {
	b.free.happen(func() {
		b.mu.Lock()
		b.released = true
		b.mu.Unlock()
		b.sendAgentLater(&nodepb.ToAgent{Say: &nodepb.ToAgent_Release{Release: &nodepb.Release{}}})
	})
}

// finish removes what is left of a booking whose reservation is over. Only Serve's goroutine calls
// it.
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

// sendStream sends an answer to the submitter if it is attached; otherwise the submitter asks when
// it attaches.
func (b *booking) sendStream(m *nodepb.ToSubmitter) {
	var c *conversation
	if b.k.do(func(time.Time) { c = b.stream }) == nil && c != nil {
		c.answer(m)
	}
}

// errOver means that a reservation ended during an operation for it.
var errOver = errors.New("the reservation has ended")

// home returns the job's folder. The first call starts an agent, which creates the folder.
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

// remove waits for the end of the agent, which removes the folder, and removes the node service's
// files about it.
func (b *booking) remove() {
	b.starting.Lock() // waits for an agent that is being started
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.starting.Unlock()
	if b.account == nil {
		return
	}
	<-b.agentGone
	if b.folder != "" { // the agent has reported it
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
