package stripe

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/bench/runner"
	"github.com/isthmus-grid/isthmus/internal/sleep"
	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/overlay"
)

// rank is one of the two processes of a job.
type rank struct {
	self      link.Identity
	connector overlay.Connector
}

// joining is the timeout for a link and its carriers.
const joining = 30 * time.Second

// flow links two ranks by a number of carriers and sends from the first, which dials,
// to the second.
func flow(ctx context.Context, from, to rank, carriers int) (r result, err error) {
	err = linked(ctx, from, to, carriers, func(ctx context.Context, near, far *link.Link) error {
		t := runner.Pump(near.Conn, far.Conn, block)
		err := warm(ctx, near, carriers)
		r, err = arriving(ctx, t.Got, err)
		d := describe(near)
		r.carriers, r.proxies = d.carriers, d.proxies
		return errors.Join(err, t.End())
	})
	return r, err
}

// linked links two ranks by a number of carriers for as long as use takes.
func linked(ctx context.Context, from, to rank, carriers int, use func(ctx context.Context, near, far *link.Link) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var serving sync.WaitGroup
	defer serving.Wait()
	defer cancel()
	var links [2]chan *link.Link
	var meshes [2]*link.Mesh
	for i, k := range []rank{from, to} {
		links[i] = make(chan *link.Link, 1)
		meshes[i] = link.NewMesh(link.Config{
			Self: k.self, Size: 2, Connector: k.connector, Carriers: carriers,
			Up: func(l *link.Link) { links[i] <- l },
		})
		serving.Go(func() { meshes[i].Serve(ctx) })
	}
	meeting, done := context.WithTimeout(ctx, joining)
	defer done()
	if err := meshes[0].Connect(meeting, to.self.Process.Rank); err != nil {
		return err
	}
	near := <-links[0]
	select {
	case far := <-links[1]:
		return use(ctx, near, far)
	case <-meeting.Done():
		return errors.New("the other rank did not get the link")
	}
}

// block is the bytes that a call moves.
const block = 1 << 20

// arriving returns the rate at which received bytes grow during a run, unless failed is an error.
func arriving(ctx context.Context, got func() uint64, failed error) (result, error) {
	before, start := got(), time.Now()
	err := errors.Join(failed, sleep.For(ctx, measuring))
	return result{rate: runner.Mbit(got()-before, time.Since(start))}, err
}

// warm waits until a link has its carriers and its speed.
func warm(ctx context.Context, l *link.Link, carriers int) error {
	if carriers != own {
		for start := time.Now(); describe(l).carriers != carriers; {
			if time.Since(start) > joining {
				return fmt.Errorf("waited %v for a link of %d carriers; it has %d", joining, carriers, describe(l).carriers)
			}
			if err := sleep.For(ctx, 50*time.Millisecond); err != nil {
				return err
			}
		}
		if carriers > 1 {
			return sleep.For(ctx, 2*warming) // the window grows with them
		}
		return sleep.For(ctx, warming)
	}
	last, since := 0, time.Now()
	for start := since; time.Since(start) < choosing && time.Since(since) < calm; {
		if n := describe(l).carriers; n != last {
			last, since = n, time.Now()
		}
		if err := sleep.For(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

func describe(l *link.Link) (r result) {
	proxies := map[string]bool{}
	for _, c := range l.Carriers() {
		if c.Used {
			r.carriers++
			if c.Path.Proxy != "" {
				proxies[c.Path.Proxy] = true
			}
		}
	}
	r.proxies = len(proxies)
	return r
}
