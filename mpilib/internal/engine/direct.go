package engine

import (
	"github.com/isthmus-grid/isthmus/internal/ipc/shm"
	"github.com/isthmus-grid/isthmus/wire"
)

// directsPerSweep is after how many direct receives all rings are swept: two processes that exchange
// messages continuously must not delay the others.
const directsPerSweep = 16

// RecvNow receives a message that is the next in the ring of its sender, and reports whether it
// did. If not, nothing has changed, and StartRecv is to be called.
func (e *Engine) RecvNow(g Group, ctxID uint32, src, tag int, b []byte) (got Result, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.startError(g, ctxID) != nil {
		return got, false
	}
	return e.recvDirect(ctxID, src, tag, b, false)
}

// recvDirect receives a message straight from the ring of its sender, if it is the next there or,
// where the caller waits for it, arrives within a moment, and reports whether it did. It posts no
// receive: while it has the polling token no other goroutine takes messages from that sender. Records
// before it in the ring go to receives that were posted before, and a matching unexpected message of that
// sender is received first, so that messages do not overtake (MPI-4.1, section 3.5). It takes a few
// microseconds, so it checks for the failure of a process or the revocation of the context only
// afterwards. mu is held, and released meanwhile.
func (e *Engine) recvDirect(ctxID uint32, src, tag int, b []byte, waits bool) (got Result, ok bool) {
	n := &e.rings
	if src == AnySource || src == e.cfg.Rank || n.polling {
		return got, false
	}
	p := e.peers[src]
	if !p.transport.fromRing || p.proto.Failed != nil || n.attention.Load() || e.copies.any() || e.core.Discards(ctxID) {
		return got, false
	}
	table, rx := e.core.Table(ctxID), p.transport.ring.rx
	if !waits && !rx.Ready() || table.Peek(int32(src), int32(tag)) != nil {
		return got, false
	}
	n.takeToken()
	n.clearAsleep()
	if n.direct++; n.direct%directsPerSweep == 0 {
		for _, q := range n.peers {
			if q != p {
				n.sweepRing(q, nil)
			}
		}
	}
	if spins := n.waiter.Spins(); waits && !rx.Ready() && spins > 0 && !n.local.Load() {
		e.mu.Unlock()
		for range spins {
			if rx.Ready() {
				break
			}
			shm.Pause()
		}
		e.mu.Lock()
	}
	if table.Receives() {
		n.sweepRing(p, alreadyMet{})
	}
	got, ok = p.takeDirect(ctxID, tag, b)
	e.rings.releaseToken()
	return got, ok
}

// alreadyMet is a condition that is met: see unmatchedEager.
type alreadyMet struct{}

func (alreadyMet) isMet() bool { return true }

func (alreadyMet) changed() <-chan struct{} { return nil }

// takeDirect takes the next record of the ring if it is a message for a receive with
// that buffer. The polling token and mu are held.
func (p *peer) takeDirect(ctxID uint32, tag int, b []byte) (got Result, ok bool) {
	rx := p.transport.ring.rx
	head, payload, ok, err := rx.Next()
	if !ok || err != nil || p.proto.Failed != nil { // the next sweep finds the error again
		return got, false
	}
	context, sent, length, ok := wire.PlainMessage(head)
	if !ok || context != ctxID || tag != AnyTag && int(sent) != tag || length != uint64(len(payload)) || len(payload) > len(b) || p.e.core.Discards(ctxID) {
		return got, false
	}
	if t := p.e.core.Table(ctxID); !t.Empty() && (t.Awaited(int32(p.rank), int32(sent)) || t.Peek(int32(p.rank), int32(sent)) != nil) {
		return got, false // another receive or message is before it
	}
	copy(b, payload)
	if rx.Done() {
		p.transport.link.bellDue = true
	}
	p.proto.CountDirect(len(payload))
	p.e.carryOut()
	if t := &p.transport; t.link.bellDue || t.link.unflushed || t.queued() {
		p.transport.dispatch(false)
	}
	return Result{Source: p.rank, Tag: int(sent), Bytes: length}, true
}
