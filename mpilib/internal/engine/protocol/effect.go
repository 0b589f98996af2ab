package protocol

import "github.com/isthmus-grid/isthmus/wire"

// An Effect is something that the caller is to do. The effects of a call are carried out
// in their order, all of them before the lock is given up. Copy, RTS and Fetch ask back: a
// call of the Core follows, with effects of its own. They are the last of their list, so that
// those come after all others.
type Effect struct {
	Kind     EffectKind
	Last     bool // of Write: the message ends with it
	Grow     bool // of Credit
	Peer     *Peer
	Env      wire.Envelope
	N        int // how many bytes of the request's buffer, from its beginning
	Request  *Request
	Message  *Message
	Transfer *Transfer
}

// EffectKind says what an Effect means.
type EffectKind uint8

// The kinds, with the fields that they use.
const (
	// Control: say Env to Peer.
	Control EffectKind = iota
	// Eager: say Env to Peer, then the N bytes that are all of Request's buffer, and call
	// Written once they are copied or written.
	Eager
	// RTS: announce Request with Env. The caller may lend the buffer to the peer instead of
	// sending it, and say so with the RTS; otherwise it calls Head.
	RTS
	// Head: say Env to Peer, then the first N bytes of Request's buffer; call Written after it.
	Head
	// Stream: send the rest of Request's buffer, from Request.At on, in Data envelopes, as
	// far as that is not done already; call Written after each.
	Stream
	// Recall: nothing more of Request is to be sent; what is being written is not concerned. NotSent
	// is to be called.
	Recall
	// Release: Peer has all that it wants of Request: its buffer is not lent any more.
	Release
	// Complete: Request is complete.
	Complete
	// Credit: call Resize; then say what ReturnCredit returns to Peer.
	Credit
	// Copy: copy Message.Data to Request's buffer, perhaps without the lock, and call Given.
	Copy
	// Fetch: get the bytes of Transfer from where Transfer.Lent says, and call Fetched at the end;
	// if that cannot be, call Clear.
	Fetch
	// Probe: a message is here for those who probe, or none will come.
	Probe
	// Matched: a message has matched Request, whose Point is not 0.
	Matched
	// Dispatch: what was said to Peer shall go now, once all effects are carried out.
	Dispatch
)

func (c *Core) emit(f Effect) { c.effects = append(c.effects, f) }

// Effects returns the effects that are due, and reports whether there are any. The list is the caller's;
// the next one is gathered in spare.
func (c *Core) Effects(spare []Effect) (list []Effect) {
	list, c.effects = c.effects, spare[:0]
	return list
}

// HasEffects reports whether there are any.
func (c *Core) HasEffects() bool { return len(c.effects) > 0 }

// What follows is not inlined: an Effect is large, and the functions that are called for each message
// would make room for one, and clear it, each time.

// finish completes r, unless it is complete.
//
//go:noinline
func (c *Core) finish(r *Request, err error) {
	if r.Complete(err) {
		c.emit(Effect{Kind: Complete, Request: r})
	}
}

// control says an envelope to the peer.
//
//go:noinline
func (p *Peer) control(env wire.Envelope) {
	if p.Failed == nil {
		p.core.emit(Effect{Kind: Control, Peer: p, Env: env})
	}
}

// creditDue has credit returned to the peer; grow is Effect.Grow.
//
//go:noinline
func (p *Peer) creditDue(grow bool) {
	p.core.emit(Effect{Kind: Credit, Peer: p, Grow: grow})
}

// NotSent returns the credit of the n queued bytes that a Recall has taken back. Those of an eager
// message are returned by Abandon.
func (f *Effect) NotSent(n int) {
	if f.Request.ID != 0 {
		f.Peer.Credit += n
	}
}
