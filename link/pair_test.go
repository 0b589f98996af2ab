package link

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/isthmus-grid/isthmus/overlay"
)

// model is two sides of a pair and what is in flight between them. The test explores everything
// that can happen next, so it sees every interleaving.
type model struct {
	side     [2]pair // side 0 has the lower rank
	dial     [2]int  // carrier of the side's own dial: 0 none yet, -1 not wanted any more
	carriers [8]wireState
	n        int // carriers made
	wants    [2]int
	breaks   int  // carriers that may still break
	waits    int  // patience timers that may still end
	hedges   int  // dials that may still go over to another carrier while they are held
	blind    bool // a dial became the link on a carrier that had not brought the peer's proof
	chosen   [2]int
	failed   [2]bool
}

// wireState is one carrier between hello and link.
type wireState struct {
	from  int // side that dialled
	stage stage
	dead  bool // broken or closed; ends that still hold it will notice
	gone  [2]bool
	held  bool // the dialler has the target's proof and waits
}

type stage uint8

const (
	connected stage = iota + 1 // its hello is in flight to the dialled side
	asked                      // the dialled side's pair knows it
	granted                    // the dialled side's proof is in flight
	committed                  // the dialler's proof is in flight
	finished                   // both have it
)

// next returns every possible next state.
func (m model) next() []model {
	var out []model
	add := func(f func(*model)) {
		c := m
		f(&c)
		out = append(out, c)
	}
	for s := range 2 {
		if m.wants[s] > 0 {
			add(func(c *model) { c.wants[s]--; c.step(s, event{kind: evWant}) })
		}
		if m.dial[s] == dialRequested && m.n < len(m.carriers)-1 {
			add(func(c *model) {
				c.n++
				c.dial[s] = c.n
				c.carriers[c.n] = wireState{from: s, stage: connected}
			})
		}
		if m.dial[s] == dialRequested && m.breaks > 0 {
			add(func(c *model) { c.breaks--; c.dial[s] = 0; c.step(s, event{kind: evDialFailed}) })
		}
		if p := m.side[s].parked; p != 0 && m.waits > 0 {
			add(func(c *model) { c.waits--; c.step(s, event{kind: evPatience, id: p}) })
		}
	}
	for i := 1; i <= m.n; i++ {
		out = append(out, m.nextOf(i)...)
	}
	return out
}

const dialRequested = -2

// nextOf returns what can happen to carrier i.
func (m model) nextOf(i int) []model {
	var out []model
	add := func(f func(*model, *wireState)) {
		c := m
		f(&c, &c.carriers[i])
		out = append(out, c)
	}
	w := m.carriers[i]
	dialler, target := w.from, 1-w.from
	id := carrierID(i)
	if !w.dead && m.breaks > 0 && w.stage < finished {
		add(func(c *model, w *wireState) { c.breaks--; w.dead = true })
	}
	if w.dead {
		// Each end notices at its own time.
		if !w.gone[0] && dialler == 0 || !w.gone[1] && dialler == 1 {
			add(func(c *model, w *wireState) {
				w.gone[dialler] = true
				if c.dial[dialler] == i {
					c.dial[dialler] = 0
					c.step(dialler, event{kind: evDialFailed})
				}
			})
		}
		if !w.gone[target] {
			add(func(c *model, w *wireState) {
				w.gone[target] = true
				if w.stage == connected { // its hello may have been read before
					return
				}
				c.step(target, event{kind: evGone, id: id})
				c.step(target, event{kind: evGrantFailed, id: id})
			})
		}
	}
	if w.held && m.dial[dialler] == i && m.side[dialler].held && m.hedges > 0 && m.n < len(m.carriers)-1 {
		add(func(c *model, w *wireState) {
			c.hedges--
			w.dead, w.gone[dialler] = true, true
			c.n++
			c.dial[dialler] = c.n
			c.carriers[c.n] = wireState{from: dialler, stage: connected}
			c.step(dialler, event{kind: evUnheld})
		})
	}
	switch {
	case w.stage == connected && !w.gone[target]: // also a dead one's hello arrives
		add(func(c *model, w *wireState) {
			w.stage = asked
			c.step(target, event{kind: evIncoming, id: id, life: 1})
		})
	case w.stage == granted && m.dial[dialler] == i && !w.gone[dialler] && !w.held:
		add(func(c *model, w *wireState) {
			w.held = true
			switch kept := c.step(dialler, event{kind: evReady, life: 1}); {
			case c.side[dialler].held:
			case kept:
				c.chooseDial(dialler)
			default:
				c.dial[dialler] = 0
				w.dead, w.gone[dialler] = true, true
			}
		})
	case w.stage == committed && !w.gone[target]:
		add(func(c *model, w *wireState) {
			w.stage = finished
			if c.step(target, event{kind: evGranted, id: id, life: 1}) {
				c.chosen[target] = i
			} else {
				c.carriers[i].dead = true
			}
		})
	}
	return out
}

func (m *model) chooseDial(s int) {
	i := m.dial[s]
	m.blind = m.blind || !m.carriers[i].held
	m.dial[s], m.chosen[s] = 0, i
	m.carriers[i].stage = committed
}

// step feeds one side an event and carries out its actions, as Mesh does.
func (m *model) step(s int, e event) bool {
	var acts []action
	m.side[s], acts = m.side[s].step(e)
	kept := true
	for _, a := range acts {
		switch a.kind {
		case actDial:
			m.dial[s] = dialRequested
		case actCancelDial:
			if i := m.dial[s]; i > 0 {
				m.carriers[i].dead = true
				m.carriers[i].gone[s] = true
			}
			m.dial[s] = 0
		case actChooseDial:
			m.chooseDial(s)
		case actGrant:
			m.carriers[a.id].stage = granted
		case actRefuse:
			m.carriers[a.id].dead = true
			m.carriers[a.id].gone[s] = true
		case actDrop:
			kept = false
		case actFail:
			m.failed[s] = true
		}
	}
	return kept
}

// TestEveryInterleaving explores all states that two sides can reach in which both, one or neither
// dial, carriers break and patience ends. No state may have two links, and where nothing more can
// happen both sides must have the same link, unless something broke.
func TestEveryInterleaving(t *testing.T) {
	for _, tc := range []struct {
		wants  [2]int
		breaks int
		waits  int
		hedges int
	}{
		{[2]int{1, 0}, 0, 1, 0}, {[2]int{0, 1}, 0, 1, 0}, {[2]int{1, 1}, 0, 0, 0}, {[2]int{1, 1}, 0, 2, 0}, {[2]int{2, 2}, 0, 1, 0},
		{[2]int{1, 0}, 2, 1, 0}, {[2]int{0, 1}, 2, 1, 0}, {[2]int{1, 1}, 1, 0, 0}, {[2]int{1, 1}, 2, 1, 0}, {[2]int{2, 2}, 2, 0, 0},
		{[2]int{1, 1}, 0, 0, 1}, {[2]int{1, 1}, 0, 1, 2}, {[2]int{1, 1}, 1, 1, 1}, {[2]int{1, 1}, 2, 0, 1},
	} {
		t.Run(fmt.Sprintf("wants=%v,breaks=%d,waits=%d,hedges=%d", tc.wants, tc.breaks, tc.waits, tc.hedges), func(t *testing.T) {
			start := model{wants: tc.wants, breaks: tc.breaks, waits: tc.waits, hedges: tc.hedges}
			start.side[0].lower = true
			before := map[model]model{start: {}}
			ends := 0
			for todo := []model{start}; len(todo) > 0; {
				m := todo[len(todo)-1]
				todo = todo[:len(todo)-1]
				followers := m.next()
				if fault := m.fault(tc.breaks, len(followers) == 0); fault != "" {
					t.Fatalf("%s:%s", fault, trail(before, m))
				}
				if len(followers) == 0 {
					ends++
				}
				for _, f := range followers {
					if _, seen := before[f]; !seen {
						before[f] = m
						todo = append(todo, f)
					}
				}
			}
			t.Logf("%d states, %d ends", len(before), ends)
			if ends == 0 {
				t.Error("no state is an end")
			}
		})
	}
}

// fault returns which rule a state breaks.
func (m model) fault(breaks int, end bool) string {
	a, b := m.chosen[0], m.chosen[1]
	// Two breaks can leave each side with a dead carrier of its own; one cannot, and both sides
	// never hold live ones.
	if a != 0 && b != 0 && a != b && (breaks-m.breaks < 2 || !m.carriers[a].dead && !m.carriers[b].dead) {
		return "two links"
	}
	for s := range 2 {
		if p := m.side[s]; p.phase == idle && p.dialling != (m.dial[s] != 0) {
			return fmt.Sprintf("side %d thinks its dial is under way: %t", s, p.dialling)
		}
	}
	if m.blind {
		return "a carrier without the peer's proof is the link"
	}
	if !end {
		return ""
	}
	broken := m.breaks < breaks
	switch {
	case !broken && a == 0:
		return "it ended without a link"
	case !broken && a != b:
		return "only one side has the link"
	case !broken && (m.failed[0] || m.failed[1]):
		return "somebody was told that there is no link"
	}
	for s := range 2 {
		if p := m.side[s]; p.phase == idle && (p.wanted || p.granting != 0 || p.parked != 0) {
			return fmt.Sprintf("side %d waits for ever: %+v", s, p)
		}
	}
	return ""
}

func trail(before map[model]model, m model) string {
	var path []string
	for ; m != (model{}); m = before[m] {
		path = append(path, fmt.Sprintf("\n  sides %+v dial %v carriers %+v chosen %v", m.side, m.dial, m.carriers[1:m.n+1], m.chosen))
	}
	slices.Reverse(path)
	return fmt.Sprint(path)
}

// The rules, one line each.
func TestDecisions(t *testing.T) {
	dialling := pair{wanted: true, dialling: true}
	lower := dialling
	lower.lower = true
	parked := lower
	parked.parked = 5
	established := pair{phase: up, life: 7}
	for _, tc := range []struct {
		name string
		p    pair
		e    event
		want []actionKind
		err  error
	}{
		{"the higher rank takes the lower's carrier while it dials", dialling, event{kind: evIncoming, id: 5}, []actionKind{actGrant}, nil},
		{"and holds its own dial while it does not know", pair{wanted: true, dialling: true, granting: 5}, event{kind: evReady}, []actionKind{actHold}, nil},
		{"which it takes if the lower's carrier ends", pair{wanted: true, dialling: true, granting: 5, held: true}, event{kind: evGrantFailed, id: 5}, []actionKind{actChooseDial}, nil},
		{"and cancels its own dial once the lower has proven itself", pair{wanted: true, dialling: true, granting: 5}, event{kind: evGranted, id: 5}, []actionKind{actChoose, actCancelDial}, nil},
		{"the lower rank parks the higher's", lower, event{kind: evIncoming, id: 5}, []actionKind{actPark}, nil},
		{"and refuses it when its own dial is through", parked, event{kind: evReady}, []actionKind{actChoose, actRefuse}, overlay.ErrDuplicate},
		{"or takes it when its own dial fails", parked, event{kind: evDialFailed}, []actionKind{actGrant}, nil},
		{"or when it has waited long enough", parked, event{kind: evPatience, id: 5}, []actionKind{actCancelDial, actGrant}, nil},
		{"a newer carrier replaces a parked one", parked, event{kind: evIncoming, id: 6}, []actionKind{actRefuse, actPark}, overlay.ErrDuplicate},
		{"nobody dials: what comes is taken", pair{}, event{kind: evIncoming, id: 5}, []actionKind{actGrant}, nil},
		{"same life again", established, event{kind: evIncoming, id: 5, life: 7}, []actionKind{actRefuse}, overlay.ErrDuplicate},
		{"older life", established, event{kind: evIncoming, id: 5, life: 6}, []actionKind{actRefuse}, overlay.ErrStale},
		{"newer life", established, event{kind: evIncoming, id: 5, life: 8}, []actionKind{actRefuse}, overlay.ErrRefused},
		{"own dial fails and nothing else is under way", dialling, event{kind: evDialFailed}, []actionKind{actFail}, nil},
	} {
		_, acts := tc.p.step(tc.e)
		var kinds []actionKind
		var err error
		for _, a := range acts {
			kinds = append(kinds, a.kind)
			if a.err != nil {
				err = a.err
			}
		}
		if !slices.Equal(kinds, tc.want) || !errors.Is(err, tc.err) {
			t.Errorf("%s: %v, %v; want %v, %v", tc.name, kinds, err, tc.want, tc.err)
		}
	}
}
