package connhelper

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/nat/punch"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// delivery hands connected sockets to the processes of this node.
type delivery struct {
	*common
	crypt *encryption
	seq   atomic.Uint64 // numbers carriers
	dials dials         // counters for metrics
}

// answerDial sends the process the outcome of a request.
func (d *delivery) answerDial(p *process, f *wire.LocalDial, m readyConn, err error) {
	if err != nil && f.Ways == overlay.Reserved { // tried in parallel to others, whether there is a reserve or not
		p.fail(f.Request, err)
		return
	}
	d.dials.dialled(m.path.Technique, m.path.Setup, err)
	if err != nil {
		d.log.Info("not connected", "from", p.name.String(), "to", f.Rank, "error", err)
		p.fail(f.Request, err)
		return
	}
	id := d.seq.Add(1)
	if m.settle != nil {
		p.mu.Lock()
		p.open.add(id, m.settle) // before the answer, which its outcome may follow at once
		p.mu.Unlock()
	}
	err = p.conn.Send(&wire.LocalDialled{Request: f.Request, Carrier: id, Seal: d.crypt.seal(m.path), Idle: d.site.idle(m.path), Path: p.readable(m.path)}, m.conn)
	m.conn.Close()
	if m.handed != nil {
		m.handed(p, id, err)
	}
	if err == nil {
		d.log.Info("connected", "from", p.name.String(), "to", f.Rank, "node", m.path.Peer.String(),
			"technique", m.path.String(), "setup", m.path.Setup.String(), "reason", m.path.Reason)
		d.audit.connected(p, f.Rank, m.path)
	}
}

// deliver hands a connection that another process opened to p. It closes the helper's copy in
// either case.
func (d *delivery) deliver(p *process, c socket, path overlay.Path) error {
	defer c.Close()
	<-p.ready // takes at most registerWait
	d.dials.accept(path.Technique)
	return p.conn.Send(&wire.LocalIncoming{Carrier: d.seq.Add(1), Seal: d.crypt.seal(path), Idle: d.site.idle(path), Path: p.readable(path)}, c)
}

// pair connects two processes of this node by a socket pair, one end each.
func (d *delivery) pair(p, q *process) (readyConn, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return readyConn{}, err
	}
	err = d.deliver(q, theirs, overlay.Path{Peer: d.node, Reason: "the other process dialled"})
	if err != nil {
		ours.Close()
		return readyConn{}, fmt.Errorf("%v: %w: %w", q.name, overlay.ErrUnreachable, err)
	}
	return readyConn{conn: ours, path: overlay.Path{Peer: d.node, Reason: "both processes run on this node"}}, nil
}

// bridgeTimeout is how long the kernel tries to deliver what a process wrote on a connection that
// this helper bridges: by then the link itself has moved elsewhere.
const bridgeTimeout = 30 * time.Second

// socketFor returns a connection in a form that can be handed to a process. A kernel socket already is; for any
// other connection the process gets one end of a socket pair, and this helper copies for as long as
// the connection lives.
func (c *common) socketFor(from net.Conn) (socket, error) {
	if tcp, ok := from.(*net.TCPConn); ok {
		tune(tcp)
		return tcp, nil
	}
	if tcp := carrier.Socket(from); tcp != nil {
		carrier.Tune(tcp, carrier.Tuning{KeepAlive: keepAlive, UserTimeout: bridgeTimeout}) // best effort: the socket works untuned
	}
	ours, theirs, err := socketPair()
	if err != nil {
		from.Close()
		return nil, err
	}
	c.work.Go(func() {
		if err := punch.Bridge(c.life, from, ours); err != nil && !errors.Is(err, syscall.EPIPE) {
			c.log.Info("a bridged link ended", "peer", from.RemoteAddr().String(), "error", err)
		}
	})
	return theirs, nil
}
