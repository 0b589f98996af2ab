package collectives_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/isthmus-grid/isthmus/collectives"
)

var (
	errGone     = errors.New("peer has left")
	errInjected = errors.New("injected fault")
	errLength   = errors.New("message length differs from the buffer")
)

// world joins ranks in memory. It buffers nothing, on purpose: a send ends only when its receive is
// posted, so an algorithm that relies on buffering deadlocks and the test reaches its deadline.
type world struct {
	mu     sync.Mutex // guards everything below and every memRequest
	queues map[pair]*queue
	gone   []bool
	layout collectives.Layout
	sent   map[pair]int // messages delivered
}

type pair struct{ src, dst, slot int }

// queue holds the posted and unmatched transfers between a pair of ranks; at most one of the two
// slices is non-empty.
type queue struct{ sends, recvs []*memRequest }

func newWorld(p int) *world {
	return &world{queues: map[pair]*queue{}, gone: make([]bool, p), sent: map[pair]int{}}
}

func (w *world) comm(rank int) *memComm {
	p, err := collectives.NewPlanner(rank, len(w.gone), w.layout)
	if err != nil {
		panic(err)
	}
	return &memComm{w: w, rank: rank, failAt: -1, planner: p}
}

// leave makes every present and future transfer with rank fail.
func (w *world) leave(rank int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone[rank] = true
	for ends, q := range w.queues {
		if ends.src != rank && ends.dst != rank {
			continue
		}
		for _, r := range append(q.sends, q.recvs...) {
			r.finish(errGone)
		}
		*q = queue{}
	}
}

// unmatched counts the transfers that a rank posted and never finished.
func (w *world) unmatched(rank int) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ends, q := range w.queues {
		if ends.src == rank {
			n += len(q.sends)
		}
		if ends.dst == rank {
			n += len(q.recvs)
		}
	}
	return n
}

// memComm is one rank's Comm. Transfer number failAt fails.
type memComm struct {
	w      *world
	rank   int
	failAt int

	planner *collectives.Planner
	posted  int
	failed  bool
}

var _ collectives.Comm = (*memComm)(nil)

func (c *memComm) Planner() *collectives.Planner { return c.planner }

func (c *memComm) Isend(dst, slot int, buf []byte) collectives.Request {
	return c.post(pair{c.rank, dst, slot}, dst, buf)
}

func (c *memComm) Irecv(src, slot int, buf []byte) collectives.Request {
	return c.post(pair{src, c.rank, slot}, src, buf)
}

func (c *memComm) WaitAny(ctx context.Context, requests []collectives.Request, _ int) (int, error) {
	cases := []reflect.SelectCase{{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ctx.Done())}}
	for _, r := range requests {
		cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(r.(*memRequest).done)})
	}
	if i, _, _ := reflect.Select(cases); i > 0 {
		return i - 1, nil
	}
	return 0, ctx.Err()
}

func (c *memComm) post(ends pair, peer int, buf []byte) *memRequest {
	r := &memRequest{w: c.w, ends: ends, isSend: peer == ends.dst, buf: buf, done: make(chan struct{})}
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.posted++
	switch {
	case ends.src == ends.dst:
		r.finish(fmt.Errorf("rank %d talks to itself", c.rank))
	case c.failed, c.posted-1 == c.failAt: // and all after it: data that arrives would belong to another transfer
		c.failed = true
		r.finish(errInjected)
	case c.w.gone[peer]:
		r.finish(errGone)
	default:
		c.w.match(r)
	}
	return r
}

// match pairs r with the oldest counterpart or queues it. The caller must hold mu.
func (w *world) match(r *memRequest) {
	q := w.queues[r.ends]
	if q == nil {
		q = &queue{}
		w.queues[r.ends] = q
	}
	mine, theirs := &q.sends, &q.recvs
	if !r.isSend {
		mine, theirs = theirs, mine
	}
	if len(*theirs) == 0 {
		*mine = append(*mine, r)
		return
	}
	s, d := r, (*theirs)[0]
	*theirs = (*theirs)[1:]
	if !r.isSend {
		s, d = d, s
	}
	w.sent[r.ends]++
	var err error
	if len(s.buf) == len(d.buf) {
		copy(d.buf, s.buf)
	} else {
		err = fmt.Errorf("%w: %d and %d", errLength, len(s.buf), len(d.buf))
	}
	s.finish(nil) // only now may the sender change its buffer
	d.finish(err)
}

type memRequest struct {
	w      *world
	ends   pair
	isSend bool
	buf    []byte
	done   chan struct{}
	err    error // set before done is closed
}

func (r *memRequest) finish(err error) {
	r.err = err
	close(r.done)
}

func (r *memRequest) Done() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

func (r *memRequest) Wait(ctx context.Context) error {
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
	}
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	select {
	case <-r.done:
		return r.err
	default:
	}
	q := r.w.queues[r.ends]
	for _, list := range []*[]*memRequest{&q.sends, &q.recvs} {
		for i, other := range *list {
			if other == r {
				*list = append((*list)[:i:i], (*list)[i+1:]...)
				break
			}
		}
	}
	r.finish(ctx.Err())
	return r.err
}
