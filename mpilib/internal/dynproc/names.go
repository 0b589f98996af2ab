package dynproc

import (
	"context"
	"errors"
	"fmt"

	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Publish publishes a port under a service name.
func (g *Connections) Publish(ctx context.Context, service, port string) error {
	_, err := ParsePort(port)
	if err == nil {
		err = g.askNames(ctx, func(ctx context.Context, n overlay.Names) error { return n.Publish(ctx, service, port) })
	}
	if errors.Is(err, overlay.ErrNameTaken) {
		err = fmt.Errorf("%w: %w", mpi.ErrService, err)
	}
	return err
}

// Unpublish withdraws a name that this process has published.
func (g *Connections) Unpublish(ctx context.Context, service string) error {
	err := g.askNames(ctx, func(ctx context.Context, n overlay.Names) error { return n.Unpublish(ctx, service) })
	if errors.Is(err, overlay.ErrUnknownName) {
		err = fmt.Errorf("%w: %w", mpi.ErrService, err)
	}
	return err
}

// Lookup returns the port that was published under a name.
func (g *Connections) Lookup(ctx context.Context, service string) (port string, err error) {
	err = g.askNames(ctx, func(ctx context.Context, n overlay.Names) error {
		port, err = n.LookupName(ctx, service, false)
		return err
	})
	return port, unpublished(err)
}

// Await is Lookup that waits until the name is published or ctx is done.
func (g *Connections) Await(ctx context.Context, service string) (port string, err error) {
	n, err := g.directoryOf(ctx)
	if err == nil {
		port, err = n.LookupName(ctx, service, true)
	}
	return port, unpublished(err)
}

func unpublished(err error) error {
	if errors.Is(err, overlay.ErrUnknownName) {
		return fmt.Errorf("%w: %w", mpi.ErrName, err)
	}
	return err
}

// askNames makes a call about names within the time for reaching a process.
func (g *Connections) askNames(ctx context.Context, do func(context.Context, overlay.Names) error) error {
	ctx, cancel := context.WithTimeout(ctx, g.cfg.Timeout)
	defer cancel()
	n, err := g.directoryOf(ctx)
	if err != nil {
		return err
	}
	return do(ctx, n)
}

// directoryOf returns the directory of names: the connector, or for a world of one, which has none,
// a connection opened for it.
func (g *Connections) directoryOf(ctx context.Context) (overlay.Names, error) {
	if n, ok := g.cfg.Connector().(overlay.Names); ok {
		return n, nil
	}
	if g.cfg.Connector() != nil {
		return nil, fmt.Errorf("%w: the connector that this world was given knows nothing of names", mpi.ErrEnv)
	}
	g.mu.Lock()
	d := g.names
	g.mu.Unlock()
	if d == nil {
		var err error
		if d, err = g.openNames(ctx); err != nil {
			return nil, err
		}
	}
	return d.names, nil
}

// openNames registers a world of one at the helper.
func (g *Connections) openNames(ctx context.Context) (*directory, error) {
	key := g.cfg.Reacher.Place.Key
	if key.Name == "" {
		var err error
		if key, err = jobkey.New("alone"); err != nil {
			return nil, err
		}
	}
	life, stop := context.WithCancel(context.Background())
	d := &directory{stop: stop}
	o, err := g.cfg.Reacher.Open(ctx, life, &d.serving, 0, key, nil)
	if err != nil {
		stop()
		d.serving.Wait()
		return nil, err
	}
	d.connector = o.Connector
	known := false
	d.names, known = d.connector.(overlay.Names)
	g.mu.Lock()
	first := g.names == nil && !g.ended
	if first && known {
		g.names = d
	}
	other := g.names
	g.mu.Unlock()
	switch {
	case !known:
		d.close()
		return nil, fmt.Errorf("%w: this world's connector knows nothing of names", mpi.ErrEnv)
	case first:
		return d, nil
	}
	d.close() // another call was faster, or the world has ended
	if other == nil {
		return nil, mpi.ErrFinalized
	}
	return other, nil
}
