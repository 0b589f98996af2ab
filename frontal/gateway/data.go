package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/limit"
	"github.com/isthmus-grid/isthmus/internal/limit/accept"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// localDial bounds a dial from the gateway to a node of the site.
const localDial = 5 * time.Second

// tuning applies to both sides of a carried link. The keepalive time is shorter than the known idle
// timeouts of firewalls.
var tuning = carrier.Tuning{KeepAlive: 30 * time.Second}

// serve accepts connections until the frontal ends or the listener fails, and closes the listener.
// Accepted connections continue after it, as part of the frontal's work. half has those whose first
// frame is pending.
func (g *Gateway) serve(ln *net.TCPListener, handle handler, half *accept.HalfOpen) error {
	defer ln.Close()
	defer context.AfterFunc(g.open, func() { ln.Close() })()
	err := accept.Each(g.open, g.log, ln.Addr(), ln.AcceptTCP, func(conn *net.TCPConn) {
		place, err := half.Enter(conn)
		if err != nil {
			g.overload(conn, err)
			return
		}
		g.work.Go(func() { g.serveIntro(conn, place, handle) })
	})
	if err != nil {
		return fmt.Errorf("accepting data connections on %v: %w", ln.Addr(), err)
	}
	return nil
}

// overload refuses a connection without starting a goroutine. The error text is lost if the peer
// has already sent data; the close is not.
func (g *Gateway) overload(conn *net.TCPConn, err error) {
	conn.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
	conn.Write(g.refusal(err))
	conn.Close()
}

// serveIntro reads the first frame of a connection and passes the connection on, or refuses it.
func (g *Gateway) serveIntro(conn *net.TCPConn, place *limit.Place[accept.Source], handle handler) {
	intro, err := g.readIntro(conn)
	if !place.Leave() {
		return // it was closed to make room for another source
	}
	if err == nil {
		err = handle(g.ctx, conn, intro)
		if err != nil && g.PassOn(conn, wire.Append(nil, intro)) == nil {
			return // a predecessor knows it, or refuses it
		}
	}
	if err == nil {
		return
	}
	g.refuseAndLog(conn, err)
}

func (g *Gateway) refuseAndLog(conn *net.TCPConn, err error) {
	g.log.Warn("data connection refused", "from", conn.RemoteAddr().String(), "error", err)
	g.auditRefusal(conn.RemoteAddr().String(), "data-"+wire.CodeOf(err).String(), err)
	g.mu.Lock()
	g.links.refused++
	g.mu.Unlock()
	g.refuse(conn, err)
}

func (g *Gateway) readIntro(conn *net.TCPConn) (*wire.Intro, error) {
	defer context.AfterFunc(g.ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	conn.SetReadDeadline(time.Now().Add(g.Bounds.Intro))
	frame, err := wire.Read(conn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, fmt.Errorf("%w: no intro arrived within %v", overlay.ErrTimeout, g.Bounds.Intro)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the intro: %w", err)
	}
	intro, ok := frame.(*wire.Intro)
	if !ok {
		return nil, fmt.Errorf("%w: a %v in place of an intro", wire.ErrType, frame.Type())
	}
	conn.SetReadDeadline(time.Time{})
	return intro, nil
}

// fromOutside passes a connection from another site to the process or the waiting asker that it
// names.
func (g *Gateway) fromOutside(ctx context.Context, conn *net.TCPConn, intro *wire.Intro) error {
	point, err := g.pointFor(intro)
	if err != nil {
		return err
	}
	inner, err := g.reachProcess(ctx, point, intro)
	if err != nil {
		return err
	}
	l := forwardedLink{
		kind: "inbound", job: point.Process.Job, principal: g.registry.Principal(point.Process), ranks: []uint32{point.Process.Rank}, node: point.Node.Name,
		peer: intro.From.String(), from: conn.RemoteAddr().String(), to: point.Local.String(),
	}
	if intro.Kind == wire.IntroReverse {
		l.kind, l.ranks = "reversed", append(l.ranks, intro.Rank)
	}
	g.carryBetween(l, inner, conn)
	return nil
}

// pointFor finds the process that an intro from outside is for.
func (g *Gateway) pointFor(intro *wire.Intro) (overlay.AccessPoint, error) {
	name := overlay.ProcessName{Job: intro.Job, Rank: intro.Rank}
	switch intro.Kind {
	case wire.IntroProcess:
	case wire.IntroReverse:
		g.mu.Lock()
		asker, ok := g.returns.find(intro.ID, time.Now())
		g.mu.Unlock()
		if !ok || asker.Job != intro.Job {
			return overlay.AccessPoint{}, fmt.Errorf("%w: unknown connect-id, or its signalling request is over", overlay.ErrForbidden)
		}
		name = asker
	default:
		return overlay.AccessPoint{}, fmt.Errorf("%w: carry-ids count only inside the site", overlay.ErrForbidden)
	}
	point, ok := g.registry.Point(name)
	if !ok {
		return overlay.AccessPoint{}, fmt.Errorf("%w: %v is not at %s", overlay.ErrUnknownProcess, name, g.site)
	}
	if !point.Local.IsValid() {
		return point, fmt.Errorf("%w: the helper of %v listens nowhere", overlay.ErrUnreachable, name)
	}
	return point, nil
}

func (g *Gateway) refusal(err error) []byte {
	return wire.Append(nil, &wire.Refuse{Code: wire.CodeOf(err), By: g.who, Text: err.Error()})
}

// refuse sends the reason to the peer, and waits briefly for it to close: closing with unread input
// would reset the connection, and the text would be lost.
func (g *Gateway) refuse(conn *net.TCPConn, err error) {
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(g.Bounds.Refuse))
	defer context.AfterFunc(g.ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	if _, err := conn.Write(g.refusal(err)); err != nil {
		return
	}
	conn.CloseWrite()
	io.Copy(io.Discard, io.LimitReader(conn, 1<<20))
}
