package mpilib

import (
	"context"
	"fmt"

	"github.com/isthmus-grid/isthmus/internal/job/jobgroups"
	"github.com/isthmus-grid/isthmus/mpilib/internal/calls"
	"github.com/isthmus-grid/isthmus/mpilib/internal/comm"
	"github.com/isthmus-grid/isthmus/mpilib/internal/dynproc"
	"github.com/isthmus-grid/isthmus/mpilib/internal/group"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
	"github.com/isthmus-grid/isthmus/mpilib/internal/plan"
	"github.com/isthmus-grid/isthmus/mpilib/internal/settle"
	"github.com/isthmus-grid/isthmus/overlay"
)

// This file connects two jobs (MPI-4.1, section 11.9). The roots of both meet at a port (package
// dynproc) and derive the key of a joint job there, of which all processes of both communicators
// become ranks: the accepting side has the lower ones. So a process has a second world, with links,
// daemons and techniques like the first, and the intercommunicator belongs to that world.

// Accept waits for another job to Connect to a port that the process of rank root has opened, and
// returns the intercommunicator with the connecting processes (MPI_Comm_accept; MPI-4.1, section
// 11.9.2). port is used at root only. It is a collective call; a port may be used repeatedly, also
// by several goroutines with different communicators. It fails on all ranks or on none, unless a
// process fails or a context ends in the meantime; to end the call on all ranks, ctx must end on
// all.
//
// The communicators that it and calls on its result create belong to a separate world (Comm.World),
// of all processes on both sides: WorldRank refers to it, and groups of it are invalid in other
// worlds. It ends with the last of them, by Disconnect or Free, or with Finalize. In it the debug
// mode, traces and forced algorithms are disabled.
func (c *Comm) Accept(ctx context.Context, port string, root int) (*Comm, error) {
	made, err := c.joinJobs(ctx, settle.Accept, port, root)
	return made, c.called("Accept", err)
}

// Connect connects to a port at which another job Accepts, and returns the intercommunicator with
// the accepting processes (MPI_Comm_connect; MPI-4.1, section 11.9.3). port is used at root only.
// It fails with ErrPort if no process has opened the port within WithConnectTimeout, and waits for
// Accept until ctx is done. Otherwise it is like Accept.
func (c *Comm) Connect(ctx context.Context, port string, root int) (*Comm, error) {
	made, err := c.joinJobs(ctx, settle.Connect, port, root)
	return made, c.called("Connect", err)
}

func (c *Comm) joinJobs(ctx context.Context, kind settle.Kind, port string, root int) (*Comm, error) {
	if err := c.world.unreplicated(reasonJobs); err != nil {
		return nil, err
	}
	call, err := c.core.Next(ctx)
	if err != nil {
		return nil, err
	}
	t := settle.Terms{Kind: kind, Args: [settle.MaxArgs]settle.Arg{settle.Number("root", root)}}
	if root < 0 || root >= c.Size() {
		t.Fault = fmt.Errorf("%w: root %d, communicator %s has ranks 0 to %d", ErrRank, root, c.Name(), c.Size()-1)
	} else if c.core.Rank == root {
		t.Fault = c.world.otherJobs.Check(kind == settle.Connect, port)
	}
	id, err := settle.Settle(ctx, call, t)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.world.calls.Life, func() { cancel(ErrFinalized) })()
	var handshake *dynproc.Handshake
	var d dynproc.JointJob
	var failed error
	if c.core.Rank == root {
		if handshake, failed = c.world.otherJobs.Handshake(ctx, kind == settle.Connect, port, c.Size()); failed == nil {
			defer handshake.Close()
			d = dynproc.JointJob{Key: handshake.Key, Others: handshake.Others}
		}
	}
	if d, err = d.Broadcast(ctx, call, root, c.world.config.place.Key, failed); err != nil {
		return nil, err
	}
	made, joinErr := c.joinJoint(ctx, kind, d)
	if err := dynproc.AllJoined(ctx, call, root, handshake, joinErr); err != nil {
		if made != nil {
			gone, cancel := context.WithCancel(ctx)
			cancel() // no process there needs a notification
			made.Finalize(gone)
		}
		return nil, err
	}
	return c.newJointComm(made, kind, d, id), nil
}

// joinJoint makes this process a rank of the joint job.
func (c *Comm) joinJoint(ctx context.Context, kind settle.Kind, d dynproc.JointJob) (*World, error) {
	w := c.world
	key, err := d.OpenKey(w.config.place.Key)
	if err != nil {
		return nil, err
	}
	p := *w.config.place
	p.Key, p.Rank, p.Size, p.Grant = key, c.core.Rank, c.Size()+d.Others, nil // a grant is for one job
	if kind == settle.Connect {
		p.Rank += d.Others
	}
	cfg := w.config
	cfg.place, cfg.connector, cfg.where, cfg.computed = &p, nil, nil, 2
	cfg.lookup = func(string) (string, bool) { return "", false }
	cfg.layout, cfg.groups = jobgroups.Layout{}, nil
	cfg.debug, cfg.trace, cfg.signs, cfg.orders = 0, "", false, plan.Orders{}
	if w.config.reach != nil {
		if cfg.connector, err = w.config.reach(overlay.ProcessName{Job: p.Key.ID(), Rank: uint32(p.Rank)}); err != nil {
			return nil, err
		}
	}
	made, err := newWorld(ctx, cfg)
	if err != nil {
		if cfg.connector != nil {
			cfg.connector.Close()
		}
		return nil, err
	}
	made.host = w
	if w.config.where != nil || made.comms.node == (overlay.NodeID{}) {
		made.comms.node = w.comms.node
	}
	if !w.otherJobs.Add(made) {
		gone, cancel := context.WithCancel(ctx)
		cancel()
		made.Finalize(gone)
		return nil, ErrFinalized
	}
	return made, nil
}

// newJointComm returns the intercommunicator of the two sides of a joint world. Its contexts are the
// first two that rank 0 of that world would allocate: all processes can compute them. Both sides'
// local groups share one, because they have no common process.
func (c *Comm) newJointComm(made *World, kind settle.Kind, d dynproc.JointJob, id uint32) *Comm {
	mine, theirs := 0, c.Size()
	if kind == settle.Connect {
		mine, theirs = d.Others, 0
	}
	size := made.engine.Size()
	ids := calls.IDs{Comm: uint32(comm.Context(0, 0, size)), Inner: uint32(comm.Context(1, 0, size))}
	how := "accepted"
	if kind == settle.Connect {
		how = "connected"
	}
	us, _ := group.Range(mine, c.Size()) // both belong to the world
	them, _ := group.Range(theirs, d.Others)
	n := &calls.Created{IDs: ids, Name: c.core.NameOf(how, id), Group: us, Peers: them}
	return made.newComm(n, c.handler.Load(), &Session{world: made, joint: true})
}

// Disconnect frees c, as Free does. If c is the last communicator created through an Accept or
// Connect, it also ends the connection to the other job: it returns when every peer has read what
// was sent to it, for which the peers need no call, and all links to the other job are closed
// (MPI_Comm_disconnect; MPI-4.1, section 11.10.4). Complete your requests first. All ranks of c
// call it, of both groups of an intercommunicator; it waits for no other call, so that it cannot
// hang when a process has failed. If ctx is done before all is read, it fails, but the connection
// has ended nevertheless. The world's and Self's communicator cannot be disconnected.
func (c *Comm) Disconnect(ctx context.Context) error {
	last, err := c.free()
	if last {
		err = mpi.FirstOf(c.world.Finalize(ctx), err)
	}
	return c.called("Disconnect", err)
}

// finalizeInBackground ends a world with another job in the background. The host's Finalize
// waits for it.
func (w *World) finalizeInBackground() {
	w.host.calls.Start(func() {
		if err := w.Finalize(context.Background()); err != nil && w.config.log != nil {
			w.config.log.Warn("a connection to another job did not end well", "error", err)
		}
	})
}
