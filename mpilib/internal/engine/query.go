package engine

import "github.com/isthmus-grid/isthmus/mpilib/internal/engine/protocol"

// This file answers questions about what waits here. Nothing in it changes anything.

// Kept is a message that found no receive.
type Kept struct {
	Context uint32
	Source  int // world rank
	Tag     int
	Bytes   uint64
}

// UnexpectedMessages returns the messages that have come, or were announced, and found no receive so
// far, in the order of their arrival within each context.
func (e *Engine) UnexpectedMessages() []Kept {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []Kept
	e.core.UnexpectedMessages(func(context uint32, m *protocol.Message) {
		all = append(all, Kept{Context: context, Source: m.Source, Tag: m.Tag(), Bytes: m.Size})
	})
	return all
}

// Unmatched reports whether the request waits for another process to send, or to
// receive: not for bytes that move, and not for a link that is being made. Of work of
// its owner's it is taken to.
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
