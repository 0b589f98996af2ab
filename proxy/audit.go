package proxy

import (
	"encoding/hex"

	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/pki/ticket"
	"github.com/isthmus-grid/isthmus/wire"
)

// auditRefusal records a refused connection. It leaves out the claims of a ticket whose MAC was not
// verified.
func (s *Server) auditRefusal(e *end, why *refusalError) {
	var r audit.Record
	if e.ticket != nil && why.reason != Reason(ticket.Forged) && why.reason != Reason(ticket.Foreign) {
		r = claimed(e.ticket)
	}
	r.Peer = e.conn.RemoteAddr().String()
	s.audit(r, why)
}

// audit records a refusal; r identifies who was refused.
func (s *Server) audit(r audit.Record, why *refusalError) {
	r.Event, r.Relay, r.Rule, r.Reason = audit.Refusal, s.set.Name, string(why.reason), why.text
	s.set.Audit.Append(r)
}

// claimed returns a record of a ticket's claims.
func claimed(t *wire.Ticket) audit.Record {
	return audit.Record{
		User: t.Principal.User, Project: t.Principal.Project,
		Job: string(t.Job), Ranks: []uint32{t.Asker, t.Target}, Link: hex.EncodeToString(t.Link[:]),
	}
}
