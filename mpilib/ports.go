package mpilib

import (
	"context"
	"fmt"
)

// OpenPort returns the text of a new port, at which processes of other jobs can connect to this
// process, with Accept (MPI_Open_port; MPI-4.1, section 11.9.2). Anyone who has the text can
// connect, so treat it as a password: pass it to the other job as you pass on a job's key, or
// publish it with PublishName, so that every process of the grid can look it up and broker and
// frontals see it. It is local; the port stays open until ClosePort or Finalize. ctx bounds the
// opening.
func (w *World) OpenPort(ctx context.Context) (string, error) {
	port, err := "", w.unreplicated(reasonJobs)
	if err == nil {
		port, err = w.otherJobs.OpenPort(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("mpilib: OpenPort, rank %d of the world: %w", w.engine.Rank(), err)
	}
	return port, nil
}

// ClosePort closes a port of OpenPort: new connections to it then fail, and so does a pending
// Accept (MPI_Close_port; MPI-4.1, section 11.9.2). Existing connections stay. So does a name under
// which it was published: withdraw it with UnpublishName.
func (w *World) ClosePort(port string) error {
	if err := w.otherJobs.ClosePort(port); err != nil {
		return fmt.Errorf("mpilib: ClosePort, rank %d of the world: %w", w.engine.Rank(), err)
	}
	return nil
}

// PublishName publishes a port under a service name, so that any process of the grid finds it by
// LookupName (MPI_Publish_name; MPI-4.1, section 11.9.4). A name is 1 to 128 bytes of printable
// UTF-8 and belongs to one process of the grid at a time: it fails with ErrService, and names the
// owner, if another process has it; the process's own name gets the new port. A job has at most 64
// names. A name lasts until UnpublishName or the end of this process, even if daemons restart.
//
// Published ports are not secret: broker and frontals see the port, and every process of the grid
// can look it up and connect. If that is too public, pass on the port's text by other means.
func (w *World) PublishName(ctx context.Context, service, port string) error {
	if err := w.unreplicated(reasonJobs); err != nil {
		return w.nameError("PublishName", service, err)
	}
	return w.nameError("PublishName", service, w.otherJobs.Publish(ctx, service, port))
}

// UnpublishName withdraws a name that this process has published; ErrService if it has not
// (MPI_Unpublish_name; MPI-4.1, section 11.9.4).
func (w *World) UnpublishName(ctx context.Context, service string) error {
	return w.nameError("UnpublishName", service, w.otherJobs.Unpublish(ctx, service))
}

// LookupName returns the port that was published under a name; ErrName at once if there is none
// (MPI_Lookup_name; MPI-4.1, section 11.9.4). The error says so if the publishing process has died.
func (w *World) LookupName(ctx context.Context, service string) (port string, err error) {
	if err = w.unreplicated(reasonJobs); err == nil {
		port, err = w.otherJobs.Lookup(ctx, service)
	}
	return port, w.nameError("LookupName", service, err)
}

// AwaitName is LookupName that waits until the name is published or ctx is done:
// then it fails with ErrName.
func (w *World) AwaitName(ctx context.Context, service string) (port string, err error) {
	if err = w.unreplicated(reasonJobs); err == nil {
		port, err = w.otherJobs.Await(ctx, service)
	}
	return port, w.nameError("AwaitName", service, err)
}

func (w *World) nameError(call, service string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("mpilib: %s %.130q, rank %d of the world: %w", call, service, w.engine.Rank(), err)
}
