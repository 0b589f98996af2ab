package submit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/launch/reserve"
	"github.com/isthmus-grid/isthmus/overlay"
)

// How a broken conversation is resumed.
const (
	retryFirst = 100 * time.Millisecond
	retryMost  = 2 * time.Second
	retryTime  = 30 * time.Second // after that the node has ended the job by itself
)

// When events are acknowledged.
const (
	ackBytes = 128 << 10
	ackDelay = 100 * time.Millisecond
)

// event is what a conversation reports to the driver.
type event struct {
	from *conversation
	say  *nodepb.ToSubmitter // a message from the node; nil: one of the fields below

	unreachable error // the first stream could not be opened: the node received nothing
	broken      error // a stream broke, and the conversation opens another
	back        bool  // the new stream works
	lost        error // no stream worked in time, or the node no longer knows the reservation
	staged      bool  // the node has all files
	output      error // a process's output could not be delivered
	fault       error // a file could not be read here

	// Of a submission for a process that replaces another one, from is nil, and one of the fields below is set.
	replacement *replacement
	at          *Placed // it runs there
	ended       *ending // the submission has ended
	dead        *report // of its node's failure detector
}

// A report says which nodes a node has taken for dead.
type report struct {
	by   overlay.NodeID
	dead []overlay.NodeID
}

// node returns the node of the conversation, if there is one.
func (e event) node() (node overlay.NodeID) {
	if e.from != nil {
		node = e.from.node
	}
	return node
}

// rank returns the rank of the process that a message is about, or its number.
func (e event) rank() int {
	if exited := e.say.GetExited(); exited != nil {
		return int(exited.GetProcess().GetRank())
	}
	return int(e.say.GetOutput().GetProcess().GetRank())
}

// conversation is the exchange with one node. serve runs it; sendMessage and hasEnded are for the
// driver.
type conversation struct {
	node   overlay.NodeID
	key    reserve.Key
	ask    *nodepb.ToNode
	open   func(context.Context) (stream, error)
	events chan<- event
	sink   *sink // receives output and files
	stage  *stager
	feed   *feeder             // nil unless the job has input
	out    chan *nodepb.ToNode // messages from the driver; on overflow the driver repeats them
	wake   chan struct{}       // there may be more to send
	done   chan struct{}       // closed when serve has returned

	mu     sync.Mutex // guards the fields below
	hold   *nodepb.Hold
	cancel bool   // Cancel was sent: later streams open with it
	have   uint64 // the last event received
	owed   int    // bytes of unacknowledged events
	acked  uint64
	ackNow bool
	over   bool // Over was received
	ended  bool // no more events follow
	failed bool // it ends the job: only what the driver sends is still sent
}

// stream is a NodeService.Converse stream.
type stream interface {
	Send(*nodepb.ToNode) error
	Recv() (*nodepb.ToSubmitter, error)
}

// errEnded means that a conversation has ended normally.
var errEnded = errors.New("the conversation has ended")

// sendMessage queues a message, or drops it when the queue is full: the driver repeats it.
func (c *conversation) sendMessage(m *nodepb.ToNode) {
	if m.GetCancel() != nil {
		c.mu.Lock()
		c.cancel = true
		c.mu.Unlock()
	}
	select {
	case c.out <- m:
	default:
	}
}

// poke makes the sender check for more to send.
func (c *conversation) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *conversation) hasFailed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

// hasEnded reports whether nothing of the job is left on the node.
func (c *conversation) hasEnded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

// abandon ends the conversation with a node that is not waited for any longer. If it comes back, its reservation ends by itself.
func (c *conversation) abandon() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancel, c.ended = true, true
}

// serve opens streams until the conversation has ended, the node is lost or ctx is done.
func (c *conversation) serve(ctx context.Context) {
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.ended = true
	}()
	wait, broke := retryFirst, time.Time{}
	for first := true; ; first = false {
		heard, err := c.attempt(ctx, !broke.IsZero())
		if isMessageFault(err) && (heard || !first) { // of a node that takes no part yet, it is that node's alone
			c.fail(ctx, fmt.Errorf("%s: %w", c.node, err))
		}
		switch {
		case errors.Is(err, errEnded) || ctx.Err() != nil:
			return
		case first && !heard && !c.cancelled():
			c.emit(ctx, event{unreachable: err})
			return
		case errors.Is(err, errRefused):
			c.emit(ctx, event{lost: err})
			return
		case heard || broke.IsZero():
			wait, broke = retryFirst, time.Now()
			if !c.hasFailed() {
				c.emit(ctx, event{broken: err})
			}
		case time.Since(broke) > retryTime:
			c.emit(ctx, event{lost: err})
			return
		}
		select {
		case <-time.After(wait):
			wait = min(2*wait, retryMost)
		case <-ctx.Done():
			return
		}
	}
}

// fail reports, once, what has failed other than the way to the node, which ends the job.
func (c *conversation) fail(ctx context.Context, why error) {
	c.mu.Lock()
	again := c.failed
	c.failed = true
	c.mu.Unlock()
	if !again {
		c.emit(ctx, event{fault: why})
	}
}

// isMessageFault reports whether a stream broke because of a message that this program, or the one at
// the other end, cannot encode, decode or carry. It would break again with each attempt.
func isMessageFault(err error) bool {
	s, ok := status.FromError(err)
	if !ok || err == nil {
		return false
	}
	switch s.Code() {
	case codes.Internal:
		return strings.HasPrefix(s.Message(), "grpc: error while marshaling") || strings.HasPrefix(s.Message(), "grpc: failed to unmarshal")
	case codes.ResourceExhausted:
		return strings.Contains(s.Message(), "message larger than max")
	}
	return false
}

func (c *conversation) cancelled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cancel
}

// isHeld reports whether the node is known to hold a reservation.
func (c *conversation) isHeld() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hold != nil && !c.ended
}

func (c *conversation) emit(ctx context.Context, e event) {
	e.from = c
	select {
	case c.events <- e:
	case <-ctx.Done():
	}
}

// errRefused means that the node no longer knows the reservation.
var errRefused = errors.New("the node has ended the reservation")

// attempt runs one stream to its end, and reports whether any message arrived on it.
func (c *conversation) attempt(life context.Context, again bool) (heard bool, err error) {
	ctx, cancel := context.WithCancel(life)
	defer cancel()
	s, err := c.open(ctx)
	if err != nil {
		return false, plain(err)
	}
	first := c.opening()
	if err := s.Send(first); err != nil && !errors.Is(err, io.EOF) {
		return false, plain(err)
	}
	var sending sync.WaitGroup
	defer sending.Wait()
	defer cancel()
	attached := first.GetAttach() == nil
	if attached {
		sending.Go(func() { c.send(ctx, life, s) })
	}
	for {
		m, err := s.Recv()
		switch {
		case err == nil:
		case errors.Is(err, io.EOF) && c.finished():
			return heard, errEnded
		case errors.Is(err, io.EOF):
			return heard, errors.New("the node ended the conversation")
		case c.finished(): // the acknowledgement of Over needs no answer
			return heard, errEnded
		default:
			return heard, plain(err)
		}
		if !heard && again && !c.hasFailed() {
			c.emit(ctx, event{back: true})
		}
		heard = true
		if !attached {
			if r := m.GetRefused(); r != nil {
				return heard, fmt.Errorf("%w: %s", errRefused, r.Text)
			}
			a := m.GetAttached()
			if a == nil {
				return heard, fmt.Errorf("the node answers %T where it should say whether the reservation is still there", m.Say)
			}
			c.stage.restart()
			if c.feed != nil {
				c.feed.restart(a.Taken)
			}
			attached = true
			sending.Go(func() { c.send(ctx, life, s) })
			continue
		}
		if err := c.receive(ctx, m); err != nil {
			return heard, err
		}
	}
}

// opening returns the first message of a stream.
func (c *conversation) opening() *nodepb.ToNode {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.cancel:
		return &nodepb.ToNode{Say: &nodepb.ToNode_Cancel{Cancel: &nodepb.Cancel{Key: c.key[:]}}}
	case c.hold != nil:
		return &nodepb.ToNode{Say: &nodepb.ToNode_Attach{Attach: &nodepb.Attach{Key: c.key[:], Hold: c.hold, Have: c.have}}}
	}
	return c.ask
}

// finished reports whether the node's last message has arrived.
func (c *conversation) finished() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over || c.ended
}

// send sends until ctx, the stream's, is done or the stream breaks, which Recv reports, too. Messages from
// the driver go first. life is the conversation's context.
func (c *conversation) send(ctx, life context.Context, s stream) {
	for {
		m, err := c.next()
		if err != nil {
			c.fail(life, err)
			continue
		}
		if m == nil {
			select {
			case m = <-c.out:
			case <-c.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		if err := s.Send(m); err != nil { // of a stream that broke it is io.EOF, and Recv has the cause
			if isMessageFault(err) {
				c.fail(life, fmt.Errorf("%s: %w", c.node, plain(err)))
			}
			return
		}
	}
}

// next returns the next message to send, nil if there is none.
func (c *conversation) next() (*nodepb.ToNode, error) {
	select {
	case m := <-c.out:
		return m, nil
	default:
	}
	if m := c.ack(); m != nil {
		return m, nil
	}
	if c.hasFailed() {
		return nil, nil
	}
	if c.feed != nil {
		if m := c.feed.next(); m != nil {
			return m, nil
		}
	}
	return c.stage.next()
}

// ack returns an acknowledgement if one is due.
func (c *conversation) ack() *nodepb.ToNode {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ackNow || c.acked == c.have {
		return nil
	}
	c.acked, c.owed, c.ackNow = c.have, 0, false
	return &nodepb.ToNode{Say: &nodepb.ToNode_Ack{Ack: &nodepb.Ack{Event: c.have}}}
}

// receive handles a message from the node. An error ends the stream.
func (c *conversation) receive(ctx context.Context, m *nodepb.ToSubmitter) error {
	if m.Event > 0 {
		return c.handle(ctx, m)
	}
	switch say := m.Say.(type) {
	case *nodepb.ToSubmitter_Missing:
		c.stage.missing(say.Missing)
		c.poke()
		return nil
	case *nodepb.ToSubmitter_Stored:
		if c.stage.stored(say.Stored) {
			c.emit(ctx, event{staged: true})
		}
		c.poke()
		return nil
	case *nodepb.ToSubmitter_Taken:
		if c.feed != nil {
			c.feed.acknowledged(say.Taken.Bytes)
			c.feed.demanded(say.Taken.Bytes, say.Taken.Wants)
			c.poke()
		}
		return nil
	case *nodepb.ToSubmitter_Ok:
		c.mu.Lock()
		c.hold = say.Ok.Hold
		c.mu.Unlock()
		if c.feed != nil {
			c.feed.setDemand(say.Ok.Wants)
		}
	case *nodepb.ToSubmitter_Nok, *nodepb.ToSubmitter_Cancelled:
		c.mu.Lock()
		c.ended = true
		c.mu.Unlock()
	}
	c.emit(ctx, event{say: m})
	return nil
}

// handle handles an event: each counts once, in order.
func (c *conversation) handle(ctx context.Context, m *nodepb.ToSubmitter) error {
	c.mu.Lock()
	have := c.have
	c.mu.Unlock()
	switch {
	case m.Event <= have:
		return nil
	case m.Event > have+1:
		return fmt.Errorf("event %d received after %d", m.Event, have)
	}
	var err error
	size := 64
	switch say := m.Say.(type) {
	case *nodepb.ToSubmitter_Output:
		size += len(say.Output.Data)
		err = c.sink.output(c.node, say.Output)
	case *nodepb.ToSubmitter_Exited:
		err = c.sink.ended(say.Exited.Process.Value(), say.Exited)
	case *nodepb.ToSubmitter_File:
		size += len(say.File.Data)
		c.sink.file(c.node, say.File)
	}
	if err != nil {
		c.emit(ctx, event{say: m, output: err})
	}
	over := m.GetOver() != nil
	c.mu.Lock()
	c.have = m.Event
	first := c.owed == 0
	c.owed += size
	now := over || c.owed >= ackBytes
	c.ackNow = c.ackNow || now
	c.over = c.over || over
	c.mu.Unlock()
	switch {
	case now:
		c.poke()
	case first:
		time.AfterFunc(ackDelay, func() { // the function does not block
			c.mu.Lock()
			c.ackNow = true
			c.mu.Unlock()
			c.poke()
		})
	}
	if over || m.GetExited() != nil {
		c.emit(ctx, event{say: m})
	}
	return nil
}
