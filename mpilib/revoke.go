package mpilib

import (
	"fmt"

	"github.com/isthmus-grid/isthmus/mpilib/internal/comm"
)

// Revoke has every call on c fail with ErrRevoked from now on, pending ones
// too, on all processes that are in it, so that nobody waits for a process that has left
// the common course (MPI_Comm_revoke of ULFM). It is local, and the news
// spreads by itself: whoever hears of it tells all it has links with, and a
// process that waits for another has a link with it. What may still be called
// is Agree, Shrink, GetFailed, AckFailed, Free, and all that is local. To revoke
// the world's communicator leaves those made from it as they are.
func (c *Comm) Revoke() error {
	if err := c.core.Usable(); err != nil {
		return c.called("Revoke", err)
	}
	if c == c.world.comms.self {
		return c.called("Revoke", fmt.Errorf("%w: nobody else is in it", ErrArg))
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
