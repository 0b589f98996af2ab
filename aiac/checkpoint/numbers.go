package checkpoint

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/aiac/internal/register"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// numbers is what an Exchange knows of who runs which task, in a job whose lost processes are replaced.
type numbers struct {
	view  register.Register
	hello []byte
	lost  func()
}

// OpenReplaceable is Open in a job whose lost processes are replaced (mpilib.Replacements), which world must be in; the
// package comment says how the Exchange learns of losses and replacements. It waits for nobody, and starts
// nothing. Config.Decide must be nil. No other messages of Replacements().Comm have the tag.
//
// The communicator reports a loss to one receive from any source only, where others wait beside it: so the Exchange calls lost when it
// has acknowledged losses, and who else acknowledges some calls NoteFailed then. lost must not wait, and calls
// nothing of the Exchange.
func OpenReplaceable(world *mpilib.World, tag int, c Config, lost func()) (*Exchange, error) {
	spare := world.Replacements()
	if spare == nil || c.Decide != nil {
		return nil, fmt.Errorf("checkpoint: want a job with spare process numbers, and no Config.Decide")
	}
	if err := c.complete(spare.Ranks); err != nil {
		return nil, err
	}
	places := make([]Place, spare.Ranks)
	for i, power := range c.Power {
		places[i].Power = power
	}
	here := world.Place()
	self := spare.Rank()
	places[self].Site, places[self].Node = string(here.Site), here.Name
	n := &numbers{view: register.New(spare.Ranks), hello: appendText(appendText(nil, string(here.Site)), here.Name), lost: lost}
	for i, task := range spare.Ranked {
		n.view = n.view.Replaced(task, uint32(spare.Ranks+i))
	}
	x := &Exchange{comm: spare.Comm, tag: tag, config: c, begun: time.Now(), budget: Budget{Share: c.Share, First: c.First}, numbers: n}
	x.peer = newPeer(self, places, c.Distance, c.Store)
	var out []envelope
	for task := range places {
		if task != self {
			out = append(out, n.greet(task))
		}
	}
	x.send(out)
	return x, x.err
}

// process returns the number of the process that runs a task.
func (n *numbers) process(task int) int {
	number, _ := n.view.Process(task)
	return int(number)
}

// header appends what is before each message: the sender's task, a varint. So a process that others have not heard of is known
// with its first message.
func (n *numbers) header(b []byte, task int) []byte { return binary.AppendUvarint(b, uint64(task)) }

func (n *numbers) greet(task int) envelope {
	return envelope{task, message{kind: kindHello, data: n.hello}}
}

// sender reads the header of a message of a process. It is not current if its task has a newer one: what it sent last is dropped.
func (x *Exchange) sender(process int, b []byte) (task int, after []byte, isCurrent bool, err error) {
	var number uint64
	if b, err = parseNumber(&number, false, b); err != nil {
		return 0, nil, false, err
	}
	if number >= uint64(len(x.peer.places)) || int(number) == x.peer.self {
		return 0, nil, false, fmt.Errorf("%w: task %d", errValue, number)
	}
	task = int(number)
	x.send(x.merge(x.numbers.view.Replaced(task, uint32(process))))
	return task, b, x.numbers.process(task) == process, nil
}

// merge merges what is known of the processes of tasks, and returns what follows.
func (x *Exchange) merge(view register.Register) (out []envelope) {
	before := x.numbers.view
	x.numbers.view = before.Merge(view)
	for task := range x.peer.places {
		was, wasLost := before.Process(task)
		now, isLost := x.numbers.view.Process(task)
		if task == x.peer.self {
			continue // it is expelled, which its owner is told elsewhere
		}
		if now != was {
			out = append(append(out, x.peer.replaced(task)...), x.numbers.greet(task))
		}
		if isLost && (now != was || !wasLost) {
			out = append(out, x.peer.lost(task)...)
		}
	}
	return out
}

// Learn tells the Exchange the number of a task's newest process, and whether that is lost, as far as the caller knows. Older
// news than it has changes nothing. It is for an Exchange of OpenReplaceable.
func (x *Exchange) Learn(task, number int, isLost bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	view := x.numbers.view.Replaced(task, uint32(number))
	if isLost {
		view = view.Lost(task, uint32(number))
	}
	x.send(x.merge(view))
}

// NoteFailed tells it that the communicator knows of losses, which the caller has acknowledged. It is for an
// Exchange of OpenReplaceable.
func (x *Exchange) NoteFailed() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.noteFailed(false)
}

// noteFailed enters all failures that the communicator knows, and acknowledges them if it is asked to.
func (x *Exchange) noteFailed(acknowledges bool) error {
	failed, err := x.comm.GetFailed()
	if err != nil {
		return err
	}
	view := x.numbers.view
	for i := range failed.Size() {
		number := uint32(failed.WorldRank(i))
		if task, ok := view.Task(number); ok {
			view = view.Lost(task, number)
		}
	}
	x.send(x.merge(view))
	if acknowledges {
		_, err = x.comm.AckFailed(failed.Size())
	}
	return err
}

// place handles a Hello.
func (x *Exchange) place(task int, b []byte) error {
	site, b, err := parseText(b)
	if err != nil {
		return err
	}
	node, b, err := parseText(b)
	switch {
	case err != nil:
		return err
	case len(b) > 0:
		return errLong
	}
	x.peer.move(task, site, node)
	return nil
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func parseText(b []byte) (s string, after []byte, err error) {
	var n uint64
	if b, err = parseNumber(&n, false, b); err != nil {
		return "", nil, err
	}
	if n > uint64(len(b)) {
		return "", nil, errShort
	}
	return string(b[:n]), b[n:], nil
}
