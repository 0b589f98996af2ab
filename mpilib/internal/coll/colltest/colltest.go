// Package colltest joins ranks in memory, for tests of what is made of collective calls. It buffers
// nothing: a send is complete when its receive has the bytes. It knows no engine; its state is in a
// Net.
package colltest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/mpilib/internal/buffer"
)

// Net joins the ranks of a world.
type Net struct {
	mu       sync.Mutex // guards what is below
	open     map[line]*queue
	contexts uint32
}

// line is where a message goes: ranks of the world.
type line struct{ from, to, slot int }

// queue has the transfers that wait for their other end; those of one direction at most.
type queue struct{ sends, receives []*transfer }

// Run runs f as each of n ranks of a world, in a bubble in which all ranks that wait for ever are a
// failure at once, and returns their errors.
func Run(t *testing.T, n int, f func(ctx context.Context, net *Net, rank int) error) (errs []error) {
	errs = make([]error, n)
	synctest.Test(t, func(t *testing.T) {
		net := &Net{open: map[line]*queue{}}
		var ranks sync.WaitGroup
		for rank := range n {
			ranks.Go(func() { errs[rank] = f(t.Context(), net, rank) })
		}
		ranks.Wait()
	})
	return errs
}

// Call returns the calls of a rank of the world with the members of a group, of which it is one or, on
// a line to another group, is not.
func (n *Net) Call(rank int, members []int) *Call {
	c := &Call{net: n, self: rank, members: members}
	if own := slices.Index(members, rank); own >= 0 {
		var err error
		if c.planner, err = collectives.NewPlanner(own, len(members), collectives.Layout{}); err != nil {
			panic(err)
		}
	}
	return c
}

// Call implements coll.Call and settle.Call.
type Call struct {
	net     *Net
	self    int
	members []int
	planner *collectives.Planner

	NoContext error // of NewContext
}

// Planner implements collectives.Comm.
func (c *Call) Planner() *collectives.Planner { return c.planner }

// Rank implements settle.Call.
func (c *Call) Rank() int { return slices.Index(c.members, c.self) }

// Size implements settle.Call.
func (c *Call) Size() int { return len(c.members) }

// WorldRank implements settle.Call.
func (c *Call) WorldRank(rank int) int { return c.members[rank] }

// Allocator implements settle.Call: it is the last rank.
func (c *Call) Allocator() int { return len(c.members) - 1 }

// NewContext implements settle.Call.
func (c *Call) NewContext() (uint32, error) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	c.net.contexts++
	return c.net.contexts, c.NoContext
}

// Global implements coll.Call.
func (c *Call) Global(rank int) int { return c.members[rank] }

// Isend implements collectives.Comm.
func (c *Call) Isend(to, slot int, b []byte) collectives.Request {
	t := &transfer{bytes: b, done: make(chan struct{})}
	return c.net.post(line{c.self, c.members[to], slot}, t, true)
}

// Irecv implements collectives.Comm.
func (c *Call) Irecv(from, slot int, b []byte) collectives.Request {
	t := &transfer{bytes: b, done: make(chan struct{})}
	return c.net.post(line{c.members[from], c.self, slot}, t, false)
}

// IrecvPart implements coll.Call.
func (c *Call) IrecvPart(from int, p *buffer.Part) collectives.Request {
	t := &transfer{bytes: p.Landing(), part: p, done: make(chan struct{})}
	return c.net.post(line{c.members[from], c.self, 0}, t, false)
}

// WaitAny implements collectives.Comm.
func (c *Call) WaitAny(ctx context.Context, requests []collectives.Request, _ int) (int, error) {
	cases := []reflect.SelectCase{{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ctx.Done())}}
	for _, r := range requests {
		cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(r.(*transfer).done)})
	}
	if i, _, _ := reflect.Select(cases); i > 0 {
		return i - 1, nil
	}
	return 0, ctx.Err()
}

// transfer is one end of a message.
type transfer struct {
	bytes []byte
	part  *buffer.Part // to which they belong; nil: they lie where they belong
	done  chan struct{}
	err   error // set before done is closed
}

// ErrLength is that of a receive with another length than its message.
var ErrLength = errors.New("colltest: the message has another length")

// post joins t with the oldest transfer that waits at the other end, or has it wait.
func (n *Net) post(l line, t *transfer, isSend bool) *transfer {
	n.mu.Lock()
	defer n.mu.Unlock()
	q := n.open[l]
	if q == nil {
		q = &queue{}
		n.open[l] = q
	}
	mine, theirs := &q.receives, &q.sends
	if isSend {
		mine, theirs = theirs, mine
	}
	if len(*theirs) == 0 {
		*mine = append(*mine, t)
		return t
	}
	send, receive := (*theirs)[0], t
	*theirs = (*theirs)[1:]
	if isSend {
		send, receive = receive, send
	}
	if len(send.bytes) != len(receive.bytes) {
		receive.err = fmt.Errorf("%w: %d bytes, not %d", ErrLength, len(send.bytes), len(receive.bytes))
	} else if copy(receive.bytes, send.bytes); receive.part != nil {
		receive.part.Land(receive.bytes)
	}
	close(send.done)
	close(receive.done)
	return t
}

// Done implements collectives.Request.
func (t *transfer) Done() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// Wait implements collectives.Request.
func (t *transfer) Wait(ctx context.Context) error {
	select {
	case <-t.done:
		return t.err
	case <-ctx.Done():
		return ctx.Err()
	}
}
