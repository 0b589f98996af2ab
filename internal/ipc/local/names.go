package local

import (
	"context"
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

var (
	_ overlay.Names = (*Client)(nil)
	_ overlay.Names = (*Directory)(nil)
)

// lookupStep is the wait of one request for a name, when the caller has no deadline.
const lookupStep = 5 * time.Minute

// Publish implements overlay.Names. After the helper's death, the name is published again with the
// next one; if another process has taken it meanwhile, it remains that one's.
func (c *Client) Publish(ctx context.Context, name, port string) error {
	if err := (overlay.Publication{Name: name, Port: port, Process: c.cfg.Process}).Check(); err != nil {
		return fmt.Errorf("local.Publish: %w: %w", wire.ErrMalformed, err)
	}
	_, err := c.askName(ctx, func(request uint32) wire.Frame { return &wire.LocalPublish{Request: request, Name: name, Port: port} })
	if err != nil {
		return fmt.Errorf("local.Publish: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.names[name] = port
	return nil
}

// Unpublish implements overlay.Names.
func (c *Client) Unpublish(ctx context.Context, name string) error {
	if err := overlay.CheckServiceName(name); err != nil {
		return fmt.Errorf("local.Unpublish: %w: %w", wire.ErrMalformed, err)
	}
	c.mu.Lock()
	delete(c.names, name) // whatever the result: it is not published again
	c.mu.Unlock()
	_, err := c.askName(ctx, func(request uint32) wire.Frame { return &wire.LocalUnpublish{Request: request, Name: name} })
	if err != nil {
		return fmt.Errorf("local.Unpublish: %w", err)
	}
	return nil
}

// LookupName implements overlay.Names.
func (c *Client) LookupName(ctx context.Context, name string, wait bool) (string, error) {
	if err := overlay.CheckServiceName(name); err != nil {
		return "", fmt.Errorf("local.LookupName: %w: %w", wire.ErrMalformed, err)
	}
	for {
		port, err := c.askName(ctx, func(request uint32) wire.Frame {
			l := &wire.LocalLookup{Request: request, Name: name}
			if _, bounded := ctx.Deadline(); wait && bounded {
				l.Budget = budgetOf(ctx)
			} else if wait {
				l.Budget = lookupStep
			}
			return l
		})
		if _, bounded := ctx.Deadline(); err == nil || !wait || bounded || wire.CodeOf(err) != wire.CodeUnknownName || ctx.Err() != nil {
			if err != nil {
				err = fmt.Errorf("local.LookupName: %w", err)
			}
			return port, err
		}
	}
}

// askName asks one helper after the other, as they come and go.
func (c *Client) askName(ctx context.Context, frame func(request uint32) wire.Frame) (port string, err error) {
	for {
		conn, err := c.connected(ctx)
		if err != nil {
			return "", err
		}
		c.mu.Lock()
		named := c.named
		c.mu.Unlock()
		if !named {
			return "", fmt.Errorf("%w: helper %s is of an older version, which knows nothing of names; update it", wire.ErrVersion, c.cfg.Socket)
		}
		if r := c.put(ctx, conn, frame); !r.again || ctx.Err() != nil {
			if r.again {
				r.err = ctx.Err()
			}
			return r.port, r.err
		}
	}
}

// publishAgain returns the frames that publish the names of the process with a new helper. Their
// answers are ignored. The caller must hold mu.
func (c *Client) publishAgain() (frames []wire.Frame) {
	if !c.named {
		return nil
	}
	for name, port := range c.names {
		c.request++
		frames = append(frames, &wire.LocalPublish{Request: c.request, Again: true, Name: name, Port: port})
	}
	return frames
}

// errNoNames is the error of processes without a helper.
var errNoNames = fmt.Errorf("%w: names of other jobs need a helper, but this job has none; start it with --helper, or pass the port by other means",
	overlay.ErrUnreachable)

// Publish implements overlay.Names: it fails, because other jobs cannot access this one's
// directory.
func (d *Directory) Publish(context.Context, string, string) error {
	return fmt.Errorf("local.Publish: %w", errNoNames)
}

// Unpublish implements overlay.Names: it fails as Publish does.
func (d *Directory) Unpublish(context.Context, string) error {
	return fmt.Errorf("local.Unpublish: %w", errNoNames)
}

// LookupName implements overlay.Names: it fails as Publish does.
func (d *Directory) LookupName(context.Context, string, bool) (string, error) {
	return "", fmt.Errorf("local.LookupName: %w", errNoNames)
}
