package engine

import (
	"fmt"

	"github.com/isthmus-grid/isthmus/wire"
)

// This file is what holds a peer to the bounds of what it may have waiting here besides messages, whose
// bounds are the protocol's. One that exceeds a bound fails, with an error
// that names it, and nobody else does. A peer that keeps to the protocol cannot exceed any.

const (
	// maxReplies is how many bytes of answers, besides messages, may wait for a peer that
	// does not read them, and maxNoteBytes of its notes for the owner.
	maxReplies   = 8 << 20
	maxNoteBytes = 8 << 20

	// repliesEvery is after how many of the peer's envelopes that is looked at.
	repliesEvery = 1 << 12
)

// CreateContexts says that a communicator with n contexts from first on has been made, until Forget.
func (e *Engine) CreateContexts(first, n uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.core.CreateContexts(first, n)
}

// checkReplies says, now and then, whether too much waits for a peer that does not read what it is
// answered. Of what the program sends it no more than maxBatches are copied. mu is held.
func (p *peer) checkReplies() error {
	if p.envelopes++; p.envelopes%repliesEvery != 0 {
		return nil
	}
	n := p.transport.answers()
	if n > maxBatches*batchSize+maxReplies {
		return fmt.Errorf("%w: the peer sends more and more, and does not read the answers: %d bytes wait", wire.ErrMalformed, n)
	}
	return nil
}
