package frontal

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/frontal/ledger"
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
	records := make([]audit.Record, len(req.Links))
	for i, m := range req.Links {
		if records[i], err = accountRecord(id, name, who, m); err != nil {
			return fmt.Errorf("%s: %w: a link of %v: %w", f.who, wire.ErrMalformed, name, err)
		}
	}
	write, over := f.ledgers.Take(id, records, time.Now())
	for _, r := range write {
		f.audit.Append(r)
	}
	if over {
		f.log.Warn("a helper tells of so many links that the audit log has sums of them", "node", id.Node().String(),
			"at_once", ledger.Room, "a_second", ledger.PerSecond, "job", name.Job)
	}
	return nil
}

// accountRecord is the record of one link of a process at a helper's node.
func accountRecord(id control.Identity, name overlay.ProcessName, who overlay.Principal, m *controlpb.LinkAccount) (audit.Record, error) {
	r := audit.Record{
		Event: audit.LinkEnd, User: who.User, Project: who.Project, Job: string(name.Job), Ranks: []uint32{name.Rank, m.Rank},
		Sites: []string{string(id.Site)}, Nodes: []string{id.Name},
		Technique: overlay.Technique(m.Technique).String(), Link: hex.EncodeToString(m.Link), Peer: id.String(),
		Sent: m.Sent, Received: m.Received, Seconds: float64(m.LastedMs) / 1000, Rule: audit.OwnWord,
	}
	if len(m.Link) != len(wire.ID{}) {
		return r, fmt.Errorf("an id of %d bytes", len(m.Link))
	}
	if m.Technique > 0xff {
		return r, fmt.Errorf("technique %d", m.Technique)
	}
	if m.Node != "" {
		peer, err := overlay.ParseNodeID(m.Node)
		if err != nil {
			return r, err
		}
		r.Sites, r.Nodes = append(r.Sites, string(peer.Site)), append(r.Nodes, peer.Name)
	}
	r.Reason = audit.OwnWordReason(time.Duration(min(m.UnsaidMs, 1<<40)) * time.Millisecond)
	return r, nil
}
