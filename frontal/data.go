package frontal

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

// localDial bounds the way from the gateway to a node of the site.
const localDial = 5 * time.Second

// tuning of both sides of a carried link. The keepalive is shorter than the
// idle timeouts that firewalls are known for.
var tuning = carrier.Tuning{KeepAlive: 30 * time.Second}

// dataListener accepts one kind of data connection. handle owns the
// connection if it returns nil, and else says why it is refused.
type dataListener struct {
	*net.TCPListener
	handle func(context.Context, *net.TCPConn, *wire.Intro) error
	half   *accept.HalfOpen // connections whose first frame has not come
}

// serveData accepts until the frontal ends or the listener fails, and closes
// the listener. Connections go on after it, in the frontal's work.
func (f *Frontal) serveData(ln dataListener) error {
	defer ln.Close()
	defer context.AfterFunc(f.open, func() { ln.Close() })()
	err := accept.Each(f.open, f.log, ln.Addr(), ln.AcceptTCP, func(conn *net.TCPConn) {
		place, err := ln.half.Enter(conn)
		if err != nil {
			f.overload(conn, err)
			return
		}
		f.work.Go(func() { f.greet(conn, place, ln.handle) })
	})
	if err != nil {
		return fmt.Errorf("accepting data connections on %v: %w", ln.Addr(), err)
	}
	return nil
}

// overload turns a connection away without spending a goroutine on it. The
// words are lost if the other side has sent already; the end is not.
func (f *Frontal) overload(conn *net.TCPConn, err error) {
	conn.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
	conn.Write(f.refusal(err))
	conn.Close()
}

// greet reads the first frame of a connection and hands the connection on, or
// refuses it.
func (f *Frontal) greet(conn *net.TCPConn, place *limit.Place[accept.Source], handle func(context.Context, *net.TCPConn, *wire.Intro) error) {
	intro, err := f.readIntro(conn)
	if !place.Leave() {
		return // it was closed to make room for another source
	}
	if err == nil {
		err = handle(f.ctx, conn, intro)
		if err != nil && f.passOn(conn, wire.Append(nil, intro)) == nil {
			return // a predecessor knows, or refuses it
		}
	}
	if err == nil {
		return
	}
	f.turnAway(conn, err)
}

func (f *Frontal) turnAway(conn *net.TCPConn, err error) {
	f.log.Warn("data connection refused", "from", conn.RemoteAddr().String(), "error", err)
	f.auditRefusal(conn.RemoteAddr().String(), "data-"+wire.CodeOf(err).String(), err)
	f.mu.Lock()
	f.links.refused++
	f.mu.Unlock()
	f.refuse(conn, err)
}

func (f *Frontal) readIntro(conn *net.TCPConn) (*wire.Intro, error) {
	defer context.AfterFunc(f.ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	conn.SetReadDeadline(time.Now().Add(f.bounds.intro))
	frame, err := wire.Read(conn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, fmt.Errorf("%w: no intro came within %v", overlay.ErrTimeout, f.bounds.intro)
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

// fromOutside brings a connection from another site to the process or to the
// waiting asker that it names.
func (f *Frontal) fromOutside(ctx context.Context, conn *net.TCPConn, intro *wire.Intro) error {
	point, err := f.pointFor(intro)
	if err != nil {
		return err
	}
	inner, err := f.reachProcess(ctx, point, intro)
	if err != nil {
		return err
	}
	l := link{
		kind: "inbound", job: point.Process.Job, principal: f.serves(point.Process), ranks: []uint32{point.Process.Rank}, node: point.Node.Name,
		peer: intro.From.String(), from: conn.RemoteAddr().String(), to: point.Local.String(),
	}
	if intro.Kind == wire.IntroReverse {
		l.kind, l.ranks = "reversed", append(l.ranks, intro.Rank)
	}
	f.join(l, inner, conn)
	return nil
}

// pointFor finds the process that an intro from outside is for.
func (f *Frontal) pointFor(intro *wire.Intro) (overlay.AccessPoint, error) {
	name := overlay.ProcessName{Job: intro.Job, Rank: intro.Rank}
	switch intro.Kind {
	case wire.IntroProcess:
	case wire.IntroReverse:
		f.mu.Lock()
		asker, ok := f.returns.find(intro.ID, time.Now())
		f.mu.Unlock()
		if !ok || asker.Job != intro.Job {
			return overlay.AccessPoint{}, fmt.Errorf("%w: unknown connect-id, or its introduction is over", overlay.ErrForbidden)
		}
		name = asker
	default:
		return overlay.AccessPoint{}, fmt.Errorf("%w: carry-ids count only inside the site", overlay.ErrForbidden)
	}
	point, ok := f.registry.Point(name)
	if !ok {
		return overlay.AccessPoint{}, fmt.Errorf("%w: %v is not at %s", overlay.ErrUnknownProcess, name, f.site)
	}
	if !point.Local.IsValid() {
		return point, fmt.Errorf("%w: the helper of %v listens nowhere", overlay.ErrUnreachable, name)
	}
	return point, nil
}

func (f *Frontal) refusal(err error) []byte {
	return wire.Append(nil, &wire.Refuse{Code: wire.CodeOf(err), By: f.who, Text: err.Error()})
}

// refuse tells the other end why it is not served, and waits a little for it
// to hang up: closing with unread input would reset the connection, and the
// words would be lost.
func (f *Frontal) refuse(conn *net.TCPConn, err error) {
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(f.bounds.refuse))
	defer context.AfterFunc(f.ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	if _, err := conn.Write(f.refusal(err)); err != nil {
		return
	}
	conn.CloseWrite()
	io.Copy(io.Discard, io.LimitReader(conn, 1<<20))
}
