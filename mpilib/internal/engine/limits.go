package engine

import (
	"fmt"

	"github.com/isthmus-grid/isthmus/wire"
)

// This file bounds what may wait for or from a peer besides messages, whose bounds package protocol enforces.
// Only a peer that exceeds a bound fails, with an error that names it. A peer that keeps to the protocol
// cannot exceed any.

const (
	// maxReplies is how many bytes of answers, besides messages, may wait for a peer that
	// does not read them, and maxNoteBytes of its notes for the owner.
	maxReplies   = 8 << 20
	maxNoteBytes = 8 << 20

	// maxAnswers is how many bytes may wait for such a peer in all: of the program's messages at most maxBatches
	// batches are copied.
	maxAnswers = maxBatches*batchSize + maxReplies

	// repliesEvery is after how many of the peer's envelopes the bytes waiting for it are counted.
	repliesEvery = 1 << 12
)

// CreateContexts notes that this process has created a communicator with n contexts from first on. FreeContext
// ends each.
func (e *Engine) CreateContexts(first, n uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.core.CreateContexts(first, n)
}

// checkReplies returns, every repliesEvery envelopes, an error if too many bytes wait for a peer that does not
// read its answers. mu is held.
func (p *peer) checkReplies() error {
	if p.envelopes++; p.envelopes%repliesEvery != 0 {
		return nil
	}
	n := p.transport.answers()
	if n > p.e.maxAnswers {
		return fmt.Errorf("%w: the peer sends more and more, and does not read the answers: %d bytes wait", wire.ErrMalformed, n)
	}
	return nil
}
