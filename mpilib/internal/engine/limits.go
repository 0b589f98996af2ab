package engine

import (
	"fmt"

	"github.com/isthmus-grid/isthmus/wire"
)

// This file is what holds a peer to the protocol's bounds: what it may have here,
// over everything that is not over, whatever it says. One that exceeds a bound fails, with an error
// that names it, and nobody else does. A peer that keeps to the protocol cannot exceed any.

const (
	// maxAhead is in how many contexts that nobody has made here yet a peer may have sent
	// something. It is ahead in no more than are being made: whatever makes one needs this
	// process.
	maxAhead = 4096

	// maxRevokedAhead is how many contexts are remembered as revoked that nobody has made
	// here. News of others are ignored, since whoever passes them on need not be to blame.
	maxRevokedAhead = 1 << 14

	// maxReplies is how many bytes of answers, besides messages, may wait for a peer that
	// does not read them, and maxNoteBytes of its notes for the owner.
	maxReplies   = 8 << 20
	maxNoteBytes = 8 << 20

	// repliesEvery is after how many of the peer's envelopes that is looked at.
	repliesEvery = 1 << 12
)

// charge notes n bytes of credit that the peer keeps in use here, until refund. mu is held.
func (a *arrivals) charge(n int) error {
	g := &a.grant
	if g.held+n > g.total {
		return fmt.Errorf("%w: the peer sent %d bytes eagerly beside %d that no receive has taken yet, counting %d for each message; it was granted %d in all",
			wire.ErrMalformed, n, g.held, messageCost, g.total)
	}
	g.held += n
	return nil
}

// refund ends what charge began, and gives the credit back. mu is held.
func (p *peer) refund(n int) {
	p.arrivals.grant.held -= n
	p.owe(n)
}

// checkNewID says what is wrong with the id of a message that the peer announces, or wants to be
// told of, or returns nil. mu is held.
func (a *arrivals) checkNewID(id uint32) error {
	switch {
	case id == 0:
		return fmt.Errorf("%w: message 0 is announced", wire.ErrMalformed)
	case a.kept[id] != nil || a.moving[id] != nil:
		return fmt.Errorf("%w: message %d is announced twice", wire.ErrMalformed, id)
	case len(a.kept) >= 2*maxPendingSends:
		return fmt.Errorf("%w: %d messages announced at a time", wire.ErrMalformed, len(a.kept))
	}
	return nil
}

// arrivalContext returns what a context has in which the peer sends a message. mu is held.
func (p *peer) arrivalContext(id uint32) (*msgContext, error) {
	e := p.e
	if e.latest.id == id && e.latest.c != nil {
		return e.latest.c, nil
	}
	if e.contexts[id] != nil || e.made[id] {
		return e.contextOf(id), nil
	}
	switch {
	case e.cfg.Unmade != nil && e.cfg.Unmade(id):
		return nil, fmt.Errorf("%w: the peer sends in context %d, which only this process could have made, and has not", wire.ErrMalformed, id)
	case p.arrivals.ahead >= maxAhead:
		return nil, fmt.Errorf("%w: the peer sends in context %d; it has sent in %d others that nobody has made here", wire.ErrMalformed, id, p.arrivals.ahead)
	}
	p.arrivals.ahead++
	c := e.contextOf(id)
	c.by = p
	return c, nil
}

// Open says that a communicator with n contexts from first on has been made, until Forget.
func (e *Engine) Open(first, n uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id := first; id < first+n; id++ {
		e.made[id] = true
		if c := e.contexts[id]; c != nil && c.by != nil {
			c.by.arrivals.ahead--
			c.by = nil
		}
	}
}

// tooFarAhead reports whether a revocation is not to be remembered: there are too many of
// contexts that nobody has made here. mu is held.
func (e *Engine) tooFarAhead(first, n uint32) bool {
	for id := first; id < first+n; id++ {
		if e.made[id] || e.contexts[id] != nil {
			return false
		}
	}
	if e.revokedAhead+int(n) > maxRevokedAhead {
		return true
	}
	e.revokedAhead += int(n)
	return false
}

// checkReplies says, now and then, whether too much waits for a peer that does not read what it is
// answered. Of what the program sends it no more than maxBatches are copied. mu is held.
func (p *peer) checkReplies() error {
	if p.arrivals.envelopes++; p.arrivals.envelopes%repliesEvery != 0 {
		return nil
	}
	n := p.out.answers()
	if n > maxBatches*batchSize+maxReplies {
		return fmt.Errorf("%w: the peer sends more and more, and does not read the answers: %d bytes wait", wire.ErrMalformed, n)
	}
	return nil
}
