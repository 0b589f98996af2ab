package engine

import (
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/mpilib/internal/engine/protocol"
)

// owner returns the Request of which r is the protocol's part.
func owner(r *protocol.Request) *Request { return r.Owner.(*Request) }

// carryOut carries out the effects of the core. Every call of the core that may have effects is followed by
// it before mu is released. mu is held, and released by the effects of which the core says so.
func (e *Engine) carryOut() {
	if e.core.HasEffects() || len(e.dispatches) > 0 || e.replicas.haveEffects() {
		e.carryOutAll()
	}
}

func (e *Engine) carryOutAll() {
	for e.core.HasEffects() || e.replicas.carryOutNext() {
		list := e.core.Effects(e.effects)
		e.effects = nil // another goroutine may come here while much is copied
		for i := range list {
			e.carryOutOne(&list[i])
		}
		clear(list)
		e.effects = list[:0]
	}
	for len(e.dispatches) > 0 {
		p := e.dispatches[0]
		e.dispatches = slices.Delete(e.dispatches, 0, 1)
		p.transport.dispatch(false)
	}
}

// carryOutOne carries out one effect. mu is held.
func (e *Engine) carryOutOne(f *protocol.Effect) {
	var p *peer
	if f.Peer != nil {
		p = e.peers[f.Peer.Process]
	}
	switch f.Kind {
	case protocol.Control:
		p.transport.send(f.Env, nil)
	case protocol.Eager:
		if p.transport.sendEager(f.Env, owner(f.Request)) {
			p.proto.Written(f.Request, true)
		}
	case protocol.RTS:
		exposed := p.transport.expose(owner(f.Request))
		p.transport.send(f.Env, exposed)
		if exposed == nil {
			p.proto.SendHead(f.Request, p.transport.maxHead())
		}
	case protocol.Head:
		p.transport.sendHead(f.Env, owner(f.Request), f.N)
	case protocol.Stream:
		p.transport.stream(owner(f.Request))
	case protocol.Recall:
		f.NotSent(p.transport.remove(owner(f.Request)))
	case protocol.Release:
		p.endZeroCopy(owner(f.Request))
	case protocol.Complete:
		// Another effect may have given mu up since: the request may have been waited for, and be in use again.
		if r := owner(f.Request); r.State == complete {
			r.wakeWaiters()
		}
	case protocol.Credit:
		p.resize()
		p.giveCredit(!f.Grow)
	case protocol.Copy:
		to, from := f.Request.Buf, f.Message.Data
		e.mu.Unlock()
		copy(to, from)
		e.mu.Lock()
		e.core.UnexpectedCopied(f.Request, f.Message)
	case protocol.Fetch:
		if !p.startCopy(f.Transfer) {
			p.proto.SendCTS(f.Transfer)
		}
	case protocol.Matched:
		e.replicas.receiveMatched(owner(f.Request))
	case protocol.Probe:
		e.wakeProbes()
	case protocol.Dispatch:
		e.dispatches = append(e.dispatches, p)
	}
}

// resize adapts the credit granted to the peer to the round-trip time of its path. mu is held.
func (p *peer) resize() {
	rtt := time.Duration(0)
	if !p.transport.fromRing {
		_, rtt = p.transport.link.l.Current()
	}
	p.proto.Resize(time.Now(), rtt)
}

// giveCredit returns the credit that the peer is owed. mu is held.
func (p *peer) giveCredit(always bool) {
	if env, due := p.proto.ReturnCredit(always); due {
		p.queueControl(env)
	}
}
