package wan

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// defaultMaxQueues keeps the number of threads small while up to eight endpoints have a queue per
// ordered pair.
const defaultMaxQueues = 64

// An Emulator applies Shapes to the packets of one network namespace. Its
// methods may be called from any goroutine and any thread.
type Emulator struct {
	paths  []*path
	byName map[[2]string]*path
	queues []*queue
	rules  *rules
	start  time.Time // origin of emulator times

	served atomic.Bool
	closed sync.Once
	mu     sync.Mutex // serialises Shape
}

// A path is an active Path. Only the goroutine of its queue touches link.
type path struct {
	Path  // its Shape is the first one; shape holds the current one
	in    uint32
	out   uint32
	mtu   int // of Out
	queue *queue
	link  *link
	shape atomic.Pointer[Shape]
	tally tally
}

// A tally is written by one goroutine and read by any.
type tally struct {
	packets, bytes, messages atomic.Uint64
	lost, overflowed         atomic.Uint64
	duplicated, released     atomic.Uint64
	lateMax, lateSum         atomic.Int64 // nanoseconds
}

func (t *tally) late(d time.Duration) {
	t.released.Add(1)
	t.lateSum.Add(int64(d))
	if int64(d) > t.lateMax.Load() {
		t.lateMax.Store(int64(d))
	}
}

// New opens the queues and installs the rules in the network namespace of the calling thread, which
// the caller has locked (runtime.LockOSThread) if that is not the process's own. In and Out must
// exist there and must not be replaced while the emulator lives. From then on matching packets wait
// for Serve; call Serve or, if it will not be called, Close. It needs CAP_NET_ADMIN and CAP_NET_RAW
// in the namespace's user namespace.
func New(paths []Path, opt Options) (*Emulator, error) {
	if opt.MaxQueues <= 0 {
		opt.MaxQueues = defaultMaxQueues
	}
	e := &Emulator{start: time.Now(), byName: make(map[[2]string]*path, len(paths))}
	if err := e.addPaths(paths, opt.Seed); err != nil {
		return nil, err
	}
	of, n, own := assign(paths, opt.MaxQueues)
	again, err := openResender()
	if err != nil {
		return nil, err
	}
	for i := range n {
		e.queues = append(e.queues, &queue{
			number: uint16(i), start: e.start, again: again,
			nl: -1, wake: -1, paths: make(map[[2]uint32]*path),
		})
	}
	for i, p := range e.paths {
		p.queue = e.queues[of[i]]
		p.queue.paths[[2]uint32{p.in, p.out}] = p
	}
	if len(e.queues) == 0 {
		again.close()
	}
	for _, q := range e.queues {
		if err := q.open(); err != nil {
			e.Close()
			return nil, err
		}
	}
	// The rules come last: a packet sent to a queue without a reader is lost.
	e.rules, err = installRules("wan-0", e.diversions(own))
	if err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// addPaths checks paths against each other and the namespace's interfaces.
func (e *Emulator) addPaths(paths []Path, seed uint64) error {
	ifaces, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("wan: list interfaces: %w", err)
	}
	byName := make(map[string]net.Interface, len(ifaces))
	for _, i := range ifaces {
		byName[i.Name] = i
	}
	byDev := make(map[[2]string]bool, len(paths))
	for _, p := range paths {
		in, okIn := byName[p.In]
		out, okOut := byName[p.Out]
		names, devs := [2]string{p.From, p.To}, [2]string{p.In, p.Out}
		err := p.Validate()
		switch {
		case err != nil:
		case !okIn:
			err = fmt.Errorf("no interface %q in this namespace", p.In)
		case !okOut:
			err = fmt.Errorf("no interface %q in this namespace", p.Out)
		case e.byName[names] != nil:
			err = errors.New("given twice")
		case byDev[devs]:
			err = fmt.Errorf("another path goes from %s to %s already", p.In, p.Out)
		}
		if err != nil {
			return fmt.Errorf("wan: path %s -> %s: %w", p.From, p.To, err)
		}
		n := &path{Path: p, in: uint32(in.Index), out: uint32(out.Index), mtu: out.MTU, link: newLink(seed, p.From, p.To)}
		n.shape.Store(&p.Shape)
		e.paths = append(e.paths, n)
		e.byName[names], byDev[devs] = n, true
	}
	return nil
}

// diversions returns a rule per path if each has its own queue, else a rule per input interface:
// packets pass all rules in turn.
func (e *Emulator) diversions(own bool) []diversion {
	var to []diversion
	seen := make(map[uint32]bool)
	for _, p := range e.paths {
		if own {
			to = append(to, diversion{in: p.in, out: p.out, queue: p.queue.number})
		} else if !seen[p.in] {
			seen[p.in] = true
			to = append(to, diversion{in: p.in, queue: p.queue.number})
		}
	}
	return to
}

// Serve carries packets until ctx is done, which is no error, or a queue fails. When it returns,
// its goroutines have ended, the rules are removed, packets in transit are dropped and the emulator
// can only be used for Counters.
func (e *Emulator) Serve(ctx context.Context) error {
	if e.served.Swap(true) {
		return errors.New("wan: Serve called twice")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(e.queues))
	var all sync.WaitGroup
	for i, q := range e.queues {
		all.Go(func() { // ends with ctx or its queue
			defer cancel()
			errs[i] = q.run(ctx)
		})
	}
	if len(e.queues) == 0 {
		<-ctx.Done()
	}
	all.Wait()
	return errors.Join(append(errs, e.release())...)
}

// Close releases the resources of New if Serve was not called; otherwise it does nothing.
func (e *Emulator) Close() error {
	if e.served.Swap(true) {
		return nil
	}
	return e.release()
}

func (e *Emulator) release() (err error) {
	e.closed.Do(func() {
		// Rules first: a packet sent to a queue without a reader is lost.
		if e.rules != nil {
			err = e.rules.remove()
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		for i, q := range e.queues {
			q.close()
			if i == 0 {
				q.again.close() // all queues share it
			}
		}
	})
	return err
}

// Shape changes the shape of the path from -> to. It applies to every packet that arrives after
// Shape has returned. Packets in transit keep their times, and later ones do not overtake them.
func (e *Emulator) Shape(from, to string, s Shape) error {
	p := e.byName[[2]string{from, to}]
	if p == nil {
		return fmt.Errorf("wan: no path %s -> %s", from, to)
	}
	if err := s.Validate(); err != nil {
		return fmt.Errorf("wan: path %s -> %s: %w", from, to, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := p.queue.adapt(p, &s); err != nil {
		return fmt.Errorf("wan: path %s -> %s: %w", from, to, err)
	}
	p.shape.Store(&s)
	return nil
}

// Counters returns a Counter per path, in the order New was given. A counter's
// fields are read one after the other while packets flow.
func (e *Emulator) Counters() []Counter {
	all := make([]Counter, len(e.paths))
	for i, p := range e.paths {
		t := &p.tally
		c := Counter{
			From: p.From, To: p.To,
			Packets: t.packets.Load(), Bytes: t.bytes.Load(), Messages: t.messages.Load(),
			Lost: t.lost.Load(), Overflowed: t.overflowed.Load(),
			Duplicated: t.duplicated.Load(),
			LateMax:    time.Duration(t.lateMax.Load()),
		}
		c.Dropped = c.Lost + c.Overflowed
		if n := t.released.Load(); n > 0 {
			c.LateAvg = time.Duration(t.lateSum.Load() / int64(n))
		}
		all[i] = c
	}
	return all
}

// Overruns returns how many packets the kernel dropped before reporting them, because the emulator
// read too slowly. They are in no Counter; a run that has any measured this machine and not the
// intended WAN.
func (e *Emulator) Overruns() uint64 {
	var n uint64
	for _, q := range e.queues {
		n += q.overruns.Load()
	}
	return n
}
