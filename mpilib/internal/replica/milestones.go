package replica

import "fmt"

// Milestones are the milestones of a process's program: places at which it could go on from what it has saved, and at which a
// process with a spare number takes the seat of a lost one. All processes come to them in the same order, with all that
// they began complete. The program of a process with a spare number begins with one.
type Milestones struct{ p *Process }

// Milestones returns those of p.
func (p *Process) Milestones() Milestones { return Milestones{p} }

// Come says that the program has come to a milestone. Step then says what is to be done.
func (m Milestones) Come() {
	p := m.p
	p.rounds.count++
	if !p.isSeated() {
		p.rounds.joining.begin(p)
		return
	}
	p.rounds.arrive(p)
	p.rounds.progress(p)
}

// Layout returns the layout of the process.
func (m Milestones) Layout() Layout { return m.p.cfg.Layout }

// Seated reports whether the process holds a seat. Until it does its program must do nothing else.
func (m Milestones) Seated() bool { return m.p.isSeated() }

// A Step is what is to be done at a milestone.
type Step uint8

// The steps.
const (
	Stay    Step = iota // wait for Wake
	Pass                // the program goes on
	Refuse              // it goes on, but there were messages that no process has received
	Inspect             // call Inspected
	Save                // call Saved
	Load                // call State, load that, and call Loaded
	Unsaved             // the program of another process could not save: this one has no use for the job
	InVain              // all others have ended: the job has no use for this process
)

// Step returns what is to be done at the milestone that the program has come to last.
func (m Milestones) Step() Step {
	p, r := m.p, &m.p.rounds
	switch {
	case !p.isSeated():
		return r.joining.step(p)
	case r.refused == r.count:
		return Refuse
	case r.stage == idle, r.stage == counting && r.counted == r.count, r.stage == bound && r.count < r.target:
		return Pass
	case r.stage == inspecting && r.hasTotals(p):
		return Inspect
	case r.isGiver(p):
		return Save
	}
	return Stay
}

func (j *joining) step(p *Process) Step {
	switch {
	case j.toLoad:
		return Load
	case j.unsaved:
		return Unsaved
	case j.isInVain(p):
		return InVain
	}
	return Stay
}

// Inspected says whether there are messages that no receive has matched.
func (m Milestones) Inspected(unreceived bool) { m.p.rounds.inspected(m.p, unreceived) }

// Saved sends what the program has saved to the processes that come to its rank; with ok false they are sent away.
func (m Milestones) Saved(data []byte, ok bool) {
	m.p.rounds.save(m.p, data, ok)
	m.p.rounds.progress(m.p)
}

// State returns what is to be loaded. It is the caller's.
func (m Milestones) State() []byte { return m.p.rounds.joining.take() }

// Loaded says that the program has loaded State, or cannot.
func (m Milestones) Loaded(ok bool) { m.p.rounds.joining.loaded(m.p, ok) }

func errNotLoaded(p *Process, m Message) error {
	return fmt.Errorf("%w: process %d has seat %v at milestone %d, whose state it has not loaded", ErrProtocol, p.cfg.Process, p.cfg.Seat, m.Count)
}
