package stripebench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/overlay"
)

// rank is one of the two processes of a job.
type rank struct {
	self      link.Identity
	connector overlay.Connector
}

// joining bounds how long a link and its carriers take to come.
const joining = 30 * time.Second

// flow links two ranks by a number of carriers and sends from the first, which dials,
// to the second.
func flow(ctx context.Context, from, to rank, carriers int) (r result, err error) {
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
		return r, err
	}
	near := <-links[0]
	select {
	case far := <-links[1]:
		return pump(ctx, near, far, carriers)
	case <-meeting.Done():
		return r, errors.New("the other rank did not get the link")
	}
}

// pump sends for as long as a turn takes, and measures.
func pump(ctx context.Context, near, far *link.Link, carriers int) (r result, err error) {
	var got atomic.Uint64
	var moving sync.WaitGroup
	ends := make([]error, 2)
	moving.Go(func() {
		buf := make([]byte, 1<<20)
		for ends[0] == nil {
			_, ends[0] = near.Conn.Write(buf)
		}
	})
	moving.Go(func() {
		buf := make([]byte, 1<<20)
		for ends[1] == nil {
			var n int
			n, ends[1] = far.Conn.Read(buf)
			got.Add(uint64(n))
		}
	})
	err = warm(ctx, near, carriers)
	before, start := got.Load(), time.Now()
	err = errors.Join(err, pause(ctx, measuring))
	r = describe(near)
	r.rate = float64(got.Load()-before) * 8 / 1e6 / time.Since(start).Seconds()
	near.Conn.Close()
	far.Conn.Close()
	moving.Wait()
	for _, end := range ends {
		if !errors.Is(end, net.ErrClosed) && !errors.Is(end, io.EOF) {
			err = errors.Join(err, end)
		}
	}
	return r, err
}

// warm waits until a link has the carriers that it is to have, and its speed.
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
