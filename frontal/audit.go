package frontal

import (
	"net"
	"time"

	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/control"
)

// auditSession records that a helper joined or left.
func (f *Frontal) auditSession(s *control.Session, what string) {
	f.audit.Append(audit.Record{
		Event: audit.Session, Peer: s.Peer().String() + " " + s.RemoteAddr().String(), Reason: what,
		Sites: []string{string(f.site)}, Nodes: []string{s.Peer().Name},
	})
}

// auditCaller records a caller that was refused before there was a session.
func (f *Frontal) auditCaller(from net.Addr, err error) {
	f.auditRefusal(from.String(), "session", err)
}

// auditOverBudget records a refusal because a peer is over its budget.
func (f *Frontal) auditOverBudget(s *control.Session, err error) {
	f.auditRefusal(s.Peer().String()+" "+s.RemoteAddr().String(), "budget", err)
}

// auditRefusal records a refused request.
func (f *Frontal) auditRefusal(peer, rule string, err error) {
	f.audit.Append(audit.Record{Event: audit.Refusal, Peer: peer, Rule: rule, Reason: err.Error(), Sites: []string{string(f.site)}})
}

// auditSums writes the sums that are due, or all sums.
func (f *Frontal) auditSums(all bool) {
	for _, e := range f.ledgers.Due(time.Now(), all) {
		f.audit.Append(audit.EndOf(e))
	}
}
