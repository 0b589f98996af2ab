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

// rings serves the rings of all peers with shared memory. One goroutine at a time polls them, the
// holder of the polling token: a waiter, or the attendant. When its wait gets long it marks itself
// asleep in every ring, and senders then send a bell over the link. The engine's lock guards all
// fields, except where noted.
//
//	free --a wait--> the waiter polls --its condition is met--> free, rings awake
//	   ^                     '--no record for long--> free, rings asleep --bell--.
//	   '-- rings asleep <--rings empty-- served by the reader of the link, ------'
//	                                     or by the attendant when idle for a tick
type rings struct {
	mu        *sync.Mutex // the engine's, and so
	ctx       context.Context
	idle      *idleWatch
	copies    *copies
	peers     []*peer // those with an open ring; replaced on change, so that the token's holder may iterate it without the lock
	polling   bool    // a goroutine holds the token
	spinning  bool    // the holder polls without the lock
	asleep    bool    // marked asleep in every ring
	attended  bool    // the attendant runs
	waiters   int     // goroutines that sleep until their condition is met or the token is free
	polls     uint64  // how often the token was taken
	pollsSeen uint64  // polls at the last checkIdle
	direct    uint    // direct receives, see directsPerSweep

	token         chan struct{} // wakes one waiter when it is free
	attendantWake chan struct{} // wakes the attendant: the rings are idle
	free          *sync.Cond    // signalled when the token is returned
	attention     atomic.Bool   // the poller must take the lock and look at more than rings
	waiter        *shm.Waiter   // of the token's holder
	waiterFits    bool          // waiter fits the current peers
	crowded       bool          // more runnable processes than processors
	local         atomic.Bool   // a peer is in this very process: its messages need other goroutines to run
	single        bool          // one processor: other goroutines run only when the poller yields
	started       time.Time
	cpuChangedAt  time.Duration // when this process last moved to another processor
	checkEvery    time.Duration // how often sleeping rings are checked
}

func (n *rings) init(e *Engine) {
	n.mu, n.ctx, n.idle, n.copies = &e.mu, e.ctx, &e.idle, &e.copies
	e.copies.mu = n.mu
	n.token, n.attendantWake = make(chan struct{}, 1), make(chan struct{}, 1)
	n.free = sync.NewCond(n.mu)
	n.started, n.checkEvery = time.Now(), sleepCheckEvery
	n.single = runtime.GOMAXPROCS(0) == 1
}

// patience is how long a wait polls where no other process needs the processor: a bell and
// its wake-up are slow, and a peer that computes or is preempted is soon back.
const patience = 500 * time.Microsecond

// fitWaiter creates the waiter for the number of processes that share the machine's processors.
func (n *rings) fitWaiter() {
	var others []shm.CPUs
	for _, p := range n.peers {
		others = append(others, p.transport.ring.cpus)
	}
	n.waiterFits = true
	n.crowded = shm.Crowded(shm.Allowed(), others)
	policy := shm.WaitPolicy{Crowded: n.crowded}
	if !n.crowded {
		policy.Budget = patience
	}
	n.waiter = shm.NewWaiter(policy)
}

// add starts to poll a peer's ring. mu is held.
func (n *rings) add(p *peer) {
	if !n.attended {
		n.attended = true
		p.e.work.Go(n.attendant)
	}
	n.peers = append(slices.Clip(slices.Clone(n.peers)), p)
	n.waiterFits = false
	n.requestSweep()
}

// remove stops polling a peer's ring. mu is held.
func (n *rings) remove(p *peer) {
	n.peers = slices.DeleteFunc(slices.Clone(n.peers), func(q *peer) bool { return q == p })
	n.requestSweep()
}

// requestSweep causes a sweep of the rings: by the token's holder, which takes the lock for
// it, or soon where no goroutine polls. The holder may have polled the ring in question already,
// so the rings count as awake until all of them were swept again. mu is held.
func (n *rings) requestSweep() {
	n.asleep = false
	if n.polling {
		n.attention.Store(true)
	} else {
		n.idle.startChecks()
	}
}

// takeToken gives the caller the token, which is free. mu is held.
func (n *rings) takeToken() {
	n.polling = true
	n.polls++
	if !n.waiterFits {
		n.fitWaiter()
	}
}

// releaseToken returns the token. mu is held.
func (n *rings) releaseToken() {
	n.polling = false
	n.free.Broadcast()
	if n.asleep {
		return
	}
	if n.waiters > 0 {
		wake(n.token)
	}
	n.idle.startChecks()
}

// clearAsleep clears the asleep mark of all rings. The token and mu are held.
func (n *rings) clearAsleep() {
	if !n.asleep {
		return
	}
	n.asleep = false
	for _, p := range n.peers {
		p.transport.ring.rx.Awake()
	}
}

// markAsleep marks every ring asleep and reports true, unless a message or room has appeared
// meanwhile. The token and mu are held.
func (n *rings) markAsleep() bool {
	n.asleep = true
	for _, p := range n.peers {
		if p.isEnded() || !p.transport.ring.rx.Sleep() {
			n.asleep = false
		}
		if size, yes := p.transport.stalled(); yes && !p.transport.ring.tx.Sleep(size) {
			n.asleep = false
		}
	}
	for _, f := range n.copies.in {
		if !f.awaitsSender || f.allCopied() { // checked after the mark: the sender checks the mark after copying its last piece
			n.asleep = false
		}
	}
	return n.asleep
}

// sweep handles the records in the rings, sends queued records for which there is room now, and reports
// whether there were any records; w, the condition of the caller, may be nil. The token and mu are held, and mu
// may be released meanwhile.
func (n *rings) sweep(w condition) bool {
	found := false
	if n.attention.Load() {
		n.attention.Store(false)
	}
	for _, p := range n.peers {
		if n.sweepRing(p, w) {
			found = true
		}
	}
	return found
}

// sweepRing is sweep for the ring of one peer.
func (n *rings) sweepRing(p *peer, w condition) (found bool) {
	if p.proto.Failed != nil {
		return false
	}
	if found = p.receive(w); found {
		n.asleep = false
	}
	if p.transport.toRing && (p.transport.queued() || p.slots.values.Pending()) || p.transport.link.bellDue || p.transport.link.unflushed {
		p.transport.dispatch(false)
	}
	return found
}

// serve handles the records in the rings until they can sleep or a waiter takes over. If
// another goroutine polls, that one does it. mu is held, and released meanwhile.
func (n *rings) serve() {
	if n.polling {
		n.requestSweep()
		return
	}
	if len(n.peers) == 0 {
		return
	}
	n.takeToken()
	for {
		for {
			swept, copied := n.sweep(nil), n.copies.copyOne()
			n.mu.Unlock() // give other goroutines a chance
			if !swept && !copied {
				runtime.Gosched()
			}
			n.mu.Lock()
			if !swept && !copied {
				break
			}
		}
		if n.waiters > 0 { // a poller finds the next record sooner than a bell would wake it
			n.clearAsleep()
			break
		}
		if n.markAsleep() {
			break
		}
	}
	n.releaseToken()
}

// pollOnce handles the records that are in the rings now, unless a goroutine polls them. mu is held,
// and given up meanwhile.
func (n *rings) pollOnce() {
	if !n.polling && len(n.peers) > 0 {
		n.takeToken()
		n.sweep(nil)
		n.copies.copyOne()
		n.releaseToken()
	}
}

// sleepCheckEvery is how often sleeping rings are checked. Bells should make that needless;
// with it a missed bell makes a message late, not lost.
const sleepCheckEvery = 100 * time.Millisecond

// attendant serves idle rings, until the engine closes.
func (n *rings) attendant() {
	round := time.NewTicker(n.checkEvery)
	defer round.Stop()
	for {
		select {
		case <-n.attendantWake:
		case <-round.C:
		case <-n.ctx.Done():
			return
		}
		n.mu.Lock()
		n.serve()
		n.mu.Unlock()
	}
}

// checkIdle is checkIdle for the rings: it wakes the attendant if they were idle since the
// last call. It reports whether they are awake. mu is held.
func (n *rings) checkIdle() bool {
	if len(n.peers) == 0 || n.asleep && !n.polling {
		return false
	}
	if n.polls == n.pollsSeen && !n.polling {
		wake(n.attendantWake)
	}
	n.pollsSeen = n.polls
	return true
}

// A condition is what a goroutine waits for.
type condition interface {
	isMet() bool              // with mu held
	changed() <-chan struct{} // signals that isMet may have changed; with mu held
}

// poll polls the rings until w is met or ctx is done, or sleeps until something has changed:
// the caller checks and calls again. mu is held, and released
// meanwhile.
func (n *rings) poll(ctx context.Context, w condition) {
	if !n.polling {
		n.takeToken()
		n.clearAsleep()
		parks := n.pollWithToken(ctx, w)
		if parks {
			parks = n.markAsleep()
		}
		n.releaseToken()
		if !parks {
			return
		}
	}
	signal := w.changed()
	n.waiters++
	n.mu.Unlock()
	select {
	case <-signal:
	case <-n.token:
	case <-ctx.Done():
	}
	n.mu.Lock()
	if n.waiters--; n.waiters > 0 && !n.polling && !n.asleep && w.isMet() {
		wake(n.token) // another waiter
	}
}

// pollWithToken polls, and reports whether it is time to sleep. mu is held, and
// released meanwhile.
func (n *rings) pollWithToken(ctx context.Context, w condition) (parks bool) {
	n.waiter.Begin()
	for {
		found := n.sweep(w)
		if n.copies.copyOne() {
			found = true
		}
		if found {
			n.waiter.Found()
		}
		if w.isMet() || ctx.Err() != nil || len(n.peers) == 0 {
			return false
		}
		if found {
			n.waiter.Begin()
			continue
		}
		stalled := len(n.copies.in) > 0 || slices.ContainsFunc(n.peers, func(p *peer) bool { _, yes := p.transport.stalled(); return yes })
		peers := n.peers
		n.spinning = true
		n.mu.Unlock()
		parks = n.spin(ctx, peers, stalled)
		n.mu.Lock()
		n.spinning = false
		if parks {
			return true
		}
	}
}

// spinsForRoom is after how many polls a goroutine with records to send looks for room.
const spinsForRoom = 32

// spin polls without the lock until a ring has a record or attention is set, and reports
// whether to sleep instead. The token is held.
func (n *rings) spin(ctx context.Context, peers []*peer, stalled bool) (parks bool) {
	for i := 0; ; i++ {
		for _, p := range peers {
			if p.transport.ring.rx.Ready() {
				return false
			}
		}
		if n.attention.Load() || stalled && i == spinsForRoom {
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
		switch n.waiter.Next(now, n.crowded || n.sharesCPU(peers, now)) {
		case shm.Park:
			return true
		case shm.Yield:
			shm.YieldCPU()
		case shm.Nap:
			shm.NapCPU()
		case shm.Spin:
			shm.Pause()
		}
		if n.local.Load() || n.single && i%shm.YieldEvery == shm.YieldEvery-1 {
			runtime.Gosched()
		}
	}
}

// unmap unmaps the memory of all peers once no goroutine polls. Every peer has failed.
func (e *Engine) unmap() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.rings.polling {
		e.rings.free.Wait()
	}
	for _, p := range e.peers {
		if p != nil && p.transport.ring.seg != nil {
			p.transport.ring.seg.Close()
			p.transport.ring.seg = nil
		}
	}
}

// leaveEvery is the least time between two moves of a process to another processor.
const leaveEvery = 5 * time.Millisecond

// sharesCPU publishes to the peers on which processor this process runs, and reports whether a peer
// runs on the same one. Of two such processes the higher rank moves away now and then: the
// scheduler does not separate them.
func (n *rings) sharesCPU(peers []*peer, now time.Duration) bool {
	cpu, same := shm.CPU(), false
	for _, p := range peers {
		p.transport.ring.tx.From(cpu)
		if cpu < 0 || p.transport.ring.rx.From() != cpu {
			continue
		}
		same = true
		if p.e.cfg.process() > p.process && now-n.cpuChangedAt > leaveEvery {
			n.cpuChangedAt = now
			shm.Leave(cpu)
		}
	}
	return same
}
