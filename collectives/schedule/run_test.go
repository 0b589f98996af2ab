package schedule

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// letter names a message.
type letter struct{ from, to, slot, number int }

// post carries messages between goroutines, each delayed briefly.
type post struct {
	mu    sync.Mutex
	boxes map[letter]chan []byte
	fails letter // a message whose sending fails
}

func (p *post) box(l letter) chan []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.boxes[l] == nil {
		p.boxes[l] = make(chan []byte, 1)
	}
	return p.boxes[l]
}

type postComm struct {
	p    *post
	rank int
	some chan struct{}  // something is complete
	sent map[letter]int // how many messages to each, and from each, were started, by slot
	got  map[letter]int
}

func newPostComm(p *post, rank int) *postComm {
	return &postComm{p, rank, make(chan struct{}, 10000), map[letter]int{}, map[letter]int{}}
}

type postRequest struct {
	done chan struct{}
	give chan struct{}
	once sync.Once
	err  error
}

var errLost = errors.New("lost in the post")

func (c *postComm) start(f func(give chan struct{}) error) Request {
	q := &postRequest{done: make(chan struct{}), give: make(chan struct{})}
	go func() {
		q.err = f(q.give)
		close(q.done)
		c.some <- struct{}{}
	}()
	return q
}

func (c *postComm) Isend(dst, slot int, buf []byte) Request {
	l := letter{from: c.rank, to: dst, slot: slot}
	l.number = c.sent[l]
	c.sent[letter{from: c.rank, to: dst, slot: slot}]++
	return c.start(func(chan struct{}) error {
		if l == c.p.fails {
			return errLost
		}
		time.Sleep(time.Duration(rand.IntN(30)) * time.Microsecond) // buf must stay unchanged meanwhile
		c.p.box(l) <- bytes.Clone(buf)
		return nil
	})
}

func (c *postComm) Irecv(src, slot int, buf []byte) Request {
	l := letter{from: src, to: c.rank, slot: slot}
	l.number = c.got[l]
	c.got[letter{from: src, to: c.rank, slot: slot}]++
	return c.start(func(give chan struct{}) error {
		select {
		case b := <-c.p.box(l):
			if copy(buf, b) != len(b) || len(b) != len(buf) {
				return errors.New("another length")
			}
			return nil
		case <-give:
			return context.Canceled
		}
	})
}

func (c *postComm) WaitAny(ctx context.Context, requests []Request, _ int) (int, error) {
	for {
		for i, q := range requests {
			select {
			case <-q.(*postRequest).done:
				return i, nil
			default:
			}
		}
		select {
		case <-c.some:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

func (q *postRequest) Done() bool {
	select {
	case <-q.done:
		return true
	default:
		return false
	}
}

func (q *postRequest) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		q.once.Do(func() { close(q.give) })
		<-q.done
	case <-q.done:
	}
	return q.err
}

func runAll(ctx context.Context, p *post, all []*Schedule, m []Memory) []error {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for r := range all {
		wg.Go(func() {
			errs[r] = Run(ctx, newPostComm(p, r), all[r], &m[r], mix)
		})
	}
	wg.Wait()
	return errs
}

// Run gives the same result with messages as the simulator without.
func TestRun(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 2))
		all, m, end := program(rng, 1+rng.IntN(5), rng.IntN(80))
		for r, err := range runAll(ctx, &post{boxes: map[letter]chan []byte{}}, all, m) {
			if err != nil {
				t.Fatalf("seed %d, rank %d: %v", seed, r, err)
			}
		}
		same(t, m, end)
	}
}

// A Runner gives the same result in every run, also after a run that failed.
func TestRunnerRunsAgain(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 4))
		all, begin, end := program(rng, 1+rng.IntN(5), rng.IntN(80))
		var runners []*Runner
		for _, s := range all {
			runners = append(runners, NewRunner(s))
		}
		for time := range 4 {
			m, p := clone(begin), &post{boxes: map[letter]chan []byte{}}
			during, stop := context.WithCancel(ctx)
			if time == 1 {
				stop()
			}
			var wg sync.WaitGroup
			for r := range all {
				wg.Go(func() {
					if err := runners[r].Run(during, newPostComm(p, r), &m[r], mix); err != nil && time != 1 {
						t.Errorf("seed %d, rank %d: %v", seed, r, err)
					}
				})
			}
			wg.Wait()
			stop()
			if time != 1 {
				same(t, m, end)
			}
		}
	}
}

func TestRunnerAllocatesNothing(t *testing.T) {
	r := NewRunner(flits(4, 4))
	m := Memory{make([]byte, 128), make([]byte, 128), make([]byte, 128)}
	if n := testing.AllocsPerRun(10, func() {
		if err := r.Run(t.Context(), at{}, &m, mix); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a run", n)
	}
}

// A message that waits for something does not delay a later one of its pair; otherwise the pieces
// of a vector would pass through the levels one after the other. Here a delay would be a deadlock.
func TestRunOvertakes(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	a, b, c := NewBuilder(0, 3), NewBuilder(1, 3), NewBuilder(2, 3)
	a.Receive(2, Region{Output, 0, 1})
	a.Send(1, Region{Output, 0, 1}) // waits for rank 2, which waits for rank 1
	a.Send(1, Region{Input, 0, 1})
	b.Receive(0, Region{Output, 0, 1})
	b.Receive(0, Region{Output, 1, 1})
	b.Send(2, Region{Output, 1, 1})
	c.Receive(1, Region{Output, 0, 1})
	c.Send(0, Region{Output, 0, 1})
	m := []Memory{{[]byte{7}, make([]byte, 1), nil}, {nil, make([]byte, 2), nil}, {nil, make([]byte, 1), nil}}
	for rank, err := range runAll(ctx, &post{boxes: map[letter]chan []byte{}}, []*Schedule{a.Done(), b.Done(), c.Done()}, m) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	if got := m[1][Output]; got[0] != 7 || got[1] != 7 {
		t.Errorf("rank 1 has %v", got)
	}
}

// With more messages than there are slots, those of a slot stay in order.
func TestRunManyMessages(t *testing.T) {
	const n = 3*Slots + 5
	a, b := NewBuilder(0, 2), NewBuilder(1, 2)
	in, out := make([]byte, n), make([]byte, n)
	for i := range n {
		in[i] = byte(i * 31 >> 3)
		a.Send(1, Region{Input, i, 1})
		b.Receive(0, Region{Output, n - 1 - i, 1})
	}
	for rank, err := range runAll(t.Context(), &post{boxes: map[letter]chan []byte{}}, []*Schedule{a.Done(), b.Done()}, []Memory{{in, nil, nil}, {nil, out, nil}}) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	for i := range n {
		if out[n-1-i] != in[i] {
			t.Fatalf("message %d is %d, want %d", i, out[n-1-i], in[i])
		}
	}
}

// When a message fails, Run says which, and cancels the others.
func TestRunFails(t *testing.T) {
	b := NewBuilder(0, 3)
	b.Receive(2, Region{Output, 4, 4}) // is never sent
	b.Send(1, Region{Output, 0, 4})
	p := &post{boxes: map[letter]chan []byte{}, fails: letter{to: 1}}
	m := Memory{nil, make([]byte, 8), nil}
	err := Run(t.Context(), newPostComm(p, 0), b.Done(), &m, mix)
	if !errors.Is(err, errLost) || err.Error() != "send 4 bytes to rank 1: lost in the post" {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b = NewBuilder(0, 3)
	b.Receive(2, Region{Output, 4, 4})
	if err := Run(ctx, newPostComm(p, 0), b.Done(), &m, mix); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	b = NewBuilder(0, 3)
	b.Reduce(Region{Output, 0, 4}, Region{Output, 4, 4})
	broken := func(_, _ []byte) error { return errLost }
	if err := Run(t.Context(), nil, b.Done(), &m, broken); !errors.Is(err, errLost) {
		t.Errorf("%v", err)
	}
}
