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

// carry is one connection that the frontal dials for a node, or makes by
// meeting the other end.
//
//	Carry -> dialling --- dial failed ---> the call's error
//	            |
//	            v             the node shows the id
//	          waiting (the id is told) ------------> joined ---> over
//	            \--- nobody shows it in time ------> closed
//
// The node learns that a dial failed while it can still try another way. Who
// takes a waiting carry out of the table owes it a lanEnd; nobody else sends
// one.
type carry struct {
	link
	id    wire.ID
	addrs []netip.AddrPort
	lan   chan lanEnd   // buffered: the sender does not wait
	gone  chan struct{} // closed when the node does not want it any more; nil: nobody will say so
}

// lanEnd is the node's connection, which showed the id.
type lanEnd struct{ conn *net.TCPConn }

// answerMargin is what a caller keeps of its time to hear why a dial failed.
const answerMargin = 200 * time.Millisecond

// dialCarry dials what c asks for, within the caller's time less the margin.
func (f *Frontal) dialCarry(ctx context.Context, c *carry) (*net.TCPConn, error) {
	bound := f.config().Dial
	if deadline, ok := ctx.Deadline(); ok {
		bound = min(bound, max(time.Until(deadline)-answerMargin, 0))
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	defer context.AfterFunc(f.ctx, cancel)()
	return f.dialAny(ctx, c.addrs)
}

// runCarry sees one dialled carry to its end: joined, or not fetched in time.
func (f *Frontal) runCarry(c *carry, out net.Conn) {
	lan, err := f.awaitLAN(c)
	if err != nil {
		cut(out)
		f.logLink(c.link, "not carried", err)
		return
	}
	c.from, c.to = lan.RemoteAddr().String(), out.RemoteAddr().String()
	f.join(c.link, lan, out)
}

// awaitLAN waits for the node's connection, or says why it does not come.
func (f *Frontal) awaitLAN(c *carry) (*net.TCPConn, error) {
	over := time.NewTimer(f.bounds.carry)
	defer over.Stop()
	var err error
	select {
	case end := <-c.lan:
		return end.conn, nil
	case <-over.C:
		err = fmt.Errorf("%w: node %s did not fetch the connection within %v", overlay.ErrTimeout, c.node, f.bounds.carry)
	case <-c.gone:
		err = fmt.Errorf("%w: node %s gave the connection up before it fetched it", overlay.ErrStale, c.node)
	case <-f.ctx.Done():
		err = fmt.Errorf("%w: the frontal ended before node %s fetched the connection", overlay.ErrUnreachable, c.node)
	}
	f.mu.Lock()
	mine := f.carries.take(c.id) != nil
	f.mu.Unlock()
	if mine {
		return nil, err
	}
	return (<-c.lan).conn, nil // whoever took it is about to send
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
