package engine

import "github.com/isthmus-grid/isthmus/mpilib/internal/engine/protocol"

// This file has the queries of pending operations. They change no state.

// UnexpectedMessage describes an unexpected message.
type UnexpectedMessage = protocol.UnexpectedMessage

// UnexpectedMessages returns the messages that have arrived, or were announced, before a matching receive
// was posted, in the order of their arrival within each context.
func (e *Engine) UnexpectedMessages() []UnexpectedMessage {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.core.ListUnexpected()
}

// Unmatched reports whether the request waits for another process to send, or to
// receive: not for bytes in transit, and not for a link that is being set up. A task of
// the owner counts as unmatched until it is complete.
func (r *Request) Unmatched() bool {
	if r.e == nil {
		return false
	}
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	return r.unmatched()
}

func (r *Request) unmatched() bool {
	switch {
	case r.task != nil:
		return r.State != complete
	case r.State != waiting:
		return false
	case !r.IsSend || r.Peer == r.e.cfg.Rank || r.e.replicas != nil:
		return true
	}
	p := r.e.peers[r.Peer]
	return p.transport.connected() && p.proto.Unmatched(&r.Request)
}
