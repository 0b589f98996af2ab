package aiac

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/isthmus-grid/isthmus/aiac/internal/termination"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// controlTag is the tag of the messages of package termination.
const controlTag = 2

// asyncRun is what an asynchronous run has besides.
type asyncRun struct {
	*run
	who      *processes
	end      *termination.Task
	finished *termination.Result
	out      []*mpilib.PutSlot[float64] // by feeds
	in       []*mpilib.GetSlot[float64] // by needs
	numbers  []uint64                   // of the values taken last, by needs
	copies   map[int][]float64          // of the wave, by task
	news     chan struct{}              // wakes the one that waits for anything
	inbox    chan received
	meetAt   []int  // the processes of all tasks at the decision
	puts     uint64 // the number of the values put last
	quiet    int    // iterations in a row that held the tolerance, with no news from anyone
}

// received is a message of package termination, or why no more can be received.
type received struct {
	from   int // the sender's rank
	data   []byte
	err    error
	isLoss bool // it is none: a process was lost
}

// async iterates with what has come until package termination has decided.
func (r *run) async(ctx context.Context, who *processes) error {
	a := &asyncRun{run: r, who: who, copies: map[int][]float64{}, news: make(chan struct{}, 1), inbox: make(chan received, 64)}
	if err := a.open(); err != nil {
		return err
	}
	defer a.close()
	sites, err := a.sites(ctx)
	if err != nil {
		return err
	}
	c := termination.Config{Task: r.task, Tree: termination.NewTree(sites), Hold: r.options.Hold, Tolerance: r.options.Tolerance, Norm: termination.Max}
	for _, n := range r.needs {
		c.Needs = append(c.Needs, n.task)
	}
	for _, n := range r.feeds {
		c.Feeds = append(c.Feeds, n.task)
	}
	receiving, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); a.receive(receiving) }()
	defer func() { stop(); <-ended }()
	end, out := termination.New(c, who.view)
	a.end = end
	if err := a.carryOut(ctx, out, -1, nil); err != nil {
		return err
	}
	if err := a.iterate(ctx); err != nil {
		return err
	}
	return a.leave(ctx)
}

// sites returns where the tasks are, for the tree of package termination. With replacements that is not known alike
// everywhere, and one tree is as right as another.
func (a *asyncRun) sites(ctx context.Context) ([]string, error) {
	sites := make([]string, a.problem.Tasks())
	if a.who.replaceable {
		return sites, nil
	}
	places, err := a.comm.Places(ctx)
	for i, at := range places {
		sites[i] = string(at.Site)
	}
	return sites, err
}

func (a *asyncRun) getFrom(n neighbour) (*mpilib.GetSlot[float64], error) {
	s, err := mpilib.GetFrom[float64](a.comm, a.who.of(n.task), valuesTag, len(n.values))
	if err == nil {
		s.Notify(a.news)
	}
	return s, err
}

func (a *asyncRun) putTo(n neighbour) (*mpilib.PutSlot[float64], error) {
	return mpilib.PutTo[float64](a.comm, a.who.of(n.task), valuesTag, len(n.values))
}

// open makes the slots. That of a process that was lost before stays nil.
func (a *asyncRun) open() error {
	for _, n := range a.needs {
		s, err := a.getFrom(n)
		if err != nil && !a.who.isLoss(err) {
			return err
		}
		a.in = append(a.in, s)
	}
	for _, n := range a.feeds {
		s, err := a.putTo(n)
		if err != nil && !a.who.isLoss(err) {
			return err
		}
		a.out = append(a.out, s)
	}
	a.numbers = make([]uint64, len(a.in))
	return nil
}

func (a *asyncRun) close() {
	for _, s := range a.in {
		if s != nil {
			s.Close()
		}
	}
}

// receive receives the messages of package termination until ctx is done: the task itself must not wait.
func (a *asyncRun) receive(ctx context.Context) {
	for {
		got := a.receiveOne(ctx)
		select {
		case a.inbox <- got:
		case <-ctx.Done():
			return
		}
		if got.err != nil {
			return
		}
		select {
		case a.news <- struct{}{}:
		default:
		}
	}
}

func (a *asyncRun) receiveOne(ctx context.Context) (got received) {
	m, err := a.comm.Mprobe(ctx, mpilib.AnySource, controlTag)
	if err == nil {
		got.from = m.Status.Source
		got.data = make([]byte, m.Status.Bytes)
		_, err = m.Recv(ctx, mpilib.PartOf(got.data))
	}
	if a.who.isLoss(err) {
		return received{isLoss: true, err: a.acknowledge()}
	}
	got.err = err
	return got
}

// iterate iterates until there is a decision.
func (a *asyncRun) iterate(ctx context.Context) error {
	if err := a.put(); err != nil {
		return err
	}
	for {
		isNew, err := a.take()
		if err != nil {
			return err
		}
		residual := a.state.Residual()
		holds := residual <= a.options.Tolerance
		if err := a.carryOut(ctx, a.end.Iterated(holds), -1, nil); err != nil {
			return err
		}
		if a.quiet++; isNew || !holds {
			a.quiet = 0
		}
		if a.quiet > a.options.Hold { // another iteration would change little, and take the processor from others
			if err := a.await(ctx); err != nil {
				return err
			}
		} else if err := a.step(ctx, residual); err != nil {
			return err
		}
		if err := a.handle(ctx); err != nil || a.finished != nil {
			return err
		}
	}
}

// take takes the values that are newer than the last ones, and reports whether there are any.
func (a *asyncRun) take() (isNew bool, err error) {
	for i, s := range a.in {
		n := &a.needs[i]
		if s == nil {
			continue
		}
		number, _, err := s.Get(n.values)
		if err != nil {
			return false, err
		}
		if number > a.numbers[i] {
			a.numbers[i], isNew = number, true
			a.state.Take(n.task, n.values)
			a.end.Heard(n.task)
		}
	}
	return isNew, nil
}

// step iterates once and puts the values. residual is that of before.
func (a *asyncRun) step(ctx context.Context, residual float64) error {
	if a.result.Iterations >= a.options.MaxIterations {
		return fmt.Errorf("%w: residual %g of the block after %d iterations", ErrIterations, residual, a.result.Iterations)
	}
	if err := a.state.Step(); err != nil {
		return err
	}
	a.result.Iterations++
	if err := a.put(); err != nil {
		return err
	}
	return a.save(ctx, a.result.Iterations)
}

func (a *asyncRun) put() error {
	a.puts++
	for i, s := range a.out {
		if s == nil {
			continue
		}
		n := &a.feeds[i]
		a.state.Give(n.task, n.values)
		if err := s.Put(a.puts, n.values); err != nil && !a.who.isLoss(err) {
			return err
		}
	}
	return nil
}

// await waits until a value or a message has come.
func (a *asyncRun) await(ctx context.Context) error {
	if len(a.inbox) > 0 {
		return nil
	}
	select {
	case <-a.news:
		return nil
	case <-a.losses:
		return a.lose(ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// handle handles the messages of package termination that are here.
func (a *asyncRun) handle(ctx context.Context) error {
	for a.finished == nil {
		select {
		case m := <-a.inbox:
			if err := a.handleOne(ctx, m); err != nil {
				return err
			}
		case <-a.losses:
			if err := a.lose(ctx); err != nil {
				return err
			}
		default:
			return nil
		}
	}
	return nil
}

func (a *asyncRun) handleOne(ctx context.Context, got received) error {
	if got.err != nil {
		return got.err
	}
	a.quiet = 0 // after a wave all must show anew that they are ready
	if got.isLoss {
		return a.lose(ctx)
	}
	m, after, err := termination.Parse(got.data, a.problem.Tasks())
	if err != nil {
		return fmt.Errorf("from process %d: %w", got.from, err)
	}
	task, _ := m.View.Task(uint32(got.from)) // Receive says if there is none
	out, err := a.end.Receive(uint32(got.from), m)
	return errors.Join(err, a.carryOut(ctx, out, task, after), a.follow())
}

// carryOut does what package termination says, after a message of task from that after follows.
func (a *asyncRun) carryOut(ctx context.Context, out termination.Out, from int, after []byte) error {
	if out.Store {
		a.copies[from] = appendFloats(a.copies[from][:0], after)
	}
	if out.Freeze {
		a.keepCopy()
	}
	for _, e := range out.Send {
		if err := a.send(ctx, e); err != nil {
			return err
		}
	}
	if out.Result != nil {
		a.finished = out.Result
	}
	if out.Measure.Round == 0 {
		return nil
	}
	for i, n := range a.needs {
		if len(a.copies[n.task]) != len(n.values) {
			return fmt.Errorf("the copy of task %d has %d values, want %d", n.task, len(a.copies[n.task]), len(n.values))
		}
		a.copy.Take(n.task, a.copies[a.needs[i].task])
	}
	return a.carryOut(ctx, a.end.Measured(out.Measure, a.copy.Residual()), -1, nil)
}

// send sends a message of package termination. A Block has the copied values behind it.
func (a *asyncRun) send(ctx context.Context, e termination.Envelope) error {
	b := e.Message.Append(nil)
	if e.Message.Kind == termination.Block {
		for _, n := range a.feeds {
			if number, _ := a.end.View().Process(n.task); number == e.Process {
				a.copy.Give(n.task, n.values)
				b = appendBytes(b, n.values)
			}
		}
	}
	err := mpilib.Bsend(ctx, a.comm, b, int(e.Process), controlTag)
	if a.who.isLoss(err) {
		return nil // which receive notices, too
	}
	return err
}

// appendBytes appends numbers as they are in messages and saved states.
func appendBytes(b []byte, v []float64) []byte {
	for _, x := range v {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
	}
	return b
}

func appendFloats(v []float64, b []byte) []float64 {
	for ; len(b) >= 8; b = b[8:] {
		v = append(v, math.Float64frombits(binary.LittleEndian.Uint64(b)))
	}
	return v
}

// leave waits until all tasks have the decision, and answers those that do not have it yet.
func (a *asyncRun) leave(ctx context.Context) error {
	a.result.Task, a.result.Residual = a.copy, a.finished.Residual
	if a.who.replaceable && !a.finished.HasCopy {
		return ErrResultLost
	}
	for task := range a.problem.Tasks() {
		a.meetAt = append(a.meetAt, a.who.of(task))
	}
	all := make(chan error, 1)
	go func() {
		all <- a.meet(ctx)
	}()
	for {
		select {
		case err := <-all:
			a.count()
			return err
		case m := <-a.inbox:
			if err := a.handleOne(ctx, m); err != nil {
				return err
			}
		case <-a.losses:
			if err := a.lose(ctx); err != nil {
				return err
			}
		}
	}
}

// meet returns when all tasks have the decision.
func (a *asyncRun) meet(ctx context.Context) error {
	if a.who.replaceable {
		return a.meetProcesses(ctx)
	}
	_, err := mpilib.Ibarrier(a.comm).Wait(ctx)
	return err
}

// count adds up what the slots have counted.
func (a *asyncRun) count() {
	for _, s := range a.out {
		if s == nil {
			continue
		}
		c := s.Counts()
		a.result.Put += c.Put
		a.result.Overwritten += c.Overwritten
		a.result.Sent += c.Sent
	}
	for _, s := range a.in {
		if s == nil {
			continue
		}
		c := s.Counts()
		a.result.Received += c.Received
		a.result.Unused += c.Overwritten
	}
}
