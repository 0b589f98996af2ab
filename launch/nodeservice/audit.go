package nodeservice

import (
	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/launch/reserve"
)

// auditDenied records that the owner's rules refused a booking.
func (k *NodeService) auditDenied(who Asker, ask reserve.Ask, why string) {
	k.opts.Audit.Append(audit.Record{
		Event: audit.Refusal, User: who.Identity(), Job: string(ask.Job), Rule: "offer", Reason: why,
		Sites: []string{string(who.Node.Site), string(k.opts.Node.Site)}, Nodes: []string{who.Node.Name, k.opts.Node.Name},
	})
}

// auditOverBudget records a refusal to another node that exceeds its budget.
func (g *Server) auditOverBudget(s *control.Session, err error) {
	g.settings.Audit.Append(audit.Record{
		Event: audit.Refusal, Peer: s.Peer().String(), Rule: "budget", Reason: err.Error(),
		Sites: []string{string(s.Peer().Site), string(g.settings.Node.Site)}, Nodes: []string{s.Peer().Name, g.settings.Node.Name},
	})
}

// auditJob records the start or the end of a job here. User is who launched it, as that user's node
// reports: USER@SITE/NODE.
func (k *NodeService) auditJob(b *booking, what audit.Event, reason string) {
	k.opts.Audit.Append(audit.Record{
		Event: what, User: b.Who.Identity(), Job: string(b.Ask.Job), Reason: reason,
		Sites: []string{string(k.opts.Node.Site)}, Nodes: []string{k.opts.Node.Name},
	})
}
