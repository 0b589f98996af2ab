package mpilib

import (
	"context"
	"fmt"

	"github.com/isthmus-grid/isthmus/mpilib/internal/calls"
)

// IsInter reports whether c is an intercommunicator (MPI_Comm_test_inter;
// MPI-4.1, section 7.6.1).
func (c *Comm) IsInter() bool { return c.core.IsInter() }

// RemoteSize returns the number of processes on the other side of an intercommunicator, 0 for an
// intracommunicator (MPI_Comm_remote_size; MPI-4.1, section 7.6.1).
func (c *Comm) RemoteSize() int {
	if !c.core.IsInter() {
		return 0
	}
	return c.core.Peers.Size()
}

// RemoteGroup returns the processes on the other side of an intercommunicator
// (MPI_Comm_remote_group; MPI-4.1, section 7.6.1).
func (c *Comm) RemoteGroup() (*Group, error) {
	if !c.core.IsInter() {
		return nil, c.called("RemoteGroup", fmt.Errorf("%w: %s has one group; call Group", ErrIntracomm, c.Name()))
	}
	return c.groupOf(c.core.Peers), nil
}

// Local returns the communicator of the local group of an intercommunicator, for collectives on
// this side only, and c itself for an intracommunicator. It is freed with c.
func (c *Comm) Local() *Comm {
	if c.core.IsInter() {
		return c.inner
	}
	return c
}

// IntercommCreate joins two disjoint groups: all processes of local call it on both sides, each
// side with its own local. The process of rank localLeader of local communicates with the other
// side's leader, which has rank remoteLeader of peer; peer and remoteLeader are used at the leaders
// only, other processes may give nil and any value. tag, the same on all, distinguishes several
// calls over one peer, and does not match messages of the program (MPI_Intercomm_create; MPI-4.1,
// section 7.6.2). It is a collective call of both groups.
func IntercommCreate(ctx context.Context, local *Comm, localLeader int, peer *Comm, remoteLeader, tag int) (*Comm, error) {
	var leaders *calls.Comm
	if peer != nil {
		leaders = &peer.core
	}
	n, err := local.core.Join(ctx, localLeader, leaders, remoteLeader, tag)
	return local.created("IntercommCreate", n, err)
}

// Merge returns an intracommunicator of both groups: first the group whose processes give high
// false, then the other; if both give the same, in an order that is the same everywhere
// (MPI_Intercomm_merge; MPI-4.1, section 7.6.2). All processes of a group give the same. It is a
// collective call of both groups.
func (c *Comm) Merge(ctx context.Context, high bool) (*Comm, error) {
	n, err := c.core.Merge(ctx, high)
	return c.created("Merge", n, err)
}
