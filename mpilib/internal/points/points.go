// Package points has the points of the program at which one replica of a rank decides, and the others get what it
// decided. What is complete, and which message is there, may differ between them; all act on the same.
package points

import (
	"context"
	"errors"
	"fmt"

	"github.com/isthmus-grid/isthmus/mpilib/internal/comm"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
	"github.com/isthmus-grid/isthmus/mpilib/internal/replica"
)

// The kinds of points. A call that waits and one that does not differ in what they may decide: with one kind for both, a
// Mprobe could repeat that an Improbe of another replica's found nothing.
const (
	Test uint8 = 1 + iota
	Waitany
	Testany
	Waitsome
	Testsome
	Testall
	Probe
	Iprobe
	Now
	Rand
	Pending
	Decide
)

// Names are their names in reports.
var Names = []string{
	Test: "Test", Waitany: "Waitany", Testany: "Testany", Waitsome: "Waitsome", Testsome: "Testsome",
	Testall: "Testall", Probe: "Probe", Iprobe: "Iprobe", Now: "Now", Rand: "Rand",
	Pending: "Test of a pending call", Decide: "Decide",
}

// Indices returns which requests one replica has found, or in all of them the error of that one, whose context counts.
func Indices(e *engine.Engine, kind uint8, find func() ([]int, error)) (all []int, err error) {
	var failed error
	text, err := e.Point(context.Background(), kind, func() string {
		var found []int
		found, failed = find()
		return replica.AppendIndices(found, failed)
	})
	if err = errors.Join(err, failed); err != nil {
		return nil, fmt.Errorf("mpilib: replicas: %w", err)
	}
	if all, err = replica.ParseIndices(text); err != nil {
		return nil, fmt.Errorf("mpilib: replicas: %w", err)
	}
	return all, nil
}

// A Search is a probe of a communicator from src, a world rank or AnySource, that waits or does not, and takes the message
// from matching or does not.
type Search struct {
	Comm        *comm.Core
	Src, Tag    int
	Take, Waits bool
}

// Message probes.
func (s Search) Message(ctx context.Context, e *engine.Engine) (m engine.Matched, ok bool, err error) {
	if !s.Waits || s.Src == mpi.AnySource {
		if s.Src, s.Tag, ok, err = s.found(ctx, e); err != nil || !ok {
			return m, false, err
		}
		ctx = context.Background()
	}
	m, err = e.Probe(ctx, s.Comm.Senders(), s.Comm.Context, s.Src, s.Tag, s.Take)
	return m, err == nil, err
}

// found returns the source, a world rank, and the tag of the message that one replica has found.
func (s Search) found(ctx context.Context, e *engine.Engine) (source, tag int, ok bool, err error) {
	kind := Iprobe
	if s.Waits {
		kind = Probe
	}
	found, err := Indices(e, kind, func() ([]int, error) {
		m, ok, err := engine.Matched{}, true, error(nil)
		if s.Waits {
			m, err = e.Probe(ctx, s.Comm.Senders(), s.Comm.Context, s.Src, s.Tag, false)
		} else {
			m, ok, err = e.Iprobe(s.Comm.Senders(), s.Comm.Context, s.Src, s.Tag, false)
		}
		if err != nil || !ok {
			return nil, err
		}
		return []int{m.Result().Source, m.Result().Tag}, nil
	})
	if err != nil || len(found) != 2 {
		return 0, 0, false, err
	}
	return found[0], found[1], true, nil
}
