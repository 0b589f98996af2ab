package link

import (
	"context"
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

func (m *Mesh) accept(ctx context.Context) error {
	slots := make(chan struct{}, maxHandshakes)
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		c, err := m.cfg.Connector.Accept(ctx)
		if err != nil {
			return err
		}
		m.work.Go(func() {
			m.answer(ctx, c)
			<-slots
		})
	}
}

// answer makes a link of an incoming carrier, if its pair accepts it.
func (m *Mesh) answer(ctx context.Context, c overlay.Carrier) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	var a *attempt
	var id carrierID
	var sv *supervisor
	c, got, err := runHandshake(ctx, c, m.cfg.Self, nil, terms{admit: func(h *wire.Hello) (uint64, error) {
		if h.From >= m.cfg.Size {
			return 0, fmt.Errorf("%w: rank %d of a job of %d", overlay.ErrForbidden, h.From, m.cfg.Size)
		}
		if sv = m.supervisorOf(h); sv != nil {
			return sv.admit(h)
		}
		m.markDoubtful(h.From)
		if h.Again {
			return 0, fmt.Errorf("%w: rank %d has no such link with rank %d", overlay.ErrStale, m.cfg.Self.Process.Rank, h.From)
		}
		var verdict chan error
		a, id, verdict = m.incoming(h)
		select {
		case err := <-verdict:
			return 0, err
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}})
	if sv != nil && err == nil {
		m.logChoice(c)
		sv.attach(c, got) // on error the link is over
		return
	}
	if a == nil {
		return // the peer never identified itself; its dialler knows why
	}
	m.mu.Lock()
	delete(a.verdicts, id)
	delete(a.asked, id)
	if err != nil {
		m.step(a, event{kind: evGone, id: id})
		m.step(a, event{kind: evGrantFailed, id: id})
		m.mu.Unlock()
		return
	}
	if a.granting != 0 && a.asked[a.granting] == got.link {
		a.granting = id // both carriers were dialled for one link, and a proof on either counts
	}
	dropped := m.step(a, event{kind: evGranted, id: id, life: got.hello.Generation})
	m.mu.Unlock()
	if dropped == nil {
		m.begin(a, c, got)
		return
	}
	// This carrier was too late. Its dialler may have dialled once more for the same link, and then
	// has both carriers.
	if sv := m.supervisorOf(got.hello); sv != nil {
		sv.attach(c, got)
		return
	}
	c.Conn.Close()
}

// begin makes the link of an incoming carrier that the pair has chosen.
func (m *Mesh) begin(a *attempt, c overlay.Carrier, got met) {
	l, err := m.lasting(c, got, false)
	if err == nil {
		m.handUp(a, l)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	a.err = err
	m.step(a, event{kind: evLost})
}

// supervisorOf returns the supervisor of the link that a carrier belongs to, or nil. A dialler that
// has received nothing on its link yet cannot tell whether the link exists here, and sends a Hello
// without Again.
func (m *Mesh) supervisorOf(h *wire.Hello) *supervisor {
	m.mu.Lock()
	defer m.mu.Unlock()
	if sv := m.links[h.From]; sv != nil && sv.link.id == h.Link {
		return sv
	}
	return nil
}

// doubtAfter is the age of a link without received data from which a dial by the peer casts doubt
// on it: when two ends dial at the same time, each receives the other's dial when it has a link
// already.
const doubtAfter = time.Second

// markDoubtful makes the link with a rank look for another carrier if nothing has arrived on it
// yet: the peer wants a link and does not have this one.
func (m *Mesh) markDoubtful(rank uint32) {
	m.mu.Lock()
	sv := m.links[rank]
	m.mu.Unlock()
	if sv != nil && sv.link.Dialled && sv.link.Path.Technique != 0 && time.Since(sv.born) > doubtAfter && !sv.link.stream.Met() {
		sv.redialLater()
	}
}

// incoming submits a carrier whose peer sent h to the pair.
func (m *Mesh) incoming(h *wire.Hello) (*attempt, carrierID, chan error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	verdict := make(chan error, 1)
	if m.closed != nil {
		verdict <- fmt.Errorf("%w: this process is leaving", overlay.ErrRefused)
		return nil, 0, verdict
	}
	a := m.attemptFor(h.From)
	if a.granting != 0 && a.asked[a.granting] == h.Link {
		// The dialler dials again for the same link, so the granted carrier has failed.
		m.step(a, event{kind: evGrantFailed, id: a.granting})
	}
	m.ids++
	a.verdicts[m.ids] = verdict
	a.asked[m.ids] = h.Link
	m.step(a, event{kind: evIncoming, id: m.ids, life: h.Generation})
	return a, m.ids, verdict
}
