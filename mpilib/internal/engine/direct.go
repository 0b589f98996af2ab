package engine

import (
	"github.com/isthmus-grid/isthmus/internal/shm"
	"github.com/isthmus-grid/isthmus/wire"
)

// directRow is after how many receives one goes the other way, which sees to all lanes:
// others must not wait for two who talk all the time.
const directRow = 16

// recvDirect receives a message straight from the lane of its sender, if it is the next there
// or comes in a moment, and reports whether it did. It posts no receive: while it has the
// polling turn nobody else takes messages from that sender, and no other receive of the
// context waits and no message of it is kept when it begins, so that the order is the standard's
// (MPI-4.1, section 3.5). It is a matter of a few microseconds, of which nobody has to know:
// the death of a process, or of the context, it sees afterwards. mu is held, and given up
// meanwhile.
func (e *Engine) recvDirect(ctxID uint32, src, tag int, b []byte) (got Result, ok bool) {
	n := &e.lanes
	if src == AnySource || src == e.cfg.Rank || n.polling || !e.peers[src].near.open {
		return got, false
	}
	p := e.peers[src]
	if n.direct++; n.direct%directRow == 0 || n.stir.Load() || len(e.copies)+len(e.helps) > 0 || p.failed != nil || e.closed != nil || e.unwanted(ctxID) || !e.contextOf(ctxID).table.Empty() {
		return got, false
	}
	n.take()
	n.awake()
	rx := p.near.rx
	if spins := n.waiter.Spins(); !rx.Ready() && spins > 0 && !n.local.Load() {
		e.mu.Unlock()
		for range spins {
			if rx.Ready() {
				break
			}
			shm.Pause()
		}
		e.mu.Lock()
	}
	got, ok = p.takeDirect(ctxID, tag, b)
	e.yieldLanes()
	return got, ok
}

// takeDirect takes the next record of the lane if it is a message for a receive with
// that buffer. The polling turn and mu are held.
func (p *peer) takeDirect(ctxID uint32, tag int, b []byte) (got Result, ok bool) {
	rx := p.near.rx
	head, payload, ok, err := rx.Next()
	if !ok || err != nil || p.failed != nil { // who sweeps will find it again
		return got, false
	}
	env, err := wire.ParseEnvelope(head[:])
	if err != nil || env.Kind != wire.EnvelopeEager || env.Context != ctxID || env.Flags != 0 ||
		tag != AnyTag && int(env.Tag) != tag || env.Length != uint64(len(payload)) || len(payload) > len(b) || p.e.unwanted(ctxID) {
		return got, false
	}
	copy(b, payload)
	if rx.Done() {
		p.near.bell = true
	}
	p.stats.MessagesReceived++
	p.stats.BytesReceived += env.Length
	p.owe(len(payload) + messageCost)
	if p.near.bell || p.out.any() {
		p.dispatch(false)
	}
	return Result{Source: p.rank, Tag: int(env.Tag), Bytes: env.Length}, true
}
