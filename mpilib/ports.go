package mpilib

import (
	"context"
	"fmt"
)

// OpenPort returns the text of a new port, at which this process can be connected
// to by processes of other jobs, with Accept (MPI_Open_port; MPI-4.1, section
// 11.9.2). Whoever has the text can connect, so treat it as a password: hand it to
// the other job as you hand on the key of a job, or PublishName it, where everybody
// in the grid can look it up and broker and frontals see it. It is local; the port
// stays open until ClosePort or Finalize. ctx bounds the opening.
func (w *World) OpenPort(ctx context.Context) (string, error) {
	port, err := w.guests.OpenPort(ctx)
	if err != nil {
		return "", fmt.Errorf("mpilib: OpenPort, rank %d of the world: %w", w.engine.Rank(), err)
	}
	return port, nil
}

// ClosePort closes a port of OpenPort: who wants to connect to it then fails, and
// so does an Accept that waits (MPI_Close_port; MPI-4.1, section 11.9.2). What was
// connected stays so. A name under which it was published stays, too: take it back
// with UnpublishName.
func (w *World) ClosePort(port string) error {
	if err := w.guests.ClosePort(port); err != nil {
		return fmt.Errorf("mpilib: ClosePort, rank %d of the world: %w", w.engine.Rank(), err)
	}
	return nil
}

// PublishName gives a service name to a port, so that any process of the grid finds
// it by LookupName (MPI_Publish_name; MPI-4.1, section 11.9.4). A name is 1 to 128
// bytes of printable UTF-8 and belongs to one process of the grid at a time: it fails with ErrService,
// and says whose the name is, when another process has it; one's own is given the
// new port. A job has 64 names at most. A name lasts until UnpublishName or the end
// of this process, also when daemons are started anew.
//
// What is published is no secret: broker and frontals see the port, and every
// process of the grid can look it up and connect. Hand the port's text over in
// another way where that is too many.
func (w *World) PublishName(ctx context.Context, service, port string) error {
	return w.aboutName("PublishName", service, w.guests.Publish(ctx, service, port))
}

// UnpublishName takes a name back that this process has published; ErrService if it
// has not (MPI_Unpublish_name; MPI-4.1, section 11.9.4).
func (w *World) UnpublishName(ctx context.Context, service string) error {
	return w.aboutName("UnpublishName", service, w.guests.Unpublish(ctx, service))
}

// LookupName returns the port that was published under a name; ErrName at once
// when there is none (MPI_Lookup_name; MPI-4.1, section 11.9.4). The error says so
// when the process that had published it has died.
func (w *World) LookupName(ctx context.Context, service string) (port string, err error) {
	port, err = w.guests.Lookup(ctx, service)
	return port, w.aboutName("LookupName", service, err)
}

// AwaitName is LookupName that waits until the name is published or ctx is done:
// then it fails with ErrName.
func (w *World) AwaitName(ctx context.Context, service string) (port string, err error) {
	port, err = w.guests.Await(ctx, service)
	return port, w.aboutName("AwaitName", service, err)
}

func (w *World) aboutName(call, service string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("mpilib: %s %.130q, rank %d of the world: %w", call, service, w.engine.Rank(), err)
}
