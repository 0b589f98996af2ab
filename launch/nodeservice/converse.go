package nodeservice

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/launch/reserve"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Stream is the node's end of a conversation's gRPC stream.
type Stream interface {
	Context() context.Context
	Send(*nodepb.ToSubmitter) error
	Recv() (*nodepb.ToNode, error)
}

// conversation is one stream about one booking.
type conversation struct {
	k        *NodeService
	who      Asker
	b        *booking
	out      chan *nodepb.ToSubmitter // answers; an answer waits while it is full
	have     uint64                   // the last event that the submitter had when it attached
	over     chan struct{}            // closed when the stream ends
	replaced chan struct{}            // closed by Serve's goroutine when another stream attaches
	leaving  atomic.Bool              // the submitter has sent Cancel and still needs the answer
	incoming incoming
}

// Converse serves one stream of who until the conversation or the stream ends.
func (k *NodeService) Converse(who Asker, stream Stream) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	c := &conversation{k: k, who: who, out: make(chan *nodepb.ToSubmitter, 16), over: make(chan struct{}), replaced: make(chan struct{})}
	defer close(c.over)
	answer, err := c.begin(first)
	if err != nil {
		return control.Status(err)
	}
	if c.b != nil {
		defer k.do(func(now time.Time) { c.detach(now) })
	}
	if err := stream.Send(answer); err != nil || c.b == nil {
		return err
	}
	heard := make(chan error, 1)
	go func() { heard <- c.readLoop(stream) }() // ends with the stream, which ends when this returns
	return c.sendAll(stream, heard)
}

// begin handles the first message. Without a booking the answer ends the conversation.
func (c *conversation) begin(first *nodepb.ToNode) (*nodepb.ToSubmitter, error) {
	switch m := first.GetSay().(type) {
	case *nodepb.ToNode_Ask:
		ask, err := nodepb.AskOf(m.Ask)
		if err != nil {
			return &nodepb.ToSubmitter{Say: &nodepb.ToSubmitter_Nok{Nok: &nodepb.NOK{Reason: string(reserve.Invalid), Text: []byte(err.Error())}}}, nil
		}
		return c.ask(ask)
	case *nodepb.ToNode_Attach:
		key, err := nodepb.KeyOf(m.Attach.Key)
		if err != nil {
			return nodepb.RefusedOf(nodepb.Refused_ATTACH, reserve.Invalid, err.Error()), nil
		}
		c.have = m.Attach.Have
		return c.attachTo(key, m.Attach.Hold.Value())
	case *nodepb.ToNode_Cancel:
		key, err := nodepb.KeyOf(m.Cancel.Key)
		if err != nil {
			return nodepb.RefusedOf(nodepb.Refused_CANCEL, reserve.Invalid, err.Error()), nil
		}
		return c.cancel(key)
	}
	return nil, fmt.Errorf("a conversation begins with ask, attach or cancel, not with %T", first.GetSay())
}

// ask handles step 4 of the eight.
func (c *conversation) ask(ask reserve.Ask) (answer *nodepb.ToSubmitter, err error) {
	k := c.k
	err = k.do(func(now time.Time) {
		if k.stopping {
			answer = nodepb.AnswerOf(reserve.NOK{Key: ask.Key, Reason: reserve.Busy, Text: "the helper ends"}, 0)
			return
		}
		if err := k.admit(c.who); err != nil {
			answer = nodepb.AnswerOf(reserve.NOK{Key: ask.Key, Reason: reserve.Denied, Text: err.Error()}, 0)
			k.auditDenied(c.who, ask, err.Error())
			return
		}
		reply, actions := k.node.Receive(c.who.requester(), ask, now)
		k.act(actions, lateStart)
		answer = nodepb.AnswerOf(reply, 0)
		if nok, refused := reply.(reserve.NOK); refused && nok.Reason == reserve.Denied {
			k.auditDenied(c.who, ask, nok.Text)
		}
		ok, granted := reply.(reserve.OK)
		if !granted {
			return
		}
		b := k.bookings[ask.Key]
		if b == nil {
			b = k.newBooking(record{Who: c.who, Ask: ask, Hold: ok.Hold})
			k.bookings[ask.Key] = b
			k.log.Info("booked", "job", string(ask.Job), "by", c.who.Identity(), "processes", ok.Processes)
		}
		c.attach(b)
	})
	return answer, err
}

// attachTo resumes a booking.
func (c *conversation) attachTo(key reserve.Key, hold reserve.Hold) (answer *nodepb.ToSubmitter, err error) {
	k := c.k
	err = k.do(func(now time.Time) {
		b := k.bookings[key]
		if b == nil || b.ending || b.Hold != hold || b.Who.Identity() != c.who.Identity() {
			answer = k.missing(c.who, b, key, hold, now)
			return
		}
		c.attach(b)
		answer = &nodepb.ToSubmitter{Say: &nodepb.ToSubmitter_Attached{Attached: &nodepb.Attached{
			Started: b.Started, Committed: b.Committed, Taken: b.taken.GetBytes(),
		}}}
		if len(b.Dead) > 0 {
			c.out <- b.takenForDead() // has room, as nothing was sent on this stream
		}
		if b.taken.GetWants() {
			c.out <- &nodepb.ToSubmitter{Say: &nodepb.ToSubmitter_Taken{Taken: b.taken}}
		}
	})
	return answer, err
}

// missing returns the answer to a key that cannot be attached to. The node remembers for some time
// what became of its keys; a Renew for a key that is gone has no effect.
func (k *NodeService) missing(who Asker, b *booking, key reserve.Key, hold reserve.Hold, now time.Time) *nodepb.ToSubmitter {
	const gone = "there is no reservation with this key (any more)"
	if b == nil && !k.node.Has(key) {
		reply, actions := k.node.Receive(who.requester(), reserve.Renew{Key: key, Hold: hold}, now)
		k.act(actions, lateStart)
		switch reply := reply.(type) {
		case reserve.Started:
			return nodepb.RefusedOf(nodepb.Refused_ATTACH, reserve.Done, gone)
		case reserve.Refused:
			return nodepb.AnswerOf(reply, nodepb.Refused_ATTACH)
		}
	}
	return nodepb.RefusedOf(nodepb.Refused_ATTACH, reserve.Unknown, gone)
}

// attach makes c the booking's stream. Only Serve's goroutine calls it.
func (c *conversation) attach(b *booking) {
	if b.stream != nil {
		close(b.stream.replaced)
	}
	b.stream, b.orphan, c.b = c, time.Time{}, b
	b.events.Ack(c.have)
}

// detach leaves the booking for another stream to attach to, for some time.
func (c *conversation) detach(now time.Time) {
	if b := c.b; b.stream == c {
		b.stream, b.orphan = nil, now.Add(c.k.opts.Orphan)
	}
}

// cancel ends the booking of a key, and waits until it is gone.
func (c *conversation) cancel(key reserve.Key) (answer *nodepb.ToSubmitter, err error) {
	k := c.k
	var b *booking
	err = k.do(func(now time.Time) {
		reply, actions := k.node.Receive(c.who.requester(), reserve.Cancel{Key: key}, now)
		answer = nodepb.AnswerOf(reply, nodepb.Refused_CANCEL)
		k.act(actions, "its submitter cancelled it")
		if _, done := reply.(reserve.Cancelled); done {
			if b = k.bookings[key]; b != nil && b.Who.Identity() == c.who.Identity() {
				k.end(b, "", now)
			}
		}
	})
	if b == nil || err != nil {
		return answer, err
	}
	select {
	case <-b.gone:
		return answer, nil
	case <-time.After(goneTime):
		return nil, fmt.Errorf("%w: the processes of job %s at %v did not end within %v of SIGKILL", overlay.ErrTimeout, b.Ask.Job, k.opts.Node, goneTime)
	}
}

// sendAll sends answers and events until the conversation is over.
func (c *conversation) sendAll(stream Stream, heard <-chan error) error {
	at, gone := c.have, c.b.gone
	for {
		// Answers first: a job's Started precedes its first event.
		select {
		case m := <-c.out:
			if err := stream.Send(m); err != nil || m.GetCancelled() != nil {
				return err
			}
			continue
		default:
		}
		event, more := c.b.events.Next(at)
		if event != nil {
			if err := stream.Send(event); err != nil {
				return err
			}
			at = event.Event
			more = closed
		}
		select {
		case <-more:
		case m := <-c.out:
			if err := stream.Send(m); err != nil || m.GetCancelled() != nil {
				return err
			}
		case err := <-heard:
			return err
		case <-c.replaced:
			return stream.Send(fault(nodepb.Fault_REPLACED, "", "another stream attached to the reservation"))
		case <-gone:
			if c.leaving.Load() {
				gone = nil
				continue
			}
			return c.finalMessage(stream, at)
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// finalMessage sends the remaining answers and events of a booking that is gone.
func (c *conversation) finalMessage(stream Stream, at uint64) error {
	for {
		select {
		case m := <-c.out:
			if err := stream.Send(m); err != nil {
				return err
			}
			continue
		default:
		}
		event, _ := c.b.events.Next(at)
		if event == nil {
			return nil
		}
		if err := stream.Send(event); err != nil {
			return err
		}
		at = event.Event
	}
}

// closed is a closed channel.
var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// answer queues a message, unless the stream has ended.
func (c *conversation) answer(m *nodepb.ToSubmitter) {
	select {
	case c.out <- m:
	case <-c.over:
	}
}

// readLoop handles the submitter's messages.
func (c *conversation) readLoop(stream Stream) error {
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = c.take(m)
		}
		if err != nil {
			return control.Status(err)
		}
	}
}

// take handles one message.
func (c *conversation) take(m *nodepb.ToNode) error {
	switch m := m.GetSay().(type) {
	case *nodepb.ToNode_Renew:
		return c.refuseWith(reserve.Renew{Key: c.b.Ask.Key, Hold: m.Renew.Hold.Value()}, nodepb.Refused_RENEW)
	case *nodepb.ToNode_Commit:
		return c.refuseWith(reserve.Commit{Key: c.b.Ask.Key, Hold: m.Commit.Hold.Value()}, nodepb.Refused_COMMIT)
	case *nodepb.ToNode_Start:
		return c.start(m.Start)
	case *nodepb.ToNode_Cancel:
		key, err := nodepb.KeyOf(m.Cancel.Key)
		if err != nil || key != c.b.Ask.Key {
			c.answer(nodepb.RefusedOf(nodepb.Refused_CANCEL, reserve.Invalid, "this conversation is about another reservation"))
			return nil
		}
		c.leaving.Store(true)
		answer, err := c.cancel(key)
		if err == nil {
			c.answer(answer)
		}
		return err
	case *nodepb.ToNode_Manifest:
		c.manifest(m.Manifest)
	case *nodepb.ToNode_Chunk:
		c.chunk(m.Chunk)
	case *nodepb.ToNode_Input:
		listens := false
		c.k.do(func(time.Time) { listens = c.b.listens() })
		if !listens {
			c.answer(fault(nodepb.Fault_INVALID, "", "input, and no process that reads it was started here"))
		} else {
			c.b.sendAgent(&nodepb.ToAgent{Say: &nodepb.ToAgent_Input{Input: m.Input}})
		}
	case *nodepb.ToNode_Signal:
		c.signal(m.Signal)
	case *nodepb.ToNode_Dead:
		if err := c.b.reportDead(m.Dead); err != nil {
			c.answer(fault(nodepb.Fault_INVALID, "", "%v", err))
		}
	case *nodepb.ToNode_Join:
		if err := c.b.join(m.Join); err != nil {
			c.answer(fault(nodepb.Fault_INVALID, "", "%v", err))
		}
	case *nodepb.ToNode_Ack:
		c.b.events.Ack(m.Ack.Event)
		c.b.sendAgent(&nodepb.ToAgent{Say: &nodepb.ToAgent_Ack{Ack: m.Ack}})
		if c.b.events.Finished() {
			c.k.do(func(time.Time) { c.b.settle() })
		}
	default:
		c.answer(fault(nodepb.Fault_INVALID, "", "a message of type %T in the midst of a conversation", m))
	}
	return nil
}

// refuseWith gives a message to the reservation's state machine and sends its answer.
func (c *conversation) refuseWith(m reserve.Message, what nodepb.Refused_What) error {
	k, b := c.k, c.b
	var answer *nodepb.ToSubmitter
	err := k.do(func(now time.Time) {
		reply, actions := k.node.Receive(c.who.requester(), m, now)
		k.act(actions, lateStart)
		if _, committed := reply.(reserve.Committed); committed && !b.Committed {
			b.Committed, b.Since = true, now
			b.note()
			k.watchNodes(b) // also if the job is over: then it tells the other watches so
		}
		answer = nodepb.AnswerOf(reply, what)
	})
	if err == nil {
		c.answer(answer)
	}
	return err
}

// start handles steps 7 and 8 of the eight.
func (c *conversation) start(m *nodepb.Start) error {
	k, b := c.k, c.b
	program, err := programOf(m, b.Ask.Job)
	if err != nil {
		c.answer(nodepb.RefusedOf(nodepb.Refused_START, reserve.Invalid, err.Error()))
		return nil
	}
	if _, err = b.home(); err != nil && !errors.Is(err, errOver) { // otherwise the node knows the reason better
		c.answer(nodepb.RefusedOf(nodepb.Refused_START, reserve.Invalid, err.Error()))
		return nil
	}
	var answer *nodepb.ToSubmitter
	var actions []reserve.Action
	err = k.do(func(now time.Time) {
		var reply reserve.Message
		reply, actions = k.node.Receive(c.who.requester(), reserve.Start{Key: b.Ask.Key, Hold: m.Hold.Value(), Processes: program.Processes}, now)
		if _, started := reply.(reserve.Started); started && !b.Started && k.node.Has(b.Ask.Key) {
			b.Started, b.program, b.start = true, program, m
			b.note()
			k.log.Info("job starts", "job", string(b.Ask.Job), "by", b.Who.Identity(), "processes", len(b.Processes), "program", b.Argv[0])
			k.auditJob(b, audit.JobStart, fmt.Sprintf("%d processes of %s", len(b.Processes), b.Argv[0]))
		}
		answer = nodepb.AnswerOf(reply, nodepb.Refused_START)
		if s := answer.GetStarted(); s != nil {
			s.Folder = []byte(b.Folder)
		}
	})
	if err != nil {
		return err
	}
	c.answer(answer)
	return k.do(func(time.Time) { k.act(actions, lateStart) })
}

// signal sends a signal to the running processes.
func (c *conversation) signal(m *nodepb.Signal) {
	m.Name = strings.TrimPrefix(m.Name, "SIG")
	if unix.SignalNum("SIG"+m.Name) == 0 {
		c.answer(fault(nodepb.Fault_INVALID, "", "there is no signal SIG%.20s at this node", m.Name))
		return
	}
	c.b.sendAgent(&nodepb.ToAgent{Say: &nodepb.ToAgent_Signal{Signal: m}})
}
