// Package membership decides when a process that runs MPI joins its world, and when it leaves it. It does neither.
//
// The World Model and sessions (MPI-5.0, sections 11.2 and 11.3) share one membership, which begins with the first of them. As a
// process cannot join its job a second time, it ends only when none can follow that needs it: when MPI_Finalize was called and no
// session is open, or at the process's exit.
package membership

import "errors"

// Model is the life of the World Model.
type Model int32

// The World Model lasts from MPI_Init to MPI_Finalize.
const (
	Before Model = iota
	Running
	Finalized
)

// Membership is by what a process takes part in the world.
type Membership struct {
	Model        Model
	Joined, Left bool // set by the caller, once that has happened

	sessions int // that are open
}

var (
	errAgain   = errors.New("MPI was initialized before")
	errStopped = errors.New("MPI is not running")
	errLeft    = errors.New("this process has left the world: no session can follow MPI_Finalize unless one was open then")
)

// Begin begins the World Model.
func (m *Membership) Begin() error {
	if m.Model != Before {
		return errAgain
	}
	m.Model = Running
	return nil
}

// End ends it.
func (m *Membership) End() error {
	if m.Model != Running {
		return errStopped
	}
	m.Model = Finalized
	return nil
}

// Open opens a session.
func (m *Membership) Open() error {
	if m.Left {
		return errLeft
	}
	m.sessions++
	return nil
}

// Close closes one.
func (m *Membership) Close() { m.sessions-- }

// IsMember reports whether the process is in the world.
func (m *Membership) IsMember() bool { return m.Joined && !m.Left }

// IsOver reports whether the process has to leave the world now.
func (m *Membership) IsOver() bool { return m.IsMember() && m.Model == Finalized && m.sessions == 0 }

// IsIdle reports whether the process may end, and then has to leave the world.
func (m *Membership) IsIdle() bool { return m.IsMember() && m.Model != Running && m.sessions == 0 }
