package nodeservice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/launch/jobagent"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/launch/stage"
)

type place = allocate.Process

// booking is one reservation here. It belongs to the goroutine of NodeService.Serve, as the reservations do, and
// so do its methods, unless they say otherwise. That goroutine waits for nobody: it neither sends to an agent nor
// to a stream. Others may use what does not change (k, Who, Ask, Hold) and what is safe for concurrent use (events,
// busy, gone); for the rest they send the goroutine a function (NodeService.do).
//
//	held --Start--> run: the agent's processes, then output files, then Over
//	  |                        | acknowledged, cancelled, or no submitter is attached
//	  v                        v
//	finish: the agent ends, the folder is removed, and the booking with it
type booking struct {
	k      *NodeService
	record                         // what the next node service has to know of it
	start  *nodepb.Start           // nil before it has come, and once the agent has it
	agent  *agent                  // nil: none was started
	events *jobagent.Events        // a copy of the agent's
	busy   context.Context         // not done while processes run
	idle   context.CancelCauseFunc // ends busy
	gone   chan struct{}           // closed when nothing is left of the booking

	stream   *conversation  // the attached stream; nil: none
	orphan   time.Time      // when it ends without a stream; zero: one is attached
	taken    *nodepb.Taken  // what the agent said of the input last
	exited   map[place]bool // processes whose exit the agent has reported
	files    int            // number of staged files
	bytes    int64          // their size
	why      string         // why it was ended; "": it was not, or by its submitter
	over     bool           // the event Over is known, or will not come
	released bool           // its events will not be requested any more
	ending   bool           // finish was called
	forgets  bool           // its deaths will be forgotten when busy ends
}

func (k *NodeService) newBooking(r record) *booking {
	b := &booking{k: k, record: r, events: jobagent.NewEvents(), exited: map[place]bool{}, gone: make(chan struct{})}
	b.busy, b.idle = context.WithCancelCause(context.Background())
	return b
}

// kill ends the processes. Their remaining output is still sent, but an unresponsive submitter is
// not waited for. An agent that does not comply is killed.
func (b *booking) kill(why string) {
	b.why = cmp.Or(b.why, why)
	b.sendLater(&nodepb.ToAgent{Say: &nodepb.ToAgent_End{End: &nodepb.EndJob{Why: []byte(why)}}})
	a := b.agent
	b.k.work.Go(func() {
		select {
		case <-b.busy.Done():
		case <-a.left:
		case <-time.After(killTime):
			b.k.log.Warn("a job agent does not end its job, and is killed", "job", string(b.Ask.Job), "agent", a.name)
			b.k.starter.Kill(a.name)
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
	report := b.deaths(b.absent(), absentReplica)
	send := b.sender(&nodepb.ToAgent{Say: &nodepb.ToAgent_Launch{Launch: &nodepb.Launch{Start: b.start, Helper: []byte(b.k.opts.Helper)}}})
	b.k.work.Go(func() {
		report()
		send()
	})
	b.start = nil           // the agent has it now, and the job's key with it
	if b.agent.hasEnded() { // since the files were staged
		b.reportLost()
	}
	if b.taken.GetWants() { // an agent that does not say so does not say this either
		b.answerLater(&nodepb.ToSubmitter{Say: &nodepb.ToSubmitter_Taken{Taken: b.taken}})
	}
}

// connected makes a connection the agent's.
func (b *booking) connected(link *jobagent.Link) {
	b.agent.link, b.Folder = link, string(link.Opened.Folder)
	b.taken = &nodepb.Taken{Bytes: link.Opened.Taken, Wants: !link.SaysWants()}
	switch {
	case b.released:
		b.sendLater(&nodepb.ToAgent{Say: &nodepb.ToAgent_Release{Release: &nodepb.Release{}}})
	case link.Opened.Waits && b.Started && b.start == nil: // what to run is known to none any more
		b.kill("the helper of its node ended, or lost its job agent, before it had the processes started")
	}
}

// noteExit records that the exit of a process was reported, for at most as many processes as the
// job has here.
func (b *booking) noteExit(q *nodepb.Process) {
	if len(b.exited) < len(b.Processes) {
		b.exited[q.Value()] = true
	}
}

// live returns the processes whose exit was not reported.
func (b *booking) live() (all []*nodepb.Process) {
	for _, q := range b.Processes {
		if !b.exited[q] {
			all = append(all, nodepb.ProcessOf(b.seat(q)))
		}
	}
	return all
}

// processesEnded reports that no process is left, so that the node can be booked again.
func (b *booking) processesEnded() {
	b.idle(nil)
	b.k.node.Exited(b.Ask.Key)
}

// isOver records that the log has the event Over.
func (b *booking) isOver(why string) {
	if b.over {
		return
	}
	b.over = true
	b.k.log.Info("job ended", "job", string(b.Ask.Job), "by", b.Who.Identity(), "why", why)
	b.k.auditJob(b, audit.JobEnd, why)
	b.settle()
}

// reportLost reports to the submitter what an agent that has ended left unreported.
func (b *booking) reportLost() {
	if !b.Started {
		return // launch does it
	}
	b.processesEnded()
	if b.over || b.released {
		b.over = true
		b.settle()
		return
	}
	why := cmp.Or(b.why, "its job agent was killed, and all its processes with it")
	for _, at := range b.Processes {
		if !b.exited[at] {
			b.events.Force(&nodepb.ToSubmitter{Say: &nodepb.ToSubmitter_Exited{Exited: &nodepb.Exited{
				Process: nodepb.ProcessOf(at), Status: 128 + uint32(syscall.SIGKILL), Signal: "KILL", Text: []byte(why),
			}}})
		}
	}
	b.events.Force(&nodepb.ToSubmitter{Say: &nodepb.ToSubmitter_Over{Over: &nodepb.Over{Ended: []byte(why)}}})
	b.isOver(why)
}

// release records that the events will not be requested any more, so that the booking can be
// removed when the processes have ended.
func (b *booking) release() {
	if b.released {
		return
	}
	b.released = true
	b.sendLater(&nodepb.ToAgent{Say: &nodepb.ToAgent_Release{Release: &nodepb.Release{}}})
	b.settle()
}

// settle removes a booking when its job is over and its events are not needed any more, unless it is the next node
// service's.
func (b *booking) settle() {
	if b.events.Finished() {
		b.release()
	}
	if b.over && b.released && !b.agent.isLeft() {
		b.finish()
	}
}

// finish removes what is left of a booking whose reservation is over.
func (b *booking) finish() {
	if b.ending {
		return
	}
	b.ending = true
	b.idle(nil)
	b.release()
	removed := func(time.Time) {
		delete(b.k.bookings, b.Ask.Key)
		close(b.gone)
	}
	a := b.agent
	if a == nil {
		removed(time.Time{})
		return
	}
	b.k.work.Go(func() {
		<-a.gone
		if b.Folder != "" { // which is not written any more; the agent has removed it, unless it was killed
			if err := jobagent.RemoveAll(b.Folder); err != nil && !errors.Is(err, os.ErrPermission) {
				b.k.log.Warn("files of a job stay", "folder", b.Folder, "error", err)
			}
		}
		a.forget()
		b.k.do(removed)
	})
}

// errOver means that a reservation ended during an operation for it.
var errOver = errors.New("the reservation has ended")

// home returns the job's agent, which has created the job's folder. The first call starts it. Any goroutine but Serve's
// may call it.
func (b *booking) home() (*agent, error) {
	var a *agent
	b.k.do(func(time.Time) {
		if b.ending {
			return
		}
		if b.agent == nil {
			b.agent = newAgent(b)
			b.k.work.Go(b.agent.begin)
		}
		a = b.agent
	})
	if a == nil {
		return nil, errOver
	}
	<-a.ready
	return a, a.err
}

// admitFile counts one more file that is staged, of so many bytes.
func (b *booking) admitFile(name string, bytes int64) error {
	switch limit := b.k.opts.Limit; {
	case b.Started:
		return fmt.Errorf("%s comes after the start of the job", name)
	case b.files >= maxFiles:
		return fmt.Errorf("%d files are staged; no more are taken", b.files)
	case b.bytes+bytes > limit:
		return fmt.Errorf("%w: the files of this job have %d bytes with %s, but the node accepts %d; ask its owner for a higher limit (node_service.limit)", stage.ErrFull, b.bytes+bytes, name, limit)
	}
	b.files++
	b.bytes += bytes
	return nil
}

// sender returns what sends a message over the connection that the agent has now, if any, and waits for an agent that
// does not read. It ignores a failed write: the agent's goroutine notices that. A message that cannot be carried ends the
// booking.
func (b *booking) sender(m *nodepb.ToAgent) (send func()) {
	a := b.agent
	if a == nil || a.link == nil {
		return func() {}
	}
	link := a.link
	return func() {
		switch err := link.Send(m); {
		case errors.Is(err, jobagent.ErrMessage):
			a.endFor(err)
		case err != nil:
			link.Close()
		}
	}
}

// sendAgent is for any goroutine but Serve's.
func (b *booking) sendAgent(m *nodepb.ToAgent) {
	send := func() {}
	b.k.do(func(time.Time) { send = b.sender(m) })
	send()
}

// sendLater is sendAgent for Serve's goroutine.
func (b *booking) sendLater(m *nodepb.ToAgent) { b.k.work.Go(b.sender(m)) }

// answerLater sends an answer to the submitter if it is attached; otherwise the submitter is told when it attaches.
func (b *booking) answerLater(m *nodepb.ToSubmitter) {
	if c := b.stream; c != nil {
		b.k.work.Go(func() { c.answer(m) }) // ends with the stream
	}
}
