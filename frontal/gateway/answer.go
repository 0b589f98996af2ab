package gateway

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/nat/signalling"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// Answer is Signal for a process whose node cannot be the target's end itself. The error is for
// the asker.
func (g *Gateway) Answer(ctx context.Context, in *controlpb.Signal, point overlay.AccessPoint, send func(*controlpb.SignalEvent) error) error {
	if err := g.answer(ctx, in, point, send); err != nil {
		return g.attribute(err)
	}
	return nil
}

func (g *Gateway) answer(ctx context.Context, in *controlpb.Signal, point overlay.AccessPoint, send func(*controlpb.SignalEvent) error) error {
	if in.SmallPackets {
		ctx = carrier.WithSmallPackets(ctx)
	}
	asker, from, err := signalling.Peer(in, point.Process)
	if err != nil {
		return err
	}
	if !point.Local.IsValid() {
		return fmt.Errorf("%w: the helper of %v listens nowhere", overlay.ErrUnreachable, point.Process)
	}
	l := forwardedLink{
		kind: "traversal", technique: overlay.Technique(in.Technique), job: asker.Job, principal: g.registry.Principal(point.Process), ranks: []uint32{asker.Rank, point.Process.Rank},
		node: point.Node.Name, peer: from.String(), id: fmt.Sprintf("%x", in.Link),
	}
	connected, err := g.traverseFor(ctx, in, point, &l, send)
	if err != nil {
		g.traversals.failed.Add(1)
		g.logLink(l, "not carried", err)
		return err
	}
	return send(connected)
}

// traverseFor is the target's end of a coordinated traversal and brings the connection to the
// process. It returns the event for the end.
func (g *Gateway) traverseFor(ctx context.Context, in *controlpb.Signal, point overlay.AccessPoint, l *forwardedLink, send func(*controlpb.SignalEvent) error) (*controlpb.SignalEvent, error) {
	g.mu.Lock()
	err := g.links.room(l.node)
	g.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if err := g.spare(l.technique); err != nil {
		return nil, err
	}
	ctx, cancel := g.boundTraversal(ctx)
	defer cancel()
	leave, err := g.traversals.enter(ctx, l.node)
	if err != nil {
		return nil, err
	}
	defer leave()
	end, err := g.NewEnd(ctx, false)
	if err != nil {
		return nil, err
	}
	return signalling.Answer(ctx, end, in, send, func(outer net.Conn) error {
		l.from, l.to = outer.RemoteAddr().String(), point.Local.String()
		inner, err := g.reachProcess(ctx, point, &wire.Intro{
			Kind: wire.IntroProcess, Job: point.Process.Job, Rank: point.Process.Rank,
			From: overlay.NodeID{Site: overlay.SiteID(in.AskerSite), Name: in.AskerNode}, Technique: l.technique, Via: overlay.ViaTarget,
		})
		if err != nil {
			cut(outer)
			return err
		}
		live, err := g.book(*l, inner, outer)
		if err != nil {
			cut(outer)
			g.work.Go(func() { g.refuse(inner, err) })
			return err
		}
		g.traversals.connected.Add(1)
		g.work.Go(func() { g.carryLink(live) }) // Serve waits for this call, and then for that
		return nil
	})
}

// reachProcess connects to the helper of a process of the site and sends the intro for the process.
// The settings may have denied the address in the meantime.
func (g *Gateway) reachProcess(ctx context.Context, point overlay.AccessPoint, intro *wire.Intro) (*net.TCPConn, error) {
	if err := g.settings().Rule.Denied(point.Local.Addr()); err != nil {
		return nil, fmt.Errorf("helper %v of %v: %w", point.Node, point.Process, err)
	}
	ctx, cancel := context.WithTimeout(ctx, localDial)
	defer cancel()
	inner, err := carrier.DialTCP(ctx, point.Local.String(), carrier.HTTPProxy{})
	if err != nil {
		return nil, fmt.Errorf("helper %v of %v: %w", point.Node, point.Process, err)
	}
	inner.SetWriteDeadline(time.Now().Add(localDial))
	if _, err := inner.Write(wire.Append(nil, intro)); err != nil {
		inner.Close()
		return nil, fmt.Errorf("helper %v of %v: %w: %w", point.Node, point.Process, overlay.ErrUnreachable, err)
	}
	inner.SetWriteDeadline(time.Time{})
	return inner, nil
}
