package stripe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

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
		t := pump(near.Conn, far.Conn)
		err := warm(ctx, near, carriers)
		r, err = t.measure(ctx, err)
		d := describe(near)
		r.carriers, r.proxies = d.carriers, d.proxies
		return errors.Join(err, t.end())
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

// traffic is a stream of bytes at full speed from one end of a connection to the other.
type traffic struct {
	near, far net.Conn
	got       atomic.Uint64
	moving    sync.WaitGroup
	ends      [2]error
}

// pump starts the traffic.
func pump(near, far net.Conn) *traffic {
	t := &traffic{near: near, far: far}
	t.moving.Go(func() {
		buf := make([]byte, 1<<20)
		for t.ends[0] == nil {
			_, t.ends[0] = near.Write(buf)
		}
	})
	t.moving.Go(func() {
		buf := make([]byte, 1<<20)
		for t.ends[1] == nil {
			var n int
			n, t.ends[1] = far.Read(buf)
			t.got.Add(uint64(n))
		}
	})
	return t
}

// measure returns what arrives during a turn, unless failed is an error.
func (t *traffic) measure(ctx context.Context, failed error) (result, error) {
	before, start := t.got.Load(), time.Now()
	err := errors.Join(failed, pause(ctx, measuring))
	return result{rate: mbit(t.got.Load()-before, time.Since(start))}, err
}

func mbit(bytes uint64, in time.Duration) float64 { return float64(bytes) * 8 / 1e6 / in.Seconds() }

// end ends the traffic, and returns the error that ended it before.
func (t *traffic) end() (err error) {
	t.near.Close()
	t.far.Close()
	t.moving.Wait()
	for _, end := range t.ends {
		if !errors.Is(end, net.ErrClosed) && !errors.Is(end, io.EOF) && !errors.Is(end, syscall.ECONNRESET) && !errors.Is(end, syscall.EPIPE) {
			err = errors.Join(err, end)
		}
	}
	return err
}

// warm waits until a link has its carriers and its speed.
func warm(ctx context.Context, l *link.Link, carriers int) error {
	if carriers != own {
		for start := time.Now(); describe(l).carriers != carriers; {
			if time.Since(start) > joining {
				return fmt.Errorf("waited %v for a link of %d carriers; it has %d", joining, carriers, describe(l).carriers)
			}
			if err := pause(ctx, 50*time.Millisecond); err != nil {
				return err
			}
		}
		if carriers > 1 {
			return pause(ctx, 2*warming) // the window grows with them
		}
		return pause(ctx, warming)
	}
	last, since := 0, time.Now()
	for start := since; time.Since(start) < choosing && time.Since(since) < calm; {
		if n := describe(l).carriers; n != last {
			last, since = n, time.Now()
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
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

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
