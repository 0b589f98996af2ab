package link

import (
	"context"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// attempt carries out the decisions of a pair.
type attempt struct {
	pair
	rank       uint32
	cancelDial context.CancelFunc
	held       chan error               // carries the pair's verdict to a dial that waits for it
	verdicts   map[carrierID]chan error // of incoming carriers that wait for them
	asked      map[carrierID]wire.ID    // link ids of incoming carriers whose handshakes are under way
	settled    chan struct{}            // closed when the link was handed up, or err says why not
	handed     bool
	refused    bool  // the peer answered the dial under way that it has a link
	err        error // of the last dial
	broke      error // of the latest carrier of this end that broke in its handshake
}

// attemptFor returns the rank's attempt, and makes it if need be. mu is held.
func (m *Mesh) attemptFor(rank uint32) *attempt {
	a := m.pairs[rank]
	if a == nil {
		a = &attempt{rank: rank, verdicts: map[carrierID]chan error{}, asked: map[carrierID]wire.ID{}, settled: make(chan struct{})}
		a.lower = m.cfg.Self.Process.Rank < rank
		m.pairs[rank] = a
	}
	return a
}

// step feeds the pair an event and carries out its actions, except those for the event's own
// carrier, whose verdict is returned; nil means go on. mu is held.
func (m *Mesh) step(a *attempt, e event) (verdict error) {
	var acts []action
	a.pair, acts = a.pair.step(e)
	for _, act := range acts {
		switch act.kind {
		case actDial:
			if m.serve != nil {
				m.startDial(a)
			}
		case actCancelDial:
			if a.cancelDial != nil {
				a.cancelDial()
			}
		case actHold:
			a.held = make(chan error, 1)
		case actChooseDial:
			a.held <- nil
		case actGrant:
			a.decide(act.id, nil)
		case actRefuse:
			a.decide(act.id, act.err)
		case actPark:
			wait := patience
			if a.refused { // it belongs to the link that the peer reported, so our dial will not succeed
				wait = 0
			}
			time.AfterFunc(wait, func() {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.step(a, event{kind: evPatience, id: act.id})
			})
		case actDrop:
			verdict = act.err
		case actFail:
			a.finish()
		}
	}
	return verdict
}

// decide delivers the verdict to an incoming carrier's handshake. A carrier that was granted before
// no longer waits for one, and detects its end by itself.
func (a *attempt) decide(id carrierID, err error) {
	if c, ok := a.verdicts[id]; ok {
		delete(a.verdicts, id)
		c <- err // buffered for one
	}
}

// finish makes pending Connects look at handed and err.
func (a *attempt) finish() {
	close(a.settled)
	a.settled = make(chan struct{})
}

// handUp passes the link to its owner.
func (m *Mesh) handUp(a *attempt, l *Link) {
	l.up.Store(true)
	m.cfg.Up(l)
	m.mu.Lock()
	defer m.mu.Unlock()
	a.handed = true
	a.finish()
}

// parks records that the peer answered the pair's own dial that it has a link, and reports whether
// an incoming carrier waits for that dial. From now on, incoming carriers need not wait for it.
func (m *Mesh) parks(ctx context.Context, a *attempt) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ctx.Err() == nil { // otherwise another dial may be under way
		a.refused = true
	}
	return a.parked != 0
}

// ready asks the pair whether its dial, which has the peer's proof, becomes the link. It blocks
// while the pair has not decided.
func (m *Mesh) ready(ctx context.Context, a *attempt, life overlay.Generation) error {
	m.mu.Lock()
	if ctx.Err() != nil { // cancelled; a later dial may be under way
		m.mu.Unlock()
		return errKept
	}
	a.held = nil
	err := m.step(a, event{kind: evReady, life: life})
	held := a.held
	m.mu.Unlock()
	if held == nil {
		return err
	}
	select {
	case err := <-held:
		return err
	case <-ctx.Done():
	}
	m.mu.Lock() // the verdict may have arrived at the same time
	defer m.mu.Unlock()
	select {
	case err := <-held:
		return err
	default:
	}
	if a.held == held { // no later dial is under way
		m.step(a, event{kind: evUnheld})
	}
	return errKept
}

// isHeld reports whether the pair's dial has the peer's proof, and waits for the pair's decision.
func (m *Mesh) isHeld(a *attempt) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return a.pair.held
}
