package frontal

import (
	"context"
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/frontal/ledger"
	"github.com/isthmus-grid/isthmus/internal/account"
	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// maxAccounts bounds the links of one Account call.
const maxAccounts = 256

// Account records what links have moved that no daemon carried. The helper reports only for the
// processes of its node; the amounts are self-reported, but on whose behalf they were moved is not.
func (n *nodesServer) Account(ctx context.Context, req *controlpb.AccountRequest) (*controlpb.AccountResponse, error) {
	id, err := n.f.helperOf(ctx, "Account")
	if err != nil {
		return nil, control.Status(err)
	}
	if err := n.f.account(id, req); err != nil {
		n.f.auditRefusal(id.String(), "account", err)
		return nil, control.Status(err)
	}
	return &controlpb.AccountResponse{}, nil
}

// account records all of the links or, if one of them is invalid, none. Links beyond the rate for
// single records are summed up.
func (f *Frontal) account(id control.Identity, req *controlpb.AccountRequest) error {
	name, err := control.ProcessFromPB(req.Process)
	if err != nil {
		return fmt.Errorf("%s: %w: %w", f.who, wire.ErrMalformed, err)
	}
	if err := f.runsAt(id, name); err != nil {
		return err
	}
	if len(req.Links) > maxAccounts {
		return fmt.Errorf("%s: %w: %d links, at most %d are allowed", f.who, wire.ErrMalformed, len(req.Links), maxAccounts)
	}
	who := f.registry.Principal(name)
	ends := make([]account.LinkEnded, len(req.Links))
	for i, m := range req.Links {
		if ends[i], err = accountEnd(id, name, who, m); err != nil {
			return fmt.Errorf("%s: %w: a link of %v: %w", f.who, wire.ErrMalformed, name, err)
		}
	}
	write, over := f.ledgers.Take(id, ends, time.Now())
	for _, e := range write {
		f.audit.Append(audit.EndOf(e))
	}
	if over {
		f.log.Warn("a helper tells of so many links that the audit log has sums of them", "node", id.Node().String(),
			"at_once", ledger.Room, "a_second", ledger.PerSecond, "job", name.Job)
	}
	return nil
}

// accountEnd is the end of one link of a process at a helper's node.
func accountEnd(id control.Identity, name overlay.ProcessName, who overlay.Principal, m *controlpb.LinkAccount) (e account.LinkEnded, err error) {
	if len(m.Link) != len(wire.ID{}) {
		return e, fmt.Errorf("an id of %d bytes", len(m.Link))
	}
	if m.Technique > 0xff {
		return e, fmt.Errorf("technique %d", m.Technique)
	}
	const maxMs = 1 << 40 // of what a helper says; 34 years
	t := overlay.Traffic{
		Link: [16]byte(m.Link), Rank: m.Rank, Technique: overlay.Technique(m.Technique), Sent: m.Sent, Received: m.Received,
		Lasted: time.Duration(min(m.LastedMs, maxMs)) * time.Millisecond,
	}
	if m.Node != "" {
		if t.Peer, err = overlay.ParseNodeID(m.Node); err != nil {
			return e, err
		}
	}
	return account.OwnWord(name, id.Node(), who, id.String(), t, time.Duration(min(m.UnsaidMs, maxMs))*time.Millisecond), nil
}
