package engine

import (
	"context"
	"errors"

	"github.com/isthmus-grid/isthmus/mpilib/internal/engine/protocol"
)

// Irecv starts a receive into b from world rank src, or AnySource, of a message
// with tag, or AnyTag. b is the engine's until r is complete. g contains the possible
// senders for AnySource.
func (e *Engine) Irecv(r *Request, g Group, ctxID uint32, src, tag int, b []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.irecv(r, g, ctxID, src, tag, b)
}

// irecv is Irecv with mu held, which may be released.
func (e *Engine) irecv(r *Request, g Group, ctxID uint32, src, tag int, b []byte) {
	r.begin(e, g, ctxID, src, tag, b)
	if err := e.startError(g, ctxID); err != nil {
		r.finish(err)
		return
	}
	if e.replicas != nil {
		e.replicas.receive(r)
		return
	}
	if e.core.Receive(&r.Request) {
		e.seeker.seek(g, src, false)
	}
	e.carryOut()
}

// A Matched is a message that a matched probe has returned (MPI-4.1, section 3.8.2):
// only its own Irecv receives it.
type Matched struct {
	e *Engine
	m *protocol.Message
}

// Result describes the message.
func (m Matched) Result() Result {
	return Result{Source: m.m.Source, Tag: m.m.Tag(), Bytes: m.m.Size}
}

// Irecv starts to receive the message into b; it may be called once.
func (m Matched) Irecv(r *Request, g Group, b []byte) {
	m.e.mu.Lock()
	defer m.e.mu.Unlock()
	m.irecv(r, g, b)
}

// irecv is Irecv with mu held, which may be released.
func (m Matched) irecv(r *Request, g Group, b []byte) {
	r.begin(m.e, g, m.m.Context, m.m.Source, m.m.Tag(), b)
	m.e.core.MatchUnexpected(&r.Request, m.m)
	m.e.carryOut()
}

// Iprobe describes the message that Irecv with the same arguments would receive,
// if one has arrived; with take it removes the message, which only Matched.Irecv then
// receives. It returns an error only if none can arrive any more because a process
// has failed or this one is finalized.
func (e *Engine) Iprobe(g Group, ctxID uint32, src, tag int, take bool) (m Matched, found bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.idle.writeLeft()
	if err := e.startError(g, ctxID); err != nil {
		return Matched{}, false, err
	}
	if m, found = e.find(ctxID, src, tag, take); found {
		return m, true, nil
	}
	e.wakeReaders()
	if len(e.rings.peers) > 0 {
		e.rings.pollOnce()
		if m, found = e.find(ctxID, src, tag, take); found {
			return m, true, nil
		}
	}
	e.seeker.seek(g, src, true)
	err = e.probeError(g, src)
	if e.core.Closed() == nil && errors.Is(err, ErrFinalized) {
		err = nil // the peer has left in order: there is no message, which is no error
	}
	return Matched{}, false, err
}

// probeError returns why a probe can find no message any more, or nil. mu is held.
func (e *Engine) probeError(g Group, src int) error {
	if src == AnySource && e.core.Closed() == nil {
		return e.anySourceError(g)
	}
	return e.core.SourceError(src)
}

// find looks for an unexpected message. mu is held.
func (e *Engine) find(ctxID uint32, src, tag int, take bool) (Matched, bool) {
	m := e.core.Find(ctxID, src, tag, take)
	return Matched{e, m}, m != nil
}

// Probe is Iprobe that waits for a message.
func (e *Engine) Probe(ctx context.Context, g Group, ctxID uint32, src, tag int, take bool) (Matched, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for {
		e.idle.writeLeft()
		if err := e.startError(g, ctxID); err != nil {
			return Matched{}, err
		}
		if m, found := e.find(ctxID, src, tag, take); found {
			return m, nil
		}
		if err := e.probeError(g, src); err != nil {
			return Matched{}, err
		}
		e.seeker.seek(g, src, true)
		switch {
		case ctx.Err() == nil:
		case src == AnySource: // where ranks have replicas, that is what one of them decides
			return Matched{}, context.Cause(ctx)
		default:
			return Matched{}, e.replicas.expired(context.Cause(ctx))
		}
		e.wakeReaders()
		arrived := e.arrived
		if len(e.rings.peers) > 0 {
			e.rings.poll(ctx, probeCondition{e, arrived})
			continue
		}
		e.mu.Unlock()
		select {
		case <-arrived:
		case <-ctx.Done():
		}
		e.mu.Lock()
	}
}

// probeCondition is met when a message has arrived or a process has ended since the probe last looked.
type probeCondition struct {
	e     *Engine
	since chan struct{}
}

func (n probeCondition) isMet() bool { return n.e.arrived != n.since }

func (n probeCondition) changed() <-chan struct{} { return n.since }
