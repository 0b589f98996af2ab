package frontal

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// carry is one connection that the frontal dials for a node.
//
//	Carry -> dialling ----------------> dialled
//	            |  the node shows the id   |
//	            v                          v
//	         waiting --- dialled --->   joined ---> over
//	            \----- dial failed ---> refused
//
// Who takes it out of the table owes it a lanEnd; nobody else sends one.
type carry struct {
	link
	id    wire.ID
	addrs []netip.AddrPort
	lan   chan lanEnd // buffered: the sender does not wait
}

// lanEnd is the node's connection, which showed the id.
type lanEnd struct{ conn *net.TCPConn }

type dialled struct {
	conn *net.TCPConn
	err  error
}

// runCarry sees one carry to its end: joined, refused or not fetched in time.
func (f *Frontal) runCarry(c *carry) {
	ctx, cancel := context.WithTimeout(f.ctx, f.cfg.Dial)
	defer cancel()
	result := make(chan dialled, 1)
	f.work.Go(func() {
		conn, err := f.dialAny(ctx, c.addrs)
		result <- dialled{conn, err}
	})
	lan := f.awaitLAN(c)
	if lan == nil {
		cancel()
	}
	d := <-result // within the dial's bound
	switch {
	case lan == nil && d.conn != nil:
		d.conn.Close()
	case lan == nil:
	case d.err != nil:
		f.refuse(lan, d.err)
	default:
		c.from, c.to = lan.RemoteAddr().String(), d.conn.RemoteAddr().String()
		f.join(c.link, lan, d.conn)
		return
	}
	if d.err == nil || lan == nil {
		d.err = fmt.Errorf("%w: node %s did not fetch the connection within %v", overlay.ErrTimeout, c.node, f.bounds.carry)
	}
	f.logLink(c.link, "not carried", d.err)
}

// awaitLAN waits for the node's connection; nil if it did not come in time.
func (f *Frontal) awaitLAN(c *carry) *net.TCPConn {
	over := time.NewTimer(f.bounds.carry)
	defer over.Stop()
	select {
	case end := <-c.lan:
		return end.conn
	case <-over.C:
	case <-f.ctx.Done():
	}
	f.mu.Lock()
	mine := f.carries.take(c.id) != nil
	f.mu.Unlock()
	if mine {
		return nil
	}
	return (<-c.lan).conn // whoever took it is about to send
}

// dialAny tries the addresses in order, each with an equal share of the time
// that is left.
func (f *Frontal) dialAny(ctx context.Context, addrs []netip.AddrPort) (*net.TCPConn, error) {
	deadline, _ := ctx.Deadline()
	var errs []error
	for i, addr := range addrs {
		share := time.Until(deadline) / time.Duration(len(addrs)-i)
		try, cancel := context.WithTimeout(ctx, share)
		conn, err := f.dial(try, addr.String())
		cancel()
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// fromNode hands a node's connection to the carry whose id it shows.
func (f *Frontal) fromNode(_ context.Context, conn *net.TCPConn, intro *wire.Intro) error {
	if intro.Kind != wire.IntroCarry {
		return fmt.Errorf("%w: this is the port for a node's own data, which shows a carry-id", overlay.ErrRefused)
	}
	f.mu.Lock()
	c := f.carries.take(intro.ID)
	f.mu.Unlock()
	if c == nil {
		return fmt.Errorf("%w: unknown carry-id; it works once, for %v", overlay.ErrForbidden, f.bounds.carry)
	}
	c.lan <- lanEnd{conn}
	return nil
}
