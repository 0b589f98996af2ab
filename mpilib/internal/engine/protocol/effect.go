package protocol

import "github.com/isthmus-grid/isthmus/wire"

// An Effect is something that the caller is to do. The effects of a call are carried out
// in their order, all of them before the lock is released. After Copy, RTS and Fetch another
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
	// Control: send Env to Peer.
	Control EffectKind = iota
	// Eager: send Env to Peer, then the N bytes that are all of Request's buffer, and call
	// Written once they are copied or written.
	Eager
	// RTS: announce Request with Env. The caller may expose the buffer to the peer instead of
	// sending it, and describe it in the RTS; otherwise it calls SendHead.
	RTS
	// Head: send Env to Peer, then the first N bytes of Request's buffer; call Written after it.
	Head
	// Stream: send the rest of Request's buffer, from Request.At on, in Data envelopes, as
	// far as that is not done already; call Written after each.
	Stream
	// Recall: nothing more of Request is to be sent; what is being written is not concerned. NotSent
	// is to be called.
	Recall
	// Release: Peer has all that it needs of Request: the buffer is no longer exposed.
	Release
	// Complete: Request is complete.
	Complete
	// Credit: call Resize; then send Peer the envelope that ReturnCredit returns.
	Credit
	// Copy: copy Message.Data to Request's buffer, perhaps without the lock, and call UnexpectedCopied. Until
	// then nothing else changes the two, whatever happens to the peer or to the request.
	Copy
	// Fetch: get the bytes of Transfer from the buffer Transfer.Exposed, and call FetchDone at the
	// end; if that is not possible, call SendCTS.
	Fetch
	// Probe: wake pending probes: a message has arrived, or none will.
	Probe
	// Matched: a message has matched Request, whose Point is not 0.
	Matched
	// Dispatch: send what is queued for Peer, once all effects are carried out.
	Dispatch
)

func (c *Core) emit(f Effect) { c.effects = append(c.effects, f) }

// Effects returns the effects that are due, and reports whether there are any. The list is the caller's;
// the next one is gathered in spare.
func (c *Core) Effects(spare []Effect) (list []Effect) {
	list, c.effects = c.effects, spare[:0]
	return list
}

// HasEffects reports whether effects are due.
func (c *Core) HasEffects() bool { return len(c.effects) > 0 }

// The functions below are not inlined: an Effect is large, and the functions that are called for each
// message would reserve stack for one, and clear it, each time.

// finish completes r, unless it is complete.
//
//go:noinline
func (c *Core) finish(r *Request, err error) {
	if r.Complete(err) {
		c.emit(Effect{Kind: Complete, Request: r})
	}
}

// emitControl emits an effect that sends an envelope to the peer.
//
//go:noinline
func (p *Peer) emitControl(env wire.Envelope) {
	if p.Failed == nil {
		p.core.emit(Effect{Kind: Control, Peer: p, Env: env})
	}
}

// emitCredit emits an effect that returns credit to the peer; grow is Effect.Grow.
//
//go:noinline
func (p *Peer) emitCredit(grow bool) {
	p.core.emit(Effect{Kind: Credit, Peer: p, Grow: grow})
}

// NotSent returns the credit of the n queued bytes that a Recall has taken back. Those of an eager
// message are returned by Abandon.
func (f *Effect) NotSent(n int) {
	if f.Request.ID != 0 {
		f.Peer.Credit += n
	}
}
