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
		c.planner.OnChoice(func(_ operation.Operation, _ collectives.Shape, choices []collectives.Choice) {
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

// sharedWorld makes a call on each of p ranks, placed as l says, that share memory on which each
// posts piece bytes at a time, with an algorithm forced. It returns what was told, the steps and
// the number of messages.
func sharedWorld(t *testing.T, p, piece int, l collectives.Layout, forced string, call runner, args *collectives.Args) (told []string, steps, messages int, err error) {
	t.Helper()
	w, b := newWorld(p), newMemSharedBuffer(p)
	w.layout = l
	comms := w.comms()
	errs := run(t, w, comms, func(ctx context.Context, _ collectives.Comm, rank int) error {
		c := &sharedBufferComm{memComm: comms[rank], b: b, piece: piece}
		if err := c.planner.ForceAll(forced); err != nil {
			return err
		}
		if rank == 0 {
			c.planner.OnChoice(func(_ operation.Operation, _ collectives.Shape, choices []collectives.Choice) {
				told = append(told, choices[0].Algorithm.Name)
			})
		}
		own := *args
		own.Recv = bytes.Clone(args.Recv)
		return call(ctx, c, &own)
	})
	return told, slices.Max(b.steps), len(w.sent), errors.Join(errs...)
}

// A shared-memory algorithm that is forced is used, also where it would not be chosen; if there is
// no memory or no room, messages carry out the call; and among ranks of several nodes it fails, with
// the reason.
func TestSharedBufferIsForced(t *testing.T) {
	vector := func(n int) *collectives.Args { return &collectives.Args{Recv: make([]byte, n)} }
	nodes := sites(1, 4, false)
	nodes[1] = []int{0, 0, 1, 1}
	for name, tt := range map[string]struct {
		piece  int
		layout collectives.Layout
		forced string
		bytes  int
		want   string // what is told
		err    string
	}{
		"chosen":            {1 << 10, nil, "", 512 << 10, "shared-buffer", ""},
		"not chosen":        {1 << 10, nil, "", 1 << 20, "binomial", ""},
		"forced":            {1 << 10, nil, "bcast=shared-buffer", 1 << 20, "shared-buffer", ""},
		"one node":          {1 << 10, sites(1, 4, false)[:1], "bcast=shared-buffer", 1 << 20, "shared-buffer", ""},
		"others are forced": {1 << 10, nil, "bcast=binomial", 8, "binomial", ""},
		"of another":        {1 << 10, nil, "reduce=binomial", 8, "shared-buffer", ""},
		"no memory":         {0, nil, "bcast=shared-buffer", 8, "binomial", ""},
		"no room":           {1 << 10, nil, "bcast=shared-buffer", 64<<20 + 1, "binomial", ""},
		"several sites":     {1 << 10, sites(2, 2, false), "bcast=shared-buffer", 8, "", "shared-buffer needs ranks that are all on one node"},
		"several nodes":     {1 << 10, nodes, "bcast=shared-buffer", 8, "", "shared-buffer needs ranks that are all on one node"},
		"no memory there":   {0, nodes, "bcast=shared-buffer", 8, "", "shared-buffer needs ranks that are all on one node"},
	} {
		t.Run(name, func(t *testing.T) {
			told, steps, messages, err := sharedWorld(t, 4, tt.piece, tt.layout, tt.forced, calls[operation.Bcast], vector(tt.bytes))
			if tt.err != "" {
				if !errors.Is(err, collectives.ErrSharedMemory) || !strings.Contains(err.Error(), tt.err) || steps+messages+len(told) > 0 {
					t.Errorf("%v; %d steps, %d messages, told %v", err, steps, messages, told)
				}
				return
			}
			shared := tt.want == "shared-buffer"
			if err != nil || !slices.Equal(told, []string{tt.want}) || (steps > 0) != shared || (messages > 0) == shared {
				t.Errorf("%v; %d steps, %d messages, told %v, want %s", err, steps, messages, told, tt.want)
			}
		})
	}
	// Run names what is missing.
	alg, err := collectives.Find(operation.Bcast, "shared-buffer")
	if err != nil {
		t.Fatal(err)
	}
	for want, tt := range map[string]struct{ piece, bytes int }{
		"needs memory that all ranks share": {0, 8}, "has no room for 67108865 bytes of each of 2 ranks": {1 << 10, 64<<20 + 1},
	} {
		_, _, messages, err := sharedWorld(t, 2, tt.piece, nil, "", alg.Run, vector(tt.bytes))
		if !errors.Is(err, collectives.ErrSharedMemory) || !strings.Contains(err.Error(), want) || messages > 0 {
			t.Errorf("%v, and %d messages; want %q", err, messages, want)
		}
	}
}

// A collective for which an algorithm of messages is forced goes by messages, also where another of
// them has to take its place.
func TestMessagesAreForced(t *testing.T) {
	args := func() *collectives.Args {
		return &collectives.Args{Send: make([]byte, 8), Recv: make([]byte, 8), Op: compose}
	}
	told, steps, _, err := sharedWorld(t, 4, 1<<10, nil, "allreduce=ring", calls[operation.Allreduce], args())
	if err != nil || steps > 0 || !slices.Equal(told, []string{"recursive-doubling"}) {
		t.Errorf("%v; %d steps, told %v", err, steps, told)
	}
}

// servingComm makes calls that serve others.
type servingComm struct{ *sharedBufferComm }

func (servingComm) Internal() bool { return true }

// On several nodes a call that serves another goes by messages, whatever is forced.
func TestInternalCallsAreNotRefused(t *testing.T) {
	serving := func(ctx context.Context, c collectives.Comm, a *collectives.Args) error {
		return collectives.Bcast(ctx, servingComm{c.(*sharedBufferComm)}, a.Recv, a.Root)
	}
	told, steps, messages, err := sharedWorld(t, 4, 0, sites(2, 2, false), "bcast=shared-buffer", serving, &collectives.Args{Recv: make([]byte, 8)})
	if err != nil || steps > 0 || messages == 0 || len(told) != 1 {
		t.Errorf("%v; %d steps, %d messages, told %v", err, steps, messages, told)
	}
}

// wasChosen tells where calls used a shared buffer when there was no line for it in the table.
func wasChosen(collective operation.Operation, s collectives.Shape, size, piece int) bool {
	if size > 64 {
		return false
	}
	n, cut := s.Bytes, s.Elem*size <= piece && s.Bytes <= 64<<20
	switch collective {
	case operation.Bcast:
		return n <= 512<<10
	case operation.Reduce, operation.Allreduce:
		return cut
	case operation.Scan, operation.Exscan:
		return n <= piece || cut && size <= 8
	case operation.Scatter:
		return n <= 64<<10
	case operation.Gather:
		return n <= 512<<10
	case operation.Allgather, operation.Alltoall:
		return n <= 1<<20
	case operation.ReduceScatterBlock:
		return cut && n*size <= 64<<20
	case operation.Gatherv, operation.Scatterv, operation.Alltoallv:
		return false
	}
	return n <= piece
}

// Shared memory is chosen where it always was: for all calls for which it is the quickest.
func TestSharedBufferIsChosen(t *testing.T) {
	const piece = 64 << 10
	for _, collective := range collectives.Operations() {
		for _, size := range []int{2, 3, 4, 8, 9, 33, 64, 65, 100} {
			p := planner(t, 0, size, nil)
			for _, elem := range []int{1, 8, 1 << 10, 1<<10 + 1, 8 << 10, 32 << 10, 32<<10 + 1} {
				for n := 1; n <= 128<<20; n *= 2 {
					for _, bytes := range []int{n - 1, n, n + 1} {
						for _, commutative := range []bool{false, true} {
							s := collectives.Shape{Bytes: bytes, Elem: elem, Commutative: commutative, Posts: piece}
							c, err := p.Choose(collective, s)
							if err != nil {
								t.Fatal(err)
							}
							if got, want := c.Algorithm.Needs.Has(collectives.SharedMemory), wasChosen(collective, s, size, piece); got != want {
								t.Fatalf("%s of %d ranks, %+v: %s; over shared memory is %v, want %v", collective, size, s, c.Algorithm.Name, got, want)
							}
						}
					}
				}
			}
		}
	}
}

// Every collective whose ranks all know the lengths has a line for shared memory, which comes first;
// nothing else needs it.
func TestSharedMemoryLines(t *testing.T) {
	for _, collective := range collectives.Operations() {
		without := collective == operation.Gatherv || collective == operation.Scatterv || collective == operation.Alltoallv
		for i, a := range collectives.Algorithms(collective) {
			if want := i == 0 && !without; a.Needs.Has(collectives.SharedMemory) != want || (a.Name == "shared-buffer") != want {
				t.Errorf("line %d of %s is %s, and needs %v", i, collective, a.Name, a.Needs)
			}
		}
	}
}
