package link

import (
	"fmt"

	"github.com/isthmus-grid/isthmus/overlay"
)

// This file decides, without sockets or clocks, which carrier becomes the one link of a pair of
// processes. A side commits itself to a carrier as the dialler by sending its proof (it has the
// other's by then), or as the dialled side by receiving the dialler's. Sending its proof on an
// incoming carrier (granting) does not commit a side: that is why the higher rank may grant the
// lower's carrier while its own dial goes on.
//
//	                want                   ready
//	   idle ----------------> dialling ------------------> up
//	    | incoming               | incoming, failed         ^
//	    v                        v                          |
//	  granting <-------- lower rank: parked until own       |
//	    |                dial fails or patience ends        |
//	    |                higher rank: granted meanwhile     |
//	    '---------------------------------------------------'
//	                granted (peer's proof is here)
//
// So the carrier dialled by the lower rank wins, unless it fails.
//
// The higher rank may hold proofs of the lower on two carriers: on its own dial, and a hello on the
// one it granted. The lower rank made one of them after giving up the other; the next event on the
// granted carrier shows which: the lower rank's proof, or its end. Until then the own dial is held.

// carrierID identifies an incoming carrier of a pair; zero is none.
type carrierID uint64

// phase is the state of a pair's link.
type phase uint8

const (
	idle phase = iota // no link yet
	up                // one carrier was chosen
	down              // the chosen one broke before it was a link, or the mesh closed
)

// pair is one side's state.
type pair struct {
	lower    bool // this side has the lower rank
	phase    phase
	wanted   bool      // a Connect is pending here
	dialling bool      // our own dial is under way
	granting carrierID // the incoming carrier on which we sent our proof
	parked   carrierID // the incoming carrier that waits for our decision
	held     bool      // our dial has the peer's proof and waits for granting to end
	heldLife overlay.Generation
	life     overlay.Generation
}

// eventKind is what happened to a pair.
type eventKind uint8

const (
	evWant        eventKind = iota // a link is wanted
	evIncoming                     // a hello arrived on an incoming carrier
	evReady                        // our dial has the peer's proof; ours is not sent
	evUnheld                       // our dial gave up the carrier that was held, and goes on with another
	evDialFailed                   // our dial ended without a link
	evGranted                      // the peer has proven itself on the carrier we granted
	evGrantFailed                  // the carrier we granted broke
	evGone                         // the carrier we parked broke
	evPatience                     // the parked carrier has waited long enough
	evLost                         // the chosen carrier broke before it was handed up
	evClose                        // no link is made any more
)

type event struct {
	kind eventKind
	id   carrierID          // with evIncoming, evGranted, evGrantFailed, evGone and evPatience
	life overlay.Generation // of the peer, with evIncoming, evReady and evGranted
}

// actionKind is what to do for a pair.
type actionKind uint8

const (
	actDial       actionKind = iota // start to dial
	actCancelDial                   // end the dial; its outcome no longer counts
	actHold                         // make the dial wait before it sends our proof
	actChooseDial                   // the dial that was held is the link
	actGrant                        // send our proof on carrier id
	actPark                         // make carrier id wait, at most patience
	actRefuse                       // refuse carrier id with err
	actChoose                       // the event's carrier is the link
	actDrop                         // the event's carrier is not: refuse it with err
	actFail                         // this side gets no link: fail the pending Connects
)

type action struct {
	kind actionKind
	id   carrierID
	err  error
}

var errKept = fmt.Errorf("%w: it has one already, or makes one the other way", overlay.ErrDuplicate)

// step returns the pair after an event, and the actions to carry out.
func (p pair) step(e event) (pair, []action) {
	if p.phase != idle {
		return p.late(e)
	}
	switch e.kind {
	case evWant:
		p.wanted = true
		return p.continueDial(nil)
	case evIncoming:
		return p.incoming(e)
	case evReady:
		if !p.dialling {
			return p, []action{{kind: actDrop, err: errKept}}
		}
		if p.granting != 0 {
			p.held, p.heldLife = true, e.life
			return p, []action{{kind: actHold}}
		}
		return p.choose(e)
	case evUnheld:
		p.held, p.heldLife = false, 0
		return p, nil
	case evDialFailed:
		if !p.dialling {
			return p, nil // it was cancelled
		}
		p.dialling, p.held, p.heldLife = false, false, 0
		if p.parked == 0 && p.granting == 0 {
			p.wanted = false
			return p, []action{{kind: actFail}}
		}
		return p.continueDial(nil)
	case evGranted:
		if e.id != p.granting {
			return p, []action{{kind: actDrop, err: errKept}}
		}
		p.granting = 0
		return p.choose(e)
	case evGrantFailed:
		if e.id == p.granting {
			p.granting = 0
		}
		return p.continueDial(nil)
	case evGone:
		if e.id == p.parked {
			p.parked = 0
		}
		return p.continueDial(nil)
	case evPatience:
		switch {
		case e.id != p.parked || p.held:
			return p, nil
		case p.granting != 0:
			// The dialler gave that carrier up, or it would not have dialled again, and the end of
			// that carrier is not delivered. If its proof arrives after all, it is too late.
			p.granting = 0
			return p.continueDial(nil)
		case !p.dialling:
			return p, nil
		}
		p.dialling = false
		return p.continueDial([]action{{kind: actCancelDial}})
	case evClose:
		return p.close()
	}
	return p, nil
}

// late is step for a pair that has its link, or can have none.
func (p pair) late(e event) (pair, []action) {
	switch e.kind {
	case evWant:
		if p.phase == down {
			return p, []action{{kind: actFail}}
		}
	case evIncoming:
		return p, []action{{kind: actRefuse, id: e.id, err: p.refusal(e.life)}}
	case evReady, evGranted:
		return p, []action{{kind: actDrop, err: errKept}}
	case evLost:
		p.phase, p.wanted = down, false
		return p, []action{{kind: actFail}}
	case evClose:
		p.phase, p.wanted = down, false
	}
	return p, nil
}

// refusal returns the error sent to a carrier from a peer of the given generation when the pair has
// had its link.
func (p pair) refusal(life overlay.Generation) error {
	switch {
	case p.phase == down && p.life == 0:
		return fmt.Errorf("%w: this process is leaving", overlay.ErrRefused)
	case life < p.life:
		return fmt.Errorf("%w: the process that dials was replaced by a newer one, which has a link", overlay.ErrStale)
	case life > p.life:
		return fmt.Errorf("%w: this process has had a link with an earlier life of that rank and cannot begin again", overlay.ErrRefused)
	}
	return errKept
}

func (p pair) incoming(e event) (pair, []action) {
	var acts []action
	if p.granting == 0 && p.parked == 0 && !(p.dialling && p.lower) {
		p.granting = e.id
		return p, []action{{kind: actGrant, id: e.id}}
	}
	if p.parked != 0 { // its dialler gave it up, or it would not have dialled again
		acts = append(acts, action{kind: actRefuse, id: p.parked, err: errKept})
	}
	p.parked = e.id
	return p, append(acts, action{kind: actPark, id: e.id})
}

// continueDial takes the next open way to the link, if none is under way.
func (p pair) continueDial(acts []action) (pair, []action) {
	switch {
	case p.granting != 0 || p.dialling && p.lower:
	case p.parked != 0:
		p.granting, p.parked = p.parked, 0
		acts = append(acts, action{kind: actGrant, id: p.granting})
	case p.held:
		return pair{lower: p.lower, phase: up, life: p.heldLife}, append(acts, action{kind: actChooseDial})
	case p.wanted && !p.dialling:
		p.dialling = true
		acts = append(acts, action{kind: actDial})
	}
	return p, acts
}

// choose makes the event's carrier the link and refuses the others.
func (p pair) choose(e event) (pair, []action) {
	acts := []action{{kind: actChoose}}
	if p.dialling && e.kind != evReady {
		acts = append(acts, action{kind: actCancelDial})
	}
	for _, id := range []carrierID{p.parked, p.granting} {
		if id != 0 {
			acts = append(acts, action{kind: actRefuse, id: id, err: errKept})
		}
	}
	return pair{lower: p.lower, phase: up, life: e.life}, acts
}

func (p pair) close() (pair, []action) {
	var acts []action
	if p.dialling {
		acts = append(acts, action{kind: actCancelDial})
	}
	for _, id := range []carrierID{p.parked, p.granting} {
		if id != 0 {
			acts = append(acts, action{kind: actRefuse, id: id, err: fmt.Errorf("%w: this process is leaving", overlay.ErrRefused)})
		}
	}
	return pair{lower: p.lower, phase: down}, append(acts, action{kind: actFail})
}
