package carrier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// drainBound is how long the other direction may still deliver data in flight once one side no
// longer accepts data.
const drainBound = 2 * time.Second

// pulse is how often a joint asks the kernel whether both sides are alive.
const pulse = 5 * time.Second

// flowError says on which of its two sockets a flow failed.
type flowError struct {
	writing bool
	peer    net.Addr // at the other end of that socket
	err     error
}

func (e *flowError) Error() string {
	if e.writing {
		return fmt.Sprintf("write to %v: %v", e.peer, e.err)
	}
	return fmt.Sprintf("read from %v: %v", e.peer, e.err)
}

func (e *flowError) Unwrap() error { return e.err }

func (f *flow) readFailed(err error) error {
	return &flowError{false, f.from.RemoteAddr(), unwrapJoined(err)}
}
func (f *flow) writeFailed(err error) error {
	return &flowError{true, f.to.RemoteAddr(), unwrapJoined(err)}
}

// unwrapJoined removes the addresses from an error, because flowError adds them.
func unwrapJoined(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	return err
}

// joint is one running join.
//
//	both flows run --end of stream--> its target is half-closed, the other goes on --end of stream--> ended, closed
//	      |  \--cannot write--> the other may deliver for drainBound --\
//	      \--cannot read, limit, idle, dead, ctx-----------------------+--> cut, both sides reset
type joint struct {
	a, b   Stream
	opts   Options
	budget *budget      // of both flows
	taking atomic.Int32 // flows that wait for the pacer
	pulse  time.Duration

	lateOnce sync.Once
	late     *time.Timer // stops the pacer when drainBound is over; written under lateOnce, read after the flows ended

	once  sync.Once
	cause error // of the cut; written under once, read after the flows ended
}

func newJoint(a, b Stream, o Options) *joint {
	return &joint{a: a, b: b, opts: o, budget: &budget{limit: o.Limit}, pulse: pulse}
}

// flow is one direction of a joint.
type flow struct {
	from, to Stream
	meter    *Meter
	dir      int // index into the meter
	budget   *budget
	pacer    Pacer         // or nil
	taking   *atomic.Int32 // counts flows that wait for the pacer
	loss     *LossWatch    // of to, or nil
}

// errStopped ends a flow whose pacer was stopped: the joint is being cut.
var errStopped = errors.New("stopped while waiting for its turn")

// take waits for the pacer until some of n bytes may pass, and returns how many.
func (f *flow) take(n int) (int, error) {
	f.taking.Add(1)
	defer f.taking.Add(-1)
	if n = f.pacer.Take(f.dir, n); n == 0 {
		return 0, f.readFailed(errStopped)
	}
	return n, nil
}

func (j *joint) run(ctx context.Context) error {
	j.a.SetDeadline(time.Time{}) // left by a handshake
	j.b.SetDeadline(time.Time{})
	var watch sync.WaitGroup
	done := make(chan struct{})
	watch.Go(func() { j.watch(ctx, done) })

	var back sync.WaitGroup
	back.Go(func() { j.flow(j.flowOf(j.b, j.a, 1)) })
	j.flow(j.flowOf(j.a, j.b, 0))
	back.Wait()
	close(done)
	watch.Wait()
	if j.late != nil {
		j.late.Stop()
	}

	if j.cause != nil {
		Reset(j.a)
		Reset(j.b)
		return j.cause
	}
	j.a.Close()
	j.b.Close()
	return nil
}

// flowOf returns one direction.
func (j *joint) flowOf(from, to Stream, dir int) *flow {
	f := &flow{from: from, to: to, meter: j.opts.Meter, dir: dir, budget: j.budget, pacer: j.opts.Pacer, taking: &j.taking}
	if tcp := Socket(to); tcp != nil && !j.opts.KeepControl {
		f.loss = WatchLoss(tcp, j.opts.Lossy)
	}
	return f
}

// flow runs one direction and handles its end.
func (j *joint) flow(f *flow) {
	err := f.copy()
	if err == nil {
		f.to.CloseWrite() // if it fails, the other flow will notice
		return
	}
	if failed, ok := errors.AsType[*flowError](err); ok && failed.writing {
		// What the dead side sent before it died is still worth delivering.
		j.note(err)
		end := time.Now().Add(drainBound)
		f.to.SetReadDeadline(end)
		f.from.SetWriteDeadline(end)
		j.stopLate()
		return
	}
	j.cut(err)
}

// cut ends both flows at once.
func (j *joint) cut(cause error) {
	j.note(cause)
	past := time.Unix(1, 0)
	j.a.SetDeadline(past)
	j.b.SetDeadline(past)
	if j.opts.Pacer != nil {
		j.opts.Pacer.Stop()
	}
}

// stopLate stops the pacer when drainBound is over.
func (j *joint) stopLate() {
	if p := j.opts.Pacer; p != nil {
		j.lateOnce.Do(func() { j.late = time.AfterFunc(drainBound, p.Stop) })
	}
}

func (j *joint) note(cause error) { j.once.Do(func() { j.cause = cause }) }

// watch cuts the joint when ctx ends, when nothing moves for too long, and when a side is dead
// while both flows wait for the other.
func (j *joint) watch(ctx context.Context, done <-chan struct{}) {
	beat := time.NewTicker(j.pulse)
	defer beat.Stop()
	var idle <-chan time.Time
	if j.opts.Idle > 0 {
		t := time.NewTicker(j.opts.Idle)
		defer t.Stop()
		idle = t.C
	}
	last := uint64(0)
	for {
		select {
		case <-done:
			return
		case <-ctx.Done():
			j.cut(context.Cause(ctx))
			return
		case <-beat.C:
			if err := cmp.Or(deadStream(j.a), deadStream(j.b)); err != nil {
				j.cut(err)
				return
			}
		case <-idle:
			now := j.opts.Meter.Stats().Total()
			if now == last && j.taking.Load() == 0 {
				j.cut(fmt.Errorf("%w: neither end sent anything for %v", overlay.ErrTimeout, j.opts.Idle))
				return
			}
			last = now
		}
	}
}

// copyInUserSpace copies through this process's memory, where the kernel cannot splice.
func (f *flow) copyInUserSpace() error {
	buf := make([]byte, 64<<10)
	for {
		n, err := f.from.Read(buf)
		if perr := f.pay(n); perr != nil {
			return perr
		}
		pass := f.budget.spend(n)
		if pass > 0 {
			if _, err := f.to.Write(buf[:pass]); err != nil {
				return f.writeFailed(err)
			}
			f.meter.copied[f.dir].Add(uint64(pass))
			f.loss.Look(time.Now())
		}
		switch {
		case pass < n:
			return ErrLimit
		case err == io.EOF:
			return nil
		case err != nil:
			return f.readFailed(err)
		}
	}
}

// pay waits until n bytes that were read may all pass.
func (f *flow) pay(n int) error {
	for n > 0 && f.pacer != nil && f.pacer.Paced() {
		pass, err := f.take(n)
		if err != nil {
			return err
		}
		n -= pass
	}
	return nil
}

// budget is the byte limit that two flows share.
type budget struct {
	limit uint64 // 0 is none
	spent atomic.Uint64
}

// spend returns how many of n bytes that arrived may pass.
func (b *budget) spend(n int) int {
	if b.limit == 0 {
		return n
	}
	if over := int64(b.spent.Add(uint64(n)) - b.limit); over > 0 {
		return max(n-int(over), 0)
	}
	return n
}
