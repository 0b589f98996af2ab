package checkpoint

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ErrNoState says that no live task has given a state.
var ErrNoState = errors.New("checkpoint: no state")

// fetch is one call of Fetch: it asks all live tasks, waits until each has answered or is lost, and loads the newest
// state that was offered. When that is lost meanwhile, or is not what its hash says, it loads the next one. All are asked and not
// the two holders only: after losses, or a move of the task, the newest state may be at a task that holds it no longer.
type fetch struct {
	number  uint64
	task    int
	waiting map[int]bool
	offers  map[int]identity
	why     map[int]string // why a task has given none
	done    func(State, error)

	isLoading bool
	source    int
	id        identity // of the state that is loaded
	got       []byte
	asked     uint64 // bytes
}

// fetch begins a Fetch, and calls done, within this or a later call, when it has ended.
func (p *peer) fetch(task int, done func(State, error)) (number uint64, out []envelope) {
	p.fetched++
	f := &fetch{number: p.fetched, task: task, waiting: map[int]bool{}, offers: map[int]identity{}, why: map[int]string{}, done: done}
	p.fetches[f.number] = f
	for i, at := range p.places {
		switch {
		case i == p.self:
			if id, ok := p.store.newest(task); ok {
				f.offers[i] = id
			}
		case at.IsLost:
			f.why[i] = whyLost
		default:
			f.waiting[i] = true
			out = append(out, envelope{i, message{kind: kindAsk, fetch: f.number, task: uint64(task)}})
		}
	}
	return f.number, append(out, p.advance(f)...)
}

const (
	whyNone = "no state"
	whyLost = "lost"
)

// none handles that a task has no state, or no longer the one that it offered.
func (f *fetch) none(from int) { f.reject(from, whyNone) }

func (f *fetch) lost(task int) { f.reject(task, whyLost) }

// reject notes that a task gives no state.
func (f *fetch) reject(from int, why string) {
	delete(f.waiting, from)
	delete(f.offers, from)
	f.why[from] = why
	if f.isLoading && f.source == from {
		f.isLoading = false
	}
}

// offer handles an offer: the first of a task, or a newer one in place of what is loaded from it.
func (f *fetch) offer(from int, m message, maxBytes uint64) {
	id := identity{f.task, m.iteration, m.length, m.sum}
	isNewer := f.isLoading && f.source == from && id.iteration > f.id.iteration
	switch {
	case !f.waiting[from] && !isNewer:
		return
	case id.length > maxBytes:
		f.reject(from, fmt.Sprintf("a state of %d bytes, above the bound of %d", id.length, maxBytes))
		return
	}
	delete(f.waiting, from)
	f.offers[from] = id
	if isNewer {
		f.isLoading = false
	}
}

// data handles a piece of what is loaded.
func (f *fetch) data(from int, m message, piece uint64) {
	if !f.isLoading || from != f.source {
		return
	}
	at := uint64(len(f.got))
	if m.offset != at || uint64(len(m.data)) != min(piece, f.id.length-at) {
		f.reject(from, "pieces that were not asked for")
		return
	}
	f.got = append(f.got, m.data...)
}

// advance returns what a fetch asks for next, and ends it when there is its state, or nobody left to ask.
func (p *peer) advance(f *fetch) (out []envelope) {
	for len(f.waiting) == 0 {
		if !f.isLoading && !f.load() {
			return p.finish(f, State{}, fmt.Errorf("%w of task %d: %s", ErrNoState, f.task, p.describe(f)))
		}
		if f.source == p.self {
			f.got, _ = p.store.piece(f.id, 0, int(f.id.length))
		}
		if uint64(len(f.got)) == f.id.length {
			s := State{f.task, f.id.iteration, f.got}
			if identify(s) == f.id {
				return p.finish(f, s, nil)
			}
			f.reject(f.source, "data that does not fit its hash")
			continue
		}
		for f.asked < f.id.length && f.asked-uint64(len(f.got)) < p.window {
			out = append(out, envelope{f.source, message{kind: kindGet, fetch: f.number, task: uint64(f.task), iteration: f.id.iteration, sum: f.id.sum, offset: f.asked}})
			f.asked += p.piece
		}
		return out
	}
	return out
}

// load begins to load the newest state that is offered, of the lowest task that has it.
func (f *fetch) load() bool {
	for from, id := range f.offers {
		if !f.isLoading || id.iteration > f.id.iteration || id.iteration == f.id.iteration && from < f.source {
			f.isLoading, f.source, f.id = true, from, id
		}
	}
	f.got, f.asked = nil, 0
	return f.isLoading
}

func (p *peer) finish(f *fetch, s State, err error) []envelope {
	delete(p.fetches, f.number)
	f.done(s, err)
	return nil
}

// abandon ends a fetch whose owner waits no longer, and says who has not answered.
func (p *peer) abandon(number uint64, cause error) error {
	f := p.fetches[number]
	if f == nil {
		return cause // it has just ended
	}
	delete(p.fetches, number)
	for i := range f.waiting {
		f.why[i] = "no answer"
	}
	if f.isLoading {
		f.why[f.source] = "only a part"
	}
	return fmt.Errorf("checkpoint: the state of task %d: %w: %s", f.task, cause, p.describe(f))
}

// describe says what became of the state of a task: at those that hold it by what is known here, also if they are
// lost, and at the others.
func (p *peer) describe(f *fetch) string {
	all := slices.Clone(p.places)
	for i := range all {
		all[i].IsLost = false
	}
	holders := Holders(f.task, all, p.distance)
	for _, h := range Holders(f.task, p.places, p.distance) {
		if !slices.Contains(holders, h) {
			holders = append(holders, h)
		}
	}
	var text []string
	for _, h := range holders {
		if h != p.self {
			text = append(text, fmt.Sprintf("holder %d (%s/%s): %s", h, all[h].Site, all[h].Node, f.why[h]))
		}
	}
	others := map[string]int{}
	for i, why := range f.why {
		if i != f.task && !slices.Contains(holders, i) {
			others[why]++
		}
	}
	for _, why := range slices.Sorted(maps.Keys(others)) {
		text = append(text, fmt.Sprintf("others: %s (%d)", why, others[why]))
	}
	if text == nil {
		text = []string{"no other task"}
	}
	return strings.Join(text, "; ")
}
