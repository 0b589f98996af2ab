package matrix

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/lab/probe"
	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/overlay"
)

const (
	measurePatience = 3 * time.Minute  // for all sites of a lab
	movePatience    = 10 * time.Second // for a link to leave the relay where there is a direct path
)

// awaitMeasured waits for the sites of a measured run.
func (w *world) awaitMeasured(ctx context.Context) error {
	if !w.Measured {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, measurePatience, fmt.Errorf("not done after %v", measurePatience))
	defer cancel()
	return w.grid.AwaitMeasured(ctx)
}

// end is a rank with the mesh of one link.
type end struct {
	*probe.Rank
	mesh  *link.Mesh
	links chan *link.Link
}

// join makes a rank at a node whose mesh serves until leave is called.
func (w *world) join(ctx context.Context, node string, key jobkey.Key, rank uint32) (e end, leave func(), err error) {
	e.links = make(chan *link.Link, 1)
	if e.Rank, err = probe.Join(ctx, w.grid, node, key, rank); err != nil {
		return e, nil, err
	}
	e.mesh = link.NewMesh(link.Config{Self: e.Identity, Size: 2, Connector: e.Connector(), Up: func(l *link.Link) { e.links <- l }})
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var serving sync.WaitGroup
	serving.Go(func() { e.mesh.Serve(ctx) })
	return e, func() {
		cancel()
		serving.Wait()
		e.Leave()
	}, nil
}

// link returns the end's only link.
func (e end) link(ctx context.Context) (*link.Link, error) {
	select {
	case l := <-e.links:
		return l, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// meet links processes of a new job at the two sites in the way of ordinary processes, sends data
// in both directions, and waits for the link to find its best path.
func (w *world) meet(ctx context.Context, c *Cell, key jobkey.Key) error {
	asker, leave, err := w.join(ctx, askerSite(c.From)+"/n1", key, 0)
	if err != nil {
		return err
	}
	defer leave()
	target, leave, err := w.join(ctx, targetSite(c.To)+"/n1", key, 1)
	if err != nil {
		return err
	}
	defer leave()
	start := time.Now()
	if err := asker.mesh.Connect(ctx, 1); err != nil {
		return err
	}
	c.SetupMS = ms(time.Since(start))
	near, err := asker.link(ctx)
	if err != nil {
		return err
	}
	defer near.Conn.Close()
	far, err := target.link(ctx)
	if err != nil {
		return fmt.Errorf("the dialler was linked, the other end: %w", err)
	}
	defer far.Conn.Close()
	if err := first(ctx, near, far); err != nil {
		return fmt.Errorf("linked by %v, then: %w", near.Path, err)
	}
	c.FirstMS, c.First = ms(time.Since(start)), technique(near)
	if err := probe.Exchange(ctx, near, far, volume); err != nil {
		return fmt.Errorf("linked by %v, then: %w", near.Path, err)
	}
	if c.DirectPossible {
		awaitDirect(ctx, near)
	}
	c.Technique, c.Connected = technique(near), true
	return nil
}

// first sends a byte and waits until it is read.
func first(ctx context.Context, near, far *link.Link) error {
	defer context.AfterFunc(ctx, func() { far.Conn.SetDeadline(time.Unix(1, 0)) })()
	if _, err := near.Conn.Write([]byte{1}); err != nil {
		return near.Explain(err)
	}
	if _, err := far.Conn.Read(make([]byte, 1)); err != nil {
		return far.Explain(err)
	}
	return nil
}

// awaitDirect waits, for a limited time, for the link to be without a relay.
func awaitDirect(ctx context.Context, l *link.Link) {
	ctx, cancel := context.WithTimeout(ctx, movePatience)
	defer cancel()
	for technique(l) == overlay.Relay.String() {
		select {
		case <-ctx.Done():
			return
		case <-time.After(20 * time.Millisecond): // a link does not announce its moves
		}
	}
}

func technique(l *link.Link) string {
	path, _ := l.Current()
	return path.Technique.String()
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
