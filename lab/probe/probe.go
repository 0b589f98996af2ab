// Package probe adds ranks of a job to a running grid without a process each: this process
// registers with the helpers as a rank would, dials, accepts and authenticates. Daemons, sockets
// and firewalls are real; only the program is omitted, so that a connection can be examined by
// itself. The package is for measurements and tests; user programs do not need it.
//
// It knows the grid's sockets and the link's handshake, but not why a technique was taken. Its
// state is the Rank values.
package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/ipc/local"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// Rank is a rank that lives in this process. Its methods are safe for
// concurrent use.
type Rank struct {
	Identity link.Identity
	Node     overlay.NodeID
	client   *local.Client
	leave    context.CancelFunc
	served   sync.WaitGroup
}

// Join registers a rank with the helper of a node, "site/node", and returns when the helper has
// welcomed it. The caller must call Leave.
func Join(ctx context.Context, g *grid.Grid, node string, key jobkey.Key, rank uint32) (*Rank, error) {
	return JoinFor(ctx, g, node, key, rank, nil)
}

// JoinFor is Join for a rank that works for the signer of the grant; nil is none.
func JoinFor(ctx context.Context, g *grid.Grid, node string, key jobkey.Key, rank uint32, grant []byte) (*Rank, error) {
	name := overlay.ProcessName{Job: key.ID(), Rank: rank}
	r := &Rank{client: local.NewClient(local.ClientConfig{Socket: g.Socket(node), Process: name, Auth: key.Auth(), Grant: grant})}
	life, leave := context.WithCancel(context.WithoutCancel(ctx))
	r.leave = leave
	r.served.Go(func() { r.client.Serve(life) })
	var err error
	if r.Node, err = r.client.Ready(ctx); err != nil {
		r.Leave()
		return nil, fmt.Errorf("%v at %s: %w", name, node, err)
	}
	r.Identity = link.NewIdentity(key, rank, r.client.Generation())
	return r, nil
}

// Connector returns the rank's connector, for a mesh of the caller's instead of Dial and Accept. It
// belongs to the rank.
func (r *Rank) Connector() overlay.Connector { return r.client }

// Leave removes the rank from the grid.
func (r *Rank) Leave() {
	r.client.Close()
	r.leave()
	r.served.Wait()
}

// Dial links this rank to another of its job. connected is when it held the connection; the rest of
// the time is the handshake.
func (r *Rank) Dial(ctx context.Context, peer uint32) (l *link.Link, connected time.Time, err error) {
	name := overlay.ProcessName{Job: r.Identity.Process.Job, Rank: peer}
	c, err := r.client.Dial(ctx, name, overlay.AllWays)
	connected = time.Now()
	if err != nil {
		return nil, connected, err
	}
	l, err = link.Establish(ctx, c, r.Identity, &name, welcome)
	return l, connected, err
}

// Times are the durations at the dialler of a pair.
type Times struct {
	Connected time.Duration // until it held a connection
	Linked    time.Duration // until both ends had authenticated
}

// Accept links this rank to the next one that dials it. A dialler may try several techniques at
// once and keep one, so incoming carriers shake hands concurrently; the first that becomes a link
// counts, and the others are closed.
func (r *Rank) Accept(ctx context.Context) (*link.Link, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		l   *link.Link
		err error
	}
	results := make(chan result)
	var shaking sync.WaitGroup
	defer shaking.Wait()
	defer cancel()
	report := func(l *link.Link, err error) {
		select {
		case results <- result{l, err}:
		case <-ctx.Done():
			if l != nil {
				l.Conn.Close()
			}
		}
	}
	shaking.Go(func() {
		for {
			c, err := r.client.Accept(ctx)
			if err != nil {
				report(nil, err)
				return
			}
			shaking.Go(func() {
				if l, err := link.Establish(ctx, c, r.Identity, nil, welcome); err == nil {
					report(l, nil)
				}
			})
		}
	})
	select {
	case got := <-results:
		return got.l, got.err
	case <-ctx.Done(): // then no goroutine needs to report any more
		return nil, context.Cause(ctx)
	}
}

// Pair links two ranks, the first dialling, and returns both ends and how long
// the dialler took.
func Pair(ctx context.Context, from, to *Rank) (near, far *link.Link, took time.Duration, err error) {
	near, far, times, err := PairTimed(ctx, from, to)
	return near, far, times.Linked, err
}

// PairTimed is Pair, and returns how the time was spent.
func PairTimed(ctx context.Context, from, to *Rank) (near, far *link.Link, took Times, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var accepting sync.WaitGroup
	var farErr error
	accepting.Go(func() { far, farErr = to.Accept(ctx) })
	start := time.Now()
	near, connected, err := from.Dial(ctx, to.Identity.Process.Rank)
	took = Times{connected.Sub(start), time.Since(start)}
	if err != nil {
		cancel() // no rank will dial
	}
	accepting.Wait()
	if err != nil {
		if far != nil {
			far.Conn.Close()
		}
		return nil, nil, took, err
	}
	if farErr != nil {
		near.Conn.Close()
		return nil, nil, took, fmt.Errorf("the dialler was linked, the other end: %w", farErr)
	}
	return near, far, took, nil
}

// Exchange sends n random bytes in each direction at once over a link and checks that they arrive
// unchanged.
func Exchange(ctx context.Context, near, far *link.Link, n int) error {
	defer context.AfterFunc(ctx, func() {
		near.Conn.SetDeadline(time.Unix(1, 0))
		far.Conn.SetDeadline(time.Unix(1, 0))
	})()
	var both sync.WaitGroup
	errs := make([]error, 4)
	for i, d := range []struct{ from, to *link.Link }{{near, far}, {far, near}} {
		sent := make([]byte, n)
		source := rand.NewChaCha8([32]byte{byte(i)})
		source.Read(sent)
		both.Go(func() { _, errs[2*i] = d.from.Conn.Write(sent) })
		both.Go(func() {
			got := make([]byte, n)
			if _, err := io.ReadFull(d.to.Conn, got); err != nil {
				errs[2*i+1] = d.to.Explain(err)
			} else if !bytes.Equal(got, sent) {
				errs[2*i+1] = fmt.Errorf("%d bytes arrived changed", n)
			}
		})
	}
	both.Wait()
	return errors.Join(errs...)
}

// welcome admits every authenticated peer.
func welcome(*wire.Hello) error { return nil }
