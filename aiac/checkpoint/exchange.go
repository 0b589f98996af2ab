package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/mpilib"
)

// ErrTooLarge says that a state is above the size bound of the Store.
var ErrTooLarge = errors.New("checkpoint: state too large")

// A Config is how states are saved. It need not be alike on all ranks.
type Config struct {
	Store *Store        // holds states of other tasks here; nil: a new one
	Share float64       // of the time that saving may take; 0: DefaultShare
	First time.Duration // before that no state is due; 0: DefaultFirst

	Power    []float64 // by rank, for the choice of holders, as in Place; nil: all alike
	Distance Distance  // between sites, for the same; nil: unknown

	// Decide is World.Decide of a program whose ranks have replicas, and nil otherwise. Such a program does not call Serve,
	// but Poll, and makes all calls from one goroutine.
	Decide func(ctx context.Context, choose func() []byte) ([]byte, error)
}

// Defaults of a Config. A state of which a thirtieth of a second has been spent when the first second is over is paid for after 1.7 s.
const (
	DefaultShare = 0.02
	DefaultFirst = 500 * time.Millisecond
)

// messageTag is the tag of all messages.
const messageTag = 1

// An Exchange saves this rank's states at other ranks of a communicator, holds theirs, and fetches. Rank i has task i. Its
// messages are handled only while Serve runs, or in Poll and Fetch; a rank that does not handle them keeps a Fetch of
// another one waiting. IsDue and Save are for one goroutine; the other methods are safe for concurrent use.
type Exchange struct {
	comm   *mpilib.Comm
	tag    int // of all messages
	config Config
	begun  time.Time

	// mu guards what follows. It is held while messages are sent, which does not wait (Bsend), so that those of
	// a transfer leave in order.
	mu     sync.Mutex
	peer   *peer
	budget Budget
	serves bool   // Serve runs
	err    error  // why no message can be received any more
	bytes  []byte // of a message that is sent

	acknowledged int // losses, to the communicator

	numbers *numbers // nil: task i is rank i for good
}

// Open makes the Exchange of this rank, over a copy of comm. It is a collective call, and starts nothing. Close ends it.
func Open(ctx context.Context, comm *mpilib.Comm, c Config) (*Exchange, error) {
	if err := c.complete(comm.Size()); err != nil {
		return nil, err
	}
	dup, err := comm.Dup(ctx)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	x := &Exchange{comm: dup, tag: messageTag, config: c, begun: time.Now(), budget: Budget{Share: c.Share, First: c.First}}
	if err := x.open(ctx); err != nil {
		dup.Free()
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	return x, nil
}

// complete sets the defaults, and returns what is wrong with the others.
func (c *Config) complete(tasks int) error {
	if c.Share == 0 {
		c.Share = DefaultShare
	}
	if c.First == 0 {
		c.First = DefaultFirst
	}
	if c.Store == nil {
		c.Store = NewStore(0)
	}
	switch {
	case !(c.Share > 0 && c.Share <= 1) || c.First < 0:
		return fmt.Errorf("checkpoint: share %g, first after %v: want above 0 and at most 1, and at least 0", c.Share, c.First)
	case c.Power != nil && len(c.Power) != tasks:
		return fmt.Errorf("checkpoint: powers of %d tasks, of %d", len(c.Power), tasks)
	}
	return nil
}

func (x *Exchange) open(ctx context.Context) error {
	at, err := x.comm.Places(ctx)
	if err != nil {
		return err
	}
	if err := isReplicated(x.comm); err != nil && x.config.Decide == nil {
		return err
	}
	places := make([]Place, len(at))
	for i, a := range at {
		places[i] = Place{Site: string(a.Site), Node: a.Name}
		if x.config.Power != nil {
			places[i].Power = x.config.Power[i]
		}
	}
	x.peer = newPeer(x.comm.Rank(), places, x.config.Distance, x.config.Store)
	return nil
}

// isReplicated returns why a program whose ranks have replicas must set Decide, and nil in others. A slot is refused there for the
// same reason.
func isReplicated(comm *mpilib.Comm) error {
	if comm.Size() == 1 {
		return nil
	}
	if _, err := mpilib.PutTo[byte](comm, (comm.Rank()+1)%comm.Size(), messageTag, 1); errors.Is(err, mpilib.ErrReplicated) {
		return fmt.Errorf("%w: when a state is due depends on times; set Config.Decide to World.Decide", mpilib.ErrReplicated)
	}
	return nil
}

// Close releases the communicator, when Serve has returned. States stay in the Store.
func (x *Exchange) Close() error {
	if x.numbers != nil {
		return nil // the communicator is the job's
	}
	return x.comm.Free()
}

// Task returns the task of this rank.
func (x *Exchange) Task() int { return x.peer.self }

// Holders returns which tasks hold this one's states now.
func (x *Exchange) Holders() []int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return Holders(x.peer.self, x.peer.places, x.peer.distance)
}

// Counts returns what became of this task's states, and Cost what saving them and holding those of others took: time in Save, and
// for handling and sending messages, as measured by the clock; and the share that this is of the time since Open.
func (x *Exchange) Counts() Counts {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.peer.counts
}

// Cost is described at Counts.
func (x *Exchange) Cost() (spent time.Duration, share float64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.budget.Spent(), float64(x.budget.Spent()) / float64(time.Since(x.begun))
}

// IsDue reports whether a state may be saved now: the time for it is earned, and a holder has taken its last one.
func (x *Exchange) IsDue(ctx context.Context) (bool, error) {
	isDue := func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		_, ok := x.peer.target()
		return ok && x.budget.IsDue(time.Since(x.begun))
	}
	if x.config.Decide == nil {
		return isDue(), nil
	}
	decided, err := x.config.Decide(ctx, func() []byte {
		if isDue() {
			return []byte{1}
		}
		return nil
	})
	return len(decided) > 0, err
}

// Save saves the state after an iteration, which must be above that of the last Save, at the holder whose turn it is, and
// does not wait for it. encode appends the state to its argument. If both holders still take an earlier
// state, or there is none, nothing is saved. Whether a state is due is for the caller to ask.
func (x *Exchange) Save(iteration uint64, encode func([]byte) []byte) error {
	begun := time.Now()
	x.mu.Lock()
	holder, ok := x.peer.target()
	if !ok || x.err != nil {
		defer x.mu.Unlock()
		return x.err
	}
	x.budget.Begin()
	memory := x.peer.memory()
	x.mu.Unlock()
	data := encode(memory)
	if uint64(len(data)) > x.config.Store.maxBytes {
		return fmt.Errorf("%w: %d bytes after iteration %d, above the Store's bound of %d", ErrTooLarge, len(data), iteration, x.config.Store.maxBytes)
	}
	id := identify(State{x.peer.self, iteration, data})
	x.mu.Lock()
	defer x.mu.Unlock()
	x.send(x.peer.save(holder, id, data))
	x.budget.Spend(time.Since(begun))
	return x.err
}

// send sends messages. A receiver that is lost, or has left, is noted as lost.
func (x *Exchange) send(out []envelope) {
	for ; len(out) > 0; out = out[1:] {
		e := out[0]
		process := e.to
		x.bytes = x.bytes[:0]
		if n := x.numbers; n != nil {
			process = n.process(e.to)
			x.bytes = n.header(x.bytes, x.peer.self)
		}
		x.bytes = e.m.append(x.bytes)
		err := mpilib.Bsend(context.Background(), x.comm, x.bytes, process, x.tag) // does not wait
		switch {
		case err == nil:
		case !errors.Is(err, mpilib.ErrProcFailed) && !errors.Is(err, mpilib.ErrFinalized):
			x.err = cmp.Or(x.err, err)
		case x.numbers != nil:
			out = append(out, x.merge(x.numbers.view.Lost(e.to, uint32(process)))...)
		case !x.peer.places[e.to].IsLost:
			out = append(out, x.peer.lost(e.to)...)
		}
	}
}

// Serve handles messages until ctx is done, and returns nil then.
func (x *Exchange) Serve(ctx context.Context) error {
	x.mu.Lock()
	x.serves = true
	x.mu.Unlock()
	for {
		err := x.step(ctx)
		if ctx.Err() != nil {
			x.unserved(context.Cause(ctx))
			return nil
		}
		if err != nil {
			x.unserved(err)
			return err
		}
	}
}

// unserved ends what waits for Serve.
func (x *Exchange) unserved(cause error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.serves = false
	for number, f := range x.peer.fetches {
		f.done(State{}, x.peer.abandon(number, cause))
	}
}

// Poll handles the messages that have come. It is for programs without Serve.
func (x *Exchange) Poll(ctx context.Context) error {
	for {
		m, ok, err := x.comm.Improbe(mpilib.AnySource, x.tag)
		if err == nil && !ok {
			return nil
		}
		if err := x.receive(ctx, m, err); err != nil {
			return err
		}
	}
}

// step waits for one message, or the news of a loss, and handles it.
func (x *Exchange) step(ctx context.Context) error {
	m, err := x.comm.Mprobe(ctx, mpilib.AnySource, x.tag)
	return x.receive(ctx, m, err)
}

// receive handles what a probe has returned.
func (x *Exchange) receive(ctx context.Context, m mpilib.Message, err error) error {
	var b []byte
	if err == nil {
		b = make([]byte, m.Status.Bytes)
		_, err = m.Recv(context.WithoutCancel(ctx), mpilib.PartOf(b)) // it is on its way, and nobody else gets it
	}
	begun := time.Now()
	x.mu.Lock()
	defer x.mu.Unlock()
	if err != nil {
		err = x.lose(err)
	} else if bad := x.handle(m.Status.Source, b); bad != nil {
		err = fmt.Errorf("from process %d: %w", m.Status.Source, bad)
	}
	x.budget.Spend(time.Since(begun))
	if ctx.Err() == nil {
		x.err = cmp.Or(x.err, err)
	}
	return err
}

// handle handles the bytes of a message from a rank of the communicator.
func (x *Exchange) handle(from int, b []byte) error {
	task := from
	if x.numbers != nil {
		var isCurrent bool
		var err error
		if task, b, isCurrent, err = x.sender(from, b); err != nil || !isCurrent {
			return err
		}
	}
	m, err := parse(b)
	switch {
	case err != nil:
		return err
	case m.kind == kindHello && x.numbers != nil:
		return x.place(task, m.data)
	}
	x.send(x.peer.receive(task, m))
	return nil
}

// lose notes the losses that an error names, and returns nil if the communicator did not report all of them before.
func (x *Exchange) lose(err error) error {
	var failed *mpilib.ProcFailedError
	if !errors.As(err, &failed) {
		return err
	}
	if x.numbers != nil {
		defer x.numbers.lost()
		return x.noteFailed(true)
	}
	for _, task := range failed.Ranks {
		if !x.peer.places[task].IsLost {
			x.send(x.peer.lost(task))
		}
	}
	if len(failed.Ranks) <= x.acknowledged {
		return err
	}
	x.acknowledged, err = x.comm.AckFailed(len(failed.Ranks))
	return err
}

// Fetch returns the newest whole state of a task that any live task holds, and is ErrNoState if none does. It asks all of them, waits until
// each has answered or is lost, and names the holders and what became of them if it fails. If Serve does not run, it
// handles messages meanwhile. The caller owns the state.
func (x *Exchange) Fetch(ctx context.Context, task int) (State, error) {
	type outcome struct {
		state State
		err   error
	}
	ended := make(chan outcome, 1)
	x.mu.Lock()
	if task < 0 || task >= len(x.peer.places) {
		defer x.mu.Unlock()
		return State{}, fmt.Errorf("checkpoint: task %d of %d", task, len(x.peer.places))
	}
	waiting, stop := context.WithCancel(ctx) // Serve may begin meanwhile, and end the fetch
	defer stop()
	number, out := x.peer.fetch(task, func(s State, err error) { ended <- outcome{s, err}; stop() })
	x.send(out)
	serves := x.serves
	x.mu.Unlock()
	for !serves && len(ended) == 0 {
		if err := x.step(waiting); err != nil && waiting.Err() == nil {
			return State{}, x.abandon(number, err)
		} else if ctx.Err() != nil {
			break
		}
	}
	select {
	case o := <-ended:
		return o.state, o.err
	case <-ctx.Done():
		return State{}, x.abandon(number, context.Cause(ctx))
	}
}

func (x *Exchange) abandon(number uint64, cause error) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.peer.abandon(number, cause)
}
