package collectives

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/isthmus-grid/isthmus/collectives/operation"
	"github.com/isthmus-grid/isthmus/collectives/schedule"
)

// Planner decides how a rank carries out the calls of one communicator: it chooses the algorithms
// and keeps the schedules. Before a call the planners of all ranks of the communicator must be in
// the same state: the same layout, model and forced algorithms. It may be used by several
// goroutines.
type Planner struct {
	rank int
	group
	layout Layout
	place  []int // number of each rank's place; nil: the ranks are together

	mu       sync.Mutex // guards what is below
	model    *Model
	forced   [operation.Count]*Algorithm
	chosen   map[choiceKey][]Choice
	kept     map[scheduleKey]*prepared
	steps    int // number of steps in the kept schedules
	onChoice func(collective operation.Operation, s Shape, choices []Choice)
}

// choiceKey is what a choice depends on.
type choiceKey struct {
	collective        operation.Operation
	algorithm         string // of a choice without a prediction; only to tell of it once
	bytes, home, elem int
	commutative       bool
}

// NewPlanner returns the planner of a rank of a communicator of size ranks, with the default model.
func NewPlanner(rank, size int, l Layout) (*Planner, error) {
	if rank < 0 || rank >= size {
		return nil, fmt.Errorf("collectives: rank %d of %d: %w", rank, size, ErrArgument)
	}
	if err := l.Check(size); err != nil {
		return nil, fmt.Errorf("collectives: %w", err)
	}
	p := &Planner{rank: rank, group: group{size: size, ordered: l.Ordered()}, layout: l}
	if parts, _ := l.parts(); parts != nil {
		p.apart = true
		p.place = make([]int, size)
		for k, ranks := range parts {
			for _, r := range ranks {
				p.place[r] = k
			}
		}
	}
	p.SetModel(DefaultModel())
	return p, nil
}

// Layout returns where the ranks are.
func (p *Planner) Layout() Layout { return p.layout }

// Apart reports whether the ranks are at several places.
func (p *Planner) Apart() bool { return p.apart }

// Model returns the model from which algorithms are chosen.
func (p *Planner) Model() *Model {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.model
}

// SetModel makes later choices use another model. All ranks must call it between the same two
// calls, while none is in progress.
func (p *Planner) SetModel(m *Model) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.model, p.chosen = m, map[choiceKey][]Choice{}
}

// Force makes the named algorithm, in the form that Find takes, carry out the calls of a collective
// wherever its results would be right; with "" they are chosen again. Where one that needs
// SharedMemory is forced among ranks that are not all on one node, every call fails with
// ErrSharedMemory, unless it is Internal. All ranks must call it between the same two calls.
func (p *Planner) Force(collective operation.Operation, name string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if name == "" && collective < operation.Count {
		p.forced[collective] = nil
		return nil
	}
	a, err := Find(collective, name)
	if err == nil {
		p.forced[collective] = &a
	}
	return err
}

// ForceAll is Force for several collectives, "bcast=two-level:8,allreduce=ring". If one of them is
// invalid none is forced.
func (p *Planner) ForceAll(list string) error {
	forced, err := ParseForced(list)
	if err != nil {
		return err
	}
	for _, collective := range slices.Sorted(maps.Keys(forced)) {
		if err := p.Force(collective, forced[collective]); err != nil {
			return err
		}
	}
	return nil
}

// ParseForced parses what ForceAll takes and returns the names of algorithms by collective.
func ParseForced(list string) (map[operation.Operation]string, error) {
	forced := map[operation.Operation]string{}
	for _, item := range strings.Split(list, ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			continue
		}
		word, name, ok := strings.Cut(item, "=")
		if !ok {
			return nil, fmt.Errorf("collectives: %q is not of the form collective=algorithm, as in bcast=two-level:8", item)
		}
		collective, err := operation.Parse(word)
		if err != nil {
			return nil, fmt.Errorf("collectives: %w", err)
		}
		if _, err := Find(collective, name); err != nil {
			return nil, err
		}
		forced[collective] = name
	}
	return forced, nil
}

// OnChoice makes the Planner call f with every new choice, the best algorithm first, before the
// algorithm is used; with a single one, without a prediction, where it is forced or the ranks are
// together. f must not call the Planner.
func (p *Planner) OnChoice(f func(collective operation.Operation, s Shape, choices []Choice)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onChoice = f
}

// Choose returns the algorithm that a call of this shape runs, or an error if there is no
// such collective.
func (p *Planner) Choose(collective operation.Operation, s Shape) (Choice, error) {
	choices, err := p.Choices(collective, s)
	if err != nil {
		return Choice{}, err
	}
	return choices[0], nil
}

// Choices returns all algorithms considered for a call of this shape, the chosen one first. Nothing
// is predicted for a forced algorithm, or for ranks that are together.
func (p *Planner) Choices(collective operation.Operation, s Shape) ([]Choice, error) {
	if !slices.Contains(Operations(), collective) {
		return nil, unknown(collective)
	}
	s.Elem = max(1, s.Elem)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.choices(collective, s, false)
}

// choices is Choices for a caller that holds mu.
func (p *Planner) choices(collective operation.Operation, s Shape, internal bool) ([]Choice, error) {
	switch a, err := p.onlyChoice(collective, s, internal); {
	case err != nil:
		return nil, err
	case a != nil:
		return p.unpredicted(s, a), nil
	}
	s.Bytes = class(s.Bytes) / s.Elem * s.Elem
	key := choiceKey{collective, "", s.Bytes, p.place[s.Root], s.Elem, s.Commutative}
	choices, known := p.chosen[key]
	if !known {
		choices = p.model.rank(collective, s, p.layout)
		p.chosen[key] = choices
		if p.onChoice != nil {
			p.onChoice(collective, s, choices)
		}
	}
	return choices, nil
}

// onlyChoice returns the algorithm for a call of this shape, or nil if predictions have to tell.
func (p *Planner) onlyChoice(collective operation.Operation, s Shape, internal bool) (*Algorithm, error) {
	if a := p.forced[collective]; a != nil {
		switch shared := a.Needs.Has(SharedMemory); {
		case a.unmetNeeds(p.group, s) == 0:
			return a, nil
		case shared && p.apart && !internal:
			return nil, fmt.Errorf("collectives: %s: what is forced, %w", collective, a.refuses(p.group, s))
		case !shared:
			s.Posts = 0 // a collective for which an algorithm of messages is forced goes by messages
		}
	}
	if p.apart {
		return nil, nil
	}
	return byTable(collective, p.group, s), nil
}

// unpredicted returns a choice without a prediction, and reports it when it is new.
func (p *Planner) unpredicted(s Shape, a *Algorithm) []Choice {
	choices := []Choice{{Algorithm: *a}}
	if p.onChoice == nil {
		return choices
	}
	s.Bytes = class(s.Bytes)
	key := choiceKey{a.Collective, a.Name, s.Bytes, 0, s.Elem, s.Commutative}
	if p.chosen[key] == nil {
		p.chosen[key] = choices
		p.onChoice(a.Collective, s, choices)
	}
	return choices
}

// choose returns the algorithm for a call whose arguments have been checked, and whose ranks may
// post so many bytes at a time on memory that they share. internal is explained with Internal.
func (p *Planner) choose(c *call, posts int, internal bool) (*Algorithm, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := c.shape(p.size)
	s.Posts = posts
	if p.onChoice == nil { // the common case, which allocates nothing
		if a, err := p.onlyChoice(c.collective, s, internal); a != nil || err != nil {
			return a, err
		}
	}
	choices, err := p.choices(c.collective, s, internal)
	if err != nil {
		return nil, err
	}
	return &choices[0].Algorithm, nil
}

// maxKept is the maximum number of steps of the schedules that are kept, about 100 bytes each.
const maxKept = 1 << 16

// prepared is a schedule with what is needed to run it.
type prepared struct {
	s    *schedule.Schedule
	idle *running // not in use by any call; nil: there is none
}

// running is the state that one call has to itself.
type running struct {
	runner *schedule.Runner
	memory schedule.Memory
	op     Op
	apply  schedule.Apply // op's
}

// maxScratch is the maximum memory of a finished call that is kept for the next one alike.
const maxScratch = 1 << 20

// prepare returns this rank's schedule of a call, which is kept for the next call alike, and the
// state to run it with, which the caller passes to release.
func (p *Planner) prepare(a *Algorithm, c *call) (*prepared, *running) {
	key := c.key(a.Name)
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.kept[key]
	if k == nil {
		p.mu.Unlock()
		own := *c
		s := a.schedule(p.rank, p.size, p.layout, &own)
		p.mu.Lock()
		if p.steps += len(s.Steps) + 1; p.steps > maxKept || p.kept == nil {
			p.kept, p.steps = map[scheduleKey]*prepared{}, len(s.Steps)+1
		}
		k = &prepared{s: s}
		p.kept[key] = k
	}
	r := k.idle
	if r == nil {
		r = &running{runner: schedule.NewRunner(k.s)}
		r.memory[schedule.Scratch] = make([]byte, k.s.Scratch)
		r.apply = func(inout, in []byte) error { return r.op.apply(inout, in) }
	}
	k.idle = nil
	return k, r
}

// release keeps the state of a finished call.
func (p *Planner) release(k *prepared, r *running) {
	if k.s.Scratch > maxScratch {
		return
	}
	p.mu.Lock()
	k.idle = r
	p.mu.Unlock()
}
