package mpilib

import (
	"context"
	"errors"
	"fmt"

	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/overlay"
)

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
	_, err := parsePort(port)
	if err == nil {
		err = w.askNames(ctx, func(ctx context.Context, n overlay.Names) error { return n.Publish(ctx, service, port) })
	}
	if errors.Is(err, overlay.ErrNameTaken) {
		err = fmt.Errorf("%w: %w", ErrService, err)
	}
	return w.aboutName("PublishName", service, err)
}

// UnpublishName takes a name back that this process has published; ErrService if it
// has not (MPI_Unpublish_name; MPI-4.1, section 11.9.4).
func (w *World) UnpublishName(ctx context.Context, service string) error {
	err := w.askNames(ctx, func(ctx context.Context, n overlay.Names) error { return n.Unpublish(ctx, service) })
	if errors.Is(err, overlay.ErrUnknownName) {
		err = fmt.Errorf("%w: %w", ErrService, err)
	}
	return w.aboutName("UnpublishName", service, err)
}

// LookupName returns the port that was published under a name; ErrName at once
// when there is none (MPI_Lookup_name; MPI-4.1, section 11.9.4). The error says so
// when the process that had published it has died.
func (w *World) LookupName(ctx context.Context, service string) (port string, err error) {
	err = w.askNames(ctx, func(ctx context.Context, n overlay.Names) error {
		port, err = n.LookupName(ctx, service, false)
		return err
	})
	return port, w.aboutName("LookupName", service, unpublished(err))
}

// AwaitName is LookupName that waits until the name is published or ctx is done:
// then it fails with ErrName.
func (w *World) AwaitName(ctx context.Context, service string) (port string, err error) {
	n, err := w.names(ctx)
	if err == nil {
		port, err = n.LookupName(ctx, service, true)
	}
	return port, w.aboutName("AwaitName", service, unpublished(err))
}

func unpublished(err error) error {
	if errors.Is(err, overlay.ErrUnknownName) {
		return fmt.Errorf("%w: %w", ErrName, err)
	}
	return err
}

func (w *World) aboutName(call, service string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("mpilib: %s %.130q, rank %d of the world: %w", call, service, w.engine.Rank(), err)
}

// askNames does something with names within the time for reaching anybody.
func (w *World) askNames(ctx context.Context, do func(context.Context, overlay.Names) error) error {
	ctx, cancel := context.WithTimeout(ctx, w.config.connectTimeout)
	defer cancel()
	n, err := w.names(ctx)
	if err != nil {
		return err
	}
	return do(ctx, n)
}

// names returns what knows of names: the connector, or for a world of one, which
// has none, one that is made for it.
func (w *World) names(ctx context.Context) (overlay.Names, error) {
	if n, ok := w.connector.(overlay.Names); ok {
		return n, nil
	}
	if w.connector != nil {
		return nil, fmt.Errorf("%w: the connector that this world was given knows nothing of names", ErrEnv)
	}
	w.guests.mu.Lock()
	d := w.guests.names
	w.guests.mu.Unlock()
	if d == nil {
		var err error
		if d, err = w.openNames(ctx); err != nil {
			return nil, err
		}
	}
	return d.names, nil
}

// openNames has the helper know a world of one.
func (w *World) openNames(ctx context.Context) (*directory, error) {
	key := w.config.place.key
	if key.Name == "" {
		var err error
		if key, err = jobkey.New("alone"); err != nil {
			return nil, err
		}
	}
	life, stop := context.WithCancel(context.Background())
	d := &directory{stop: stop}
	o, err := w.open(ctx, life, &d.serving, 0, key, nil)
	if err != nil {
		stop()
		d.serving.Wait()
		return nil, err
	}
	d.connector = o.connector
	known := false
	d.names, known = d.connector.(overlay.Names)
	w.guests.mu.Lock()
	first := w.guests.names == nil && !w.guests.ended
	if first && known {
		w.guests.names = d
	}
	other := w.guests.names
	w.guests.mu.Unlock()
	switch {
	case !known:
		d.close()
		return nil, fmt.Errorf("%w: this world's connector knows nothing of names", ErrEnv)
	case first:
		return d, nil
	}
	d.close() // another call was quicker, or the world has ended
	if other == nil {
		return nil, ErrFinalized
	}
	return other, nil
}
