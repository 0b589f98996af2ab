package collectives_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/collectives/operation"
)

// memSharedBuffer is a shared buffer on which no rank may be more than a step ahead. What a rank
// has read is overwritten as soon as it may be, so that a late read is detected.
type memSharedBuffer struct {
	mu    sync.Mutex
	turn  *sync.Cond
	steps []int       // that each rank has posted for
	said  [][2][]byte // of each rank, for even and odd steps
}

func newMemSharedBuffer(p int) *memSharedBuffer {
	b := &memSharedBuffer{steps: make([]int, p), said: make([][2][]byte, p)}
	b.turn = sync.NewCond(&b.mu)
	return b
}

// sharedBufferComm is a memComm with a shared buffer.
type sharedBufferComm struct {
	*memComm
	b     *memSharedBuffer
	piece int
	most  int // maximum length of a post
}

var _ collectives.SharedBuffer = (*sharedBufferComm)(nil)

func (c *sharedBufferComm) Posts() int { return c.piece }

func (c *sharedBufferComm) PostParts(ctx context.Context, parts [][]byte) error {
	return c.Post(ctx, bytes.Join(parts, nil))
}

// until waits for other ranks until done returns true. The caller must hold b.mu.
func (b *memSharedBuffer) until(ctx context.Context, done func() bool) error {
	if done() {
		return nil
	}
	defer context.AfterFunc(ctx, func() { b.mu.Lock(); defer b.mu.Unlock(); b.turn.Broadcast() })()
	for ; !done(); b.turn.Wait() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

func (c *sharedBufferComm) Post(ctx context.Context, p []byte) error {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	c.most = max(c.most, len(p))
	next := c.b.steps[c.rank] + 1
	if err := c.b.until(ctx, func() bool { return slices.Min(c.b.steps) >= next-1 }); err != nil {
		return err
	}
	cell := &c.b.said[c.rank][next%2]
	for i := range *cell {
		(*cell)[i] = canary // no rank may read it any more
	}
	*cell, c.b.steps[c.rank] = bytes.Clone(p), next
	c.b.turn.Broadcast()
	return nil
}

func (c *sharedBufferComm) Read(ctx context.Context, rank, n int) ([]byte, error) {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	if err := c.b.until(ctx, func() bool { return c.b.steps[rank] >= c.b.steps[c.rank] }); err != nil {
		return nil, err
	}
	p := c.b.said[rank][c.b.steps[c.rank]%2]
	if len(p) != n {
		return nil, fmt.Errorf("%w: %d and %d", errLength, len(p), n)
	}
	return p, nil
}

// TestSharedBuffer: every collective over a shared buffer gives the oracle's result, and sends no
// message where the shared buffer applies.
func TestSharedBuffer(t *testing.T) {
	const piece = 1 << 10
	rng := rand.New(rand.NewPCG(1, 2))
	for _, collective := range collectives.Operations() {
		for _, p := range []int{2, 3, 4, 7} {
			for _, n := range []int{0, 1, 2, 5, 33, 3000} {
				for _, op := range []collectives.Op{sum32, compose} {
					for _, in := range []bool{false, true} {
						root := rng.IntN(p)
						e := oracles[collective](rng, p, n, root, op)
						label := fmt.Sprintf("%s, %d ranks, root %d, %d elements, %s, in place %v", collective, p, root, n, op.Name, in)
						checkSharedBuffer(t, label, collective, e, in, piece)
					}
				}
			}
		}
	}
}

func checkSharedBuffer(t *testing.T, label string, collective operation.Operation, e exercise, in bool, piece int) {
	t.Helper()
	untouched := e.sends()
	if in {
		if !e.inPlace(collective) {
			return
		}
		untouched = func() error { return nil }
	}
	w, b := newWorld(len(e.args)), newMemSharedBuffer(len(e.args))
	comms := w.comms()
	ends := make([]*sharedBufferComm, len(comms))
	var told []string
	var mu sync.Mutex
	for r, c := range comms {
		ends[r] = &sharedBufferComm{memComm: c, b: b, piece: piece}
		c.planner.Tell(func(_ operation.Operation, _ collectives.Shape, choices []collectives.Choice) {
			mu.Lock()
			told = append(told, choices[0].Algorithm.Name)
			mu.Unlock()
		})
	}
	errs := run(t, w, comms, func(ctx context.Context, _ collectives.Comm, rank int) error {
		return calls[collective](ctx, ends[rank], e.args[rank])
	})
	if err := errors.Join(append(errs, untouched())...); err != nil {
		t.Fatalf("%s: %v", label, err)
	}
	for r, a := range e.args {
		if !idle(collective, r, a.Root) && !bytes.Equal(a.Recv, e.want[r]) {
			t.Fatalf("%s: rank %d has\n%.100x, want\n%.100x", label, r, a.Recv, e.want[r])
		}
		if ends[r].most > piece {
			t.Fatalf("%s: rank %d posts %d bytes at a time", label, r, ends[r].most)
		}
	}
	posted := slices.Max(b.steps) > 0
	if posted != (slices.Min(b.steps) > 0) || posted == (len(w.sent) > 0) || posted != strings.Contains(told[0], "shared-buffer") {
		t.Fatalf("%s: steps %v, %d messages, told %v", label, b.steps, len(w.sent), told)
	}
}

// TestSharedBufferForced: a forced algorithm is used.
func TestSharedBufferForced(t *testing.T) {
	w, b := newWorld(2), newMemSharedBuffer(2)
	comms := w.comms()
	errs := run(t, w, comms, func(ctx context.Context, _ collectives.Comm, rank int) error {
		c := &sharedBufferComm{memComm: comms[rank], b: b, piece: 1 << 10}
		if err := c.planner.Force(operation.Barrier, "dissemination"); err != nil {
			return err
		}
		return collectives.Barrier(ctx, c)
	})
	if err := errors.Join(errs...); err != nil || b.steps[0] != 0 {
		t.Errorf("steps %v, %v", b.steps, err)
	}
}
