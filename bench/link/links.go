package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/overlay"
)

// links are the links of a job of two ranks, as in mpilib: kept by a mesh, and resumed if the
// connection dies.
type links struct{ sealed bool }

func (c links) Name() string {
	if c.sealed {
		return nameLinkTLS
	}
	return nameLink
}

func (c links) Secured() bool { return c.sealed }

// benchKey is the key of the job, which both processes know.
var benchKey = jobkey.Key{Name: "bench"}

func (c links) Open(ctx context.Context, raw *net.TCPConn, dialled bool) (End, error) {
	var rank uint32
	if dialled {
		rank = 1
	}
	made := make(chan *link.Link, 1)
	e := &linkEnd{served: make(chan error, 1)}
	mesh := link.NewMesh(link.Config{
		Self: link.NewIdentity(benchKey, rank, 1), Size: 2,
		Connector: &onlyOne{carrier: overlay.Carrier{Conn: raw, Path: overlay.Path{Technique: overlay.Direct}, Seal: c.sealed}, dialled: dialled, taken: make(chan struct{})},
		Up:        func(l *link.Link) { made <- l },
	})
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	e.stop = stop
	go func() { e.served <- mesh.Serve(serving) }() // Close waits for it
	if dialled {
		if err := mesh.Connect(ctx, 0); err != nil {
			stop()
			return nil, errors.Join(err, <-e.served)
		}
	}
	select {
	case e.link = <-made:
		e.Conn = e.link.Conn
		return e, nil
	case <-ctx.Done():
		stop()
		return nil, errors.Join(context.Cause(ctx), <-e.served)
	}
}

// onlyOne is a connector with one connection, which exists already.
type onlyOne struct {
	carrier overlay.Carrier
	dialled bool          // this end dials: its Accept gives nothing out
	taken   chan struct{} // closed once it was given out
}

func (c *onlyOne) Dial(context.Context, overlay.ProcessName, overlay.Ways) (overlay.Carrier, error) {
	return c.take()
}

func (c *onlyOne) Accept(ctx context.Context) (overlay.Carrier, error) {
	if !c.dialled {
		if carrier, err := c.take(); err == nil {
			return carrier, nil
		}
	}
	<-ctx.Done()
	return overlay.Carrier{}, ctx.Err()
}

func (c *onlyOne) take() (overlay.Carrier, error) {
	select {
	case <-c.taken:
		return overlay.Carrier{}, fmt.Errorf("%w: there was only one connection", overlay.ErrUnreachable)
	default:
		close(c.taken)
		return c.carrier, nil
	}
}

func (c *onlyOne) Close() error { return nil }

// A lender is what a link's connection is besides; see stream.Stream.
type lender interface {
	Lend(bufs [][]byte) (n int64, mark uint64, err error)
	Await(mark uint64) error
}

// linkEnd is an End of a link. It sends large messages without a copy.
type linkEnd struct {
	link.Conn
	link   *link.Link
	mark   uint64
	one    [1][]byte
	stop   func()
	served chan error
}

func (e *linkEnd) Send(msg []byte) (err error) {
	e.one[0] = msg
	_, e.mark, err = e.Conn.(lender).Lend(e.one[:])
	return err
}

func (e *linkEnd) Flush() error             { return nil }
func (e *linkEnd) Settle() error            { return e.Conn.(lender).Await(e.mark) }
func (e *linkEnd) Receive(msg []byte) error { _, err := io.ReadFull(e.Conn, msg); return err }

func (e *linkEnd) Close() error {
	err := e.Conn.Close()
	select {
	case <-e.link.Done():
	case <-time.After(joinBound):
		err = errors.Join(err, errors.New("the link does not end"))
	}
	e.stop()
	return errors.Join(err, <-e.served)
}
