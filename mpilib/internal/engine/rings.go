package engine

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-grid/isthmus/internal/ipc/shm"
)

// rings is how the engine sees to the shared memory of all peers that have
// some. Whoever waits polls all rings, one goroutine at a time, the holder of
// the polling turn; when the wait gets long it says in every ring that it
// sleeps, and whoever sends rings a bell over the link then. Guarded by the
// engine's lock, but for what is said otherwise.
//
//	nobody --a wait--> the waiter polls --it has what it wants--> nobody, rings awake
//	   ^                     '--nothing for long--> nobody, rings asleep --bell--.
//	   '-- rings asleep <--all done-- served by the reader of the link, ---------'
//	                                  or by the keeper when left alone for a tick
type rings struct {
	peers    []*peer // whose ring is open; replaced when it changes, so that the turn's holder may go through it without the lock
	polling  bool    // somebody has the turn
	spinning bool    // and polls without the lock
	asleep   bool    // every ring is announced to be
	tended   bool    // the attendant runs
	waiters  int     // who sleep until what they want is there, or the turn is free
	turns    uint64  // how often the turn was taken
	seen     uint64  // turns, as the keeper saw them last
	direct   uint    // receives that asked for a message straight from its ring

	turn    chan struct{} // tells one waiter that it is free
	tend    chan struct{} // tells the attendant that the rings were left alone
	free    *sync.Cond    // nobody has the turn any more
	stir    atomic.Bool   // who polls is to look at more than rings
	waiter  *shm.Waiter   // of the turn's holder
	paced   bool          // waiter is as fits the peers there are
	crowded bool          // more processes than processors want to run
	local   atomic.Bool   // other goroutines must run for messages to come: a peer is of this very process
	single  bool          // other goroutines run only where who polls lets them: there is one processor
	started time.Time
	left    time.Duration // when this process last went to another processor
	round   time.Duration // how often rings are looked at that sleep
}

func (n *rings) init(mu *sync.Mutex) {
	n.turn, n.tend = make(chan struct{}, 1), make(chan struct{}, 1)
	n.free = sync.NewCond(mu)
	n.started, n.round = time.Now(), roundEvery
	n.single = runtime.GOMAXPROCS(0) == 1
}

// patience is how long a wait polls that keeps nobody from running: a bell and its waking
// take long, and who computes or is preempted meanwhile is soon back.
const patience = 500 * time.Microsecond

// pace makes the waiter fit for how many share the machine's processors.
func (n *rings) pace() {
	var others []shm.CPUs
	for _, p := range n.peers {
		others = append(others, p.near.cpus)
	}
	n.paced = true
	n.crowded = shm.Crowded(shm.Allowed(), others)
	pace := shm.Pace{Crowded: n.crowded}
	if !n.crowded {
		pace.Budget = patience
	}
	n.waiter = shm.NewWaiter(pace)
}

// add has a peer's ring polled. mu is held.
func (n *rings) add(p *peer) {
	if !n.tended {
		n.tended = true
		p.e.work.Go(p.e.attendant)
	}
	n.peers = append(slices.Clip(slices.Clone(n.peers)), p)
	n.paced = false
	p.e.disturb()
}

// remove has it polled no more. mu is held.
func (n *rings) remove(p *peer) {
	n.peers = slices.DeleteFunc(slices.Clone(n.peers), func(q *peer) bool { return q == p })
	p.e.disturb()
}

// disturb has the rings looked at: by the holder of the turn, who takes the lock for it,
// or, where nobody polls, before long. The holder may be past what is to be looked at, and
// leave the rings as asleep as it found them: so they are not, until somebody has
// looked at all of them. mu is held.
func (e *Engine) disturb() {
	n := &e.rings
	n.asleep = false
	if n.polling {
		n.stir.Store(true)
	} else {
		e.leftAlone()
	}
}

// take gives the caller the turn, which is free. mu is held.
func (n *rings) take() {
	n.polling = true
	n.turns++
	if !n.paced {
		n.pace()
	}
}

// yield gives the turn back. mu is held.
func (e *Engine) yieldRings() {
	n := &e.rings
	n.polling = false
	n.free.Broadcast()
	if n.asleep {
		return
	}
	if n.waiters > 0 {
		wake(n.turn)
	}
	e.leftAlone()
}

// awake takes back that the rings sleep. The turn and mu are held.
func (n *rings) awake() {
	if !n.asleep {
		return
	}
	n.asleep = false
	for _, p := range n.peers {
		p.near.rx.Awake()
	}
}

// sleepRings announces in every ring that nobody will look, unless something came
// meanwhile, or has room now. The turn and mu are held.
func (e *Engine) sleepRings() bool {
	n := &e.rings
	n.asleep = true
	for _, p := range n.peers {
		if p.near.cut != nil || !p.near.rx.Sleep() {
			n.asleep = false
		}
		if size, yes := p.stalled(); yes && !p.near.tx.Sleep(size) {
			n.asleep = false
		}
	}
	for _, f := range e.copies {
		if !f.waits || f.settled() { // after the announcement: the lender looks for it when it has copied its last piece
			n.asleep = false
		}
	}
	return n.asleep
}

// sweep acts on what is in the rings and sends what found no room, and reports
// whether anything came; w, what somebody waits for, may be nil. The turn and mu are held, and mu may be given up
// meanwhile.
func (e *Engine) sweep(w wanted) bool {
	found := false
	if e.rings.stir.Load() {
		e.rings.stir.Store(false)
	}
	for _, p := range e.rings.peers {
		if e.sweepRing(p, w) {
			found = true
		}
	}
	return found
}

// sweepRing is sweep for the ring of one peer.
func (e *Engine) sweepRing(p *peer, w wanted) (found bool) {
	if p.failed != nil {
		return false
	}
	if found = p.receive(w); found {
		e.rings.asleep = false
	}
	if p.out.near && (len(p.out.queue) > 0 || len(p.out.bulk) > 0) || p.near.bell {
		p.dispatch(false)
	}
	return found
}

// attendRings acts on what is in the rings until they sleep, or somebody who waits
// takes over, unless somebody is there who does. mu is held, and given up meanwhile.
func (e *Engine) attendRings() {
	n := &e.rings
	if n.polling {
		e.disturb()
		return
	}
	if len(n.peers) == 0 {
		return
	}
	n.take()
	for {
		for {
			swept, toiled := e.sweep(nil), e.toil()
			e.mu.Unlock() // others may want it
			if !swept && !toiled {
				runtime.Gosched()
			}
			e.mu.Lock()
			if !swept && !toiled {
				break
			}
		}
		if n.waiters > 0 { // what comes next is sooner seen by one who polls than by a bell
			n.awake()
			break
		}
		if e.sleepRings() {
			break
		}
	}
	e.yieldRings()
}

// glance acts on what is in the rings now, unless somebody polls them. mu is held,
// and given up meanwhile.
func (e *Engine) glance() {
	if n := &e.rings; !n.polling && len(n.peers) > 0 {
		n.take()
		e.sweep(nil)
		e.toil()
		e.yieldRings()
	}
}

// roundEvery is how often rings are looked at that sleep. Bells should make that
// needless; but what comes of one that is missed is to be late, and not to be lost.
const roundEvery = 100 * time.Millisecond

// attendant sees to rings that were left alone, until the engine closes.
func (e *Engine) attendant() {
	round := time.NewTicker(e.rings.round)
	defer round.Stop()
	for {
		select {
		case <-e.rings.tend:
		case <-round.C:
		case <-e.ctx.Done():
			return
		}
		e.mu.Lock()
		e.attendRings()
		e.mu.Unlock()
	}
}

// lookAtRings is the keeper's look at the rings: those that were left alone
// since the last are attended to. It reports whether they are awake. mu is held.
func (e *Engine) lookAtRings() bool {
	n := &e.rings
	if len(n.peers) == 0 || n.asleep && !n.polling {
		return false
	}
	if n.turns == n.seen && !n.polling {
		wake(n.tend)
	}
	n.seen = n.turns
	return true
}

// A wanted is what somebody waits for.
type wanted interface {
	here() bool              // with mu held
	signal() <-chan struct{} // tells when it is to be asked again; with mu held
}

// poll polls the rings until what is wanted is here or ctx is done, or sleeps
// until something has changed: the caller looks and calls again. mu is held, and given up
// meanwhile.
func (e *Engine) poll(ctx context.Context, w wanted) {
	n := &e.rings
	if !n.polling {
		n.take()
		n.awake()
		parks := e.pollTurn(ctx, w)
		if parks {
			parks = e.sleepRings()
		}
		e.yieldRings()
		if !parks {
			return
		}
	}
	signal := w.signal()
	n.waiters++
	e.mu.Unlock()
	select {
	case <-signal:
	case <-n.turn:
	case <-ctx.Done():
	}
	e.mu.Lock()
	if n.waiters--; n.waiters > 0 && !n.polling && !n.asleep && w.here() {
		wake(n.turn) // whoever else waits
	}
}

// pollTurn polls, and reports whether it is time to sleep. mu is held, and given
// up meanwhile.
func (e *Engine) pollTurn(ctx context.Context, w wanted) (parks bool) {
	n := &e.rings
	n.waiter.Begin()
	for {
		found := e.sweep(w)
		if e.toil() {
			found = true
		}
		if found {
			n.waiter.Found()
		}
		if w.here() || ctx.Err() != nil || len(n.peers) == 0 {
			return false
		}
		if found {
			n.waiter.Begin()
			continue
		}
		stalled := len(e.copies) > 0 || slices.ContainsFunc(n.peers, func(p *peer) bool { _, yes := p.stalled(); return yes })
		peers := n.peers
		n.spinning = true
		e.mu.Unlock()
		parks = n.spin(ctx, peers, stalled)
		e.mu.Lock()
		n.spinning = false
		if parks {
			return true
		}
	}
}

// spinsForRoom is after how many polls one who has to send looks for room.
const spinsForRoom = 32

// spin polls without the lock until there is something to look at, and reports whether
// it is time to sleep instead. The turn is held.
func (n *rings) spin(ctx context.Context, peers []*peer, stalled bool) (parks bool) {
	for i := 0; ; i++ {
		for _, p := range peers {
			if p.near.rx.Ready() {
				return false
			}
		}
		if n.stir.Load() || stalled && i == spinsForRoom {
			return false
		}
		if n.waiter.Spinning() {
			shm.Pause()
			continue
		}
		if ctx.Err() != nil {
			return false
		}
		now := time.Since(n.started)
		switch n.waiter.Next(now, n.crowded || n.beside(peers, now)) {
		case shm.Park:
			return true
		case shm.Yield:
			shm.YieldCPU()
		case shm.Nap:
			shm.NapCPU()
		case shm.Spin:
			shm.Pause()
		}
		if n.local.Load() || n.single && i%shm.TurnEvery == shm.TurnEvery-1 {
			runtime.Gosched()
		}
	}
}

// unmap gives the memory of all peers back when nobody polls any more. Every peer
// has failed.
func (e *Engine) unmap() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.rings.polling {
		e.rings.free.Wait()
	}
	for _, p := range e.peers {
		if p != nil && p.near.seg != nil {
			p.near.seg.Close()
			p.near.seg = nil
		}
	}
}

// leaveEvery is how often a process goes to another processor at most.
const leaveEvery = 5 * time.Millisecond

// beside tells the peers on which processor this process runs, and reports whether one
// of them said the same. Of two that did, the higher rank goes elsewhere now and
// then: the scheduler would not part them.
func (n *rings) beside(peers []*peer, now time.Duration) bool {
	cpu, same := shm.CPU(), false
	for _, p := range peers {
		p.near.tx.From(cpu)
		if cpu < 0 || p.near.rx.From() != cpu {
			continue
		}
		same = true
		if p.e.cfg.Rank > p.rank && now-n.left > leaveEvery {
			n.left = now
			shm.Leave(cpu)
		}
	}
	return same
}
