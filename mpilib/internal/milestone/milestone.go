// Package milestone is what a process of a job with replicas does at a milestone of its program: it carries out the
// steps of package replica, and hands over what the library itself has to know, which is the number of
// allocated contexts, and where the output was. All else begins anew: see docs/decisions/0056-returning-replicas.md.
//
// It keeps no state.
package milestone

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/isthmus-grid/isthmus/internal/job/marks"
	"github.com/isthmus-grid/isthmus/mpilib/internal/calls"
	"github.com/isthmus-grid/isthmus/mpilib/internal/comm"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine/protocol"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
	"github.com/isthmus-grid/isthmus/mpilib/internal/replica"
)

// minState is how many bytes the library hands over besides: how many contexts were allocated, and the state's mark.
const minState = 4 + len(marks.ID{})

// MaxState is how many bytes a program may save.
const MaxState = 63 << 20

// A Program is one that has come to a milestone.
type Program struct {
	World      *calls.World
	Predefined []*calls.Comm // the communicators that it may have
	Save       func() ([]byte, error)
	Load       func([]byte) error
	Marks      string // the secret of marks in the output; empty: none are written
}

// Come returns when the program may go on: mostly at once. An error may be that of one process only, which
// then leaves the job.
func (p *Program) Come(ctx context.Context) error {
	before, err := p.begin()
	if err != nil {
		return err
	}
	var saving error
	var loaded marks.ID
	for {
		var step replica.Step
		var data []byte
		now := before
		woken, err := engine.Milestones(p.World.Engine, func(m replica.Milestones, _ *protocol.Core) {
			if step = m.Step(); step == replica.Load {
				data = m.State()
			}
			now = m.Layout()
		})
		switch {
		case err != nil:
			return err
		case step == replica.Stay:
			select {
			case <-woken:
			case <-ctx.Done():
				return p.giveUp(ctx)
			}
		case step == replica.Pass:
			if now.Epoch != before.Epoch {
				p.restart()
			}
			if loaded != (marks.ID{}) {
				p.mark(marks.Loaded, loaded) // now it has its seat
				return saving
			}
			for _, q := range now.Newcomers(p.World.Engine.Rank(), before) {
				p.mark(marks.Joined, marks.ProcessID(q))
			}
			return saving
		case step == replica.Save:
			saving = p.save()
		case step == replica.Load:
			loaded, err = p.load(data)
		default:
			err = p.takeStep(step)
		}
		if err != nil {
			return err
		}
	}
}

// begin says that the program has come, and returns the layout.
func (p *Program) begin() (before replica.Layout, err error) {
	what := ""
	_, err = engine.Milestones(p.World.Engine, func(m replica.Milestones, c *protocol.Core) {
		before = m.Layout()
		if what = c.Unfinished(comm.Predefined); what == "" {
			m.Come()
		}
	})
	if what != "" {
		err = fmt.Errorf("%w: %s at a milestone, and a process that comes could not have it; end it before", mpi.ErrReplicated, what)
	}
	return before, err
}

// takeStep takes a step that needs no bytes.
func (p *Program) takeStep(step replica.Step) error {
	switch step {
	case replica.Inspect:
		_, err := engine.Milestones(p.World.Engine, func(m replica.Milestones, c *protocol.Core) {
			m.Inspected(len(c.ListUnexpected()) > 0)
		})
		return err
	case replica.Refuse:
		why := "at another process"
		if m := p.World.Engine.UnexpectedMessages(); len(m) > 0 {
			why = fmt.Sprintf("here one from rank %d with tag %d", m[0].Source, m[0].Tag)
		}
		return fmt.Errorf("%w: messages were sent before a milestone and not received before it (%s), and a process that comes could not have them", mpi.ErrReplicated, why)
	case replica.Unsaved:
		return errors.New("the process whose place this one takes cannot save its state")
	case replica.InVain:
		return fmt.Errorf("%w: the job has ended without this process", mpi.ErrFinalized)
	}
	return fmt.Errorf("mpilib: a milestone's step %d", step)
}

// giveUp ends this process's part in the job: the others would wait for it.
func (p *Program) giveUp(ctx context.Context) error {
	err := fmt.Errorf("%w: a milestone was given up while a process came: %w", mpi.ErrReplicated, context.Cause(ctx))
	engine.Milestones(p.World.Engine, func(_ replica.Milestones, c *protocol.Core) { c.Close(err) }) // all further calls return it
	p.World.Engine.Close()
	return err
}

// save hands over what the program saves.
func (p *Program) save() error {
	data, err := p.Save()
	if err == nil && len(data) > MaxState {
		err = fmt.Errorf("%w: a state of %d bytes, at most %d", mpi.ErrReplicated, len(data), MaxState)
	}
	state := binary.BigEndian.AppendUint32(nil, p.World.Contexts.Allocated())
	if err == nil {
		id := marks.NewID()
		state = append(append(state, id[:]...), data...)
		p.mark(marks.Saved, id) // before anybody has the state
	}
	engine.Milestones(p.World.Engine, func(m replica.Milestones, _ *protocol.Core) { m.Saved(state, err == nil) })
	if err != nil {
		return fmt.Errorf("save: %w", err)
	}
	return nil
}

// load takes over what another process has saved, and returns the state's mark.
func (p *Program) load(state []byte) (id marks.ID, err error) {
	err = errors.New("the state has no number of contexts, or no mark")
	if len(state) >= minState {
		id = marks.ID(state[4:minState])
		err = p.Load(state[minState:])
	}
	if err == nil { // it may be loaded twice
		p.World.Contexts.Skip(binary.BigEndian.Uint32(state) - p.World.Contexts.Allocated())
	}
	engine.Milestones(p.World.Engine, func(m replica.Milestones, _ *protocol.Core) { m.Loaded(err == nil) })
	if err != nil {
		return id, fmt.Errorf("load: %w", err)
	}
	return id, nil
}

// restart makes the communicators begin anew, as they do in all processes.
func (p *Program) restart() {
	for _, c := range p.Predefined {
		c.Restart()
	}
}
