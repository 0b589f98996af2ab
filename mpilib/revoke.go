package mpilib

import (
	"fmt"

	"github.com/isthmus-grid/isthmus/mpilib/internal/comm"
)

// Revoke makes every call on c fail with ErrRevoked from now on, including pending ones, on all of
// its processes, so that none waits for a process that no longer takes part (MPI_Comm_revoke of
// ULFM). It is local, and the notification spreads by itself: every process that receives it
// notifies all peers with which it has links, and a process that waits for another has a link with
// it. Permitted calls afterwards are Agree, Shrink, GetFailed, AckFailed, Free, and all local
// calls. Revoking the world's communicator does not affect those created from it.
func (c *Comm) Revoke() error {
	if err := c.core.Usable(); err != nil {
		return c.called("Revoke", err)
	}
	if err := c.world.unreplicated(reasonFailures); err != nil {
		return c.called("Revoke", err)
	}
	if c == c.world.comms.self {
		return c.called("Revoke", fmt.Errorf("%w: it has no other members", ErrArg))
	}
	c.world.engine.Revoke(c.core.Context, comm.ContextsPerComm)
	if c.inner != nil {
		c.world.engine.Revoke(c.inner.core.Context, comm.ContextsPerComm)
	}
	return nil
}

// IsRevoked reports whether this process knows that c was revoked
// (MPI_Comm_is_revoked of ULFM).
func (c *Comm) IsRevoked() bool { return c.world.engine.Revoked(c.core.Context) }
