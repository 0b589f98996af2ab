package broker

import (
	"context"
	"encoding/hex"
	"fmt"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/pki/ticket"
	"github.com/isthmus-grid/isthmus/overlay"
)

// reserveLife is the lifetime of a reserve relay's tickets. Both ends keep them for the time when
// no broker is reachable.
const reserveLife = ticket.MaxLife

// Reserve implements controlpb.DirectoryServer. The rules for a relay that is dialled at once apply
// to one that may be dialled later.
func (d directory) Reserve(ctx context.Context, req *controlpb.SignalRequest) (*controlpb.Reserved, error) {
	in, r, err := d.reserve(ctx, req)
	result := "reserved"
	if err != nil {
		result = err.Error()
	}
	by := control.SessionOf(ctx).Peer()
	d.b.log.Info("reserve", "by", by.String(), "job", in.asker.Job, "user", in.principal.User, "project", in.principal.Project,
		"asker", in.asker.Rank, "target", in.target.Rank, "proxy", in.proxy, "link", hex.EncodeToString(in.link[:]), "result", result, "rule", in.rule)
	d.b.auditSignalling(by, in, err)
	if err != nil {
		return nil, d.b.fail(err)
	}
	return r, nil
}

// reserve validates the request, assigns the relay and makes the target's side store its end. The
// returned request is never nil.
func (d directory) reserve(ctx context.Context, req *controlpb.SignalRequest) (*signalRequest, *controlpb.Reserved, error) {
	session, _, err := d.b.caller(ctx, control.RoleFrontal)
	if err != nil {
		return new(signalRequest), nil, err
	}
	in, err := parseSignalRequest(req)
	switch {
	case err != nil:
		return in, nil, malformed(err)
	case in.technique != overlay.Relay:
		return in, nil, malformed(fmt.Errorf("technique %v is not kept in reserve", in.technique))
	}
	in.life, in.reserved = reserveLife, true
	leave, err := d.b.enterSignalling(session.Peer().Site)
	if err != nil {
		return in, nil, err
	}
	defer leave()
	if err := d.permit(session.Peer().Site, in); err != nil {
		return in, nil, err
	}
	message, toAsker, err := d.arrange(in)
	if err != nil {
		return in, nil, err
	}
	in.assigned = true
	ctx, cancel := context.WithTimeout(ctx, d.b.signallingMax)
	defer cancel()
	if _, err := controlpb.NewTargetClient(in.frontal.Conn()).Reserve(ctx, message); err != nil {
		return in, nil, fmt.Errorf("%v: %w", in.frontal.Peer(), control.FromStatus(err))
	}
	return in, &controlpb.Reserved{
		Relay: toAsker, LifeMs: uint32(in.life.Milliseconds()), Reason: in.reason, Via: uint32(in.via),
		TargetSite: string(in.entry.Point.Node.Site), TargetNode: in.entry.Point.Node.Name,
	}, nil
}
