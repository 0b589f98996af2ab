package frontal

import (
	"crypto/sha256"
	"fmt"
	"net"

	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
)

// auditPolicy records that the site has another policy, and which.
func (f *Frontal) auditPolicy() {
	reason := "the site has no policy any more: links with other sites are refused"
	if p := f.policy.Load(); p != nil {
		reason = fmt.Sprintf("another policy: mode %s, %d rules, SHA-256 %x without its comments", p.Mode, len(p.Rules), sha256.Sum256(p.Text()))
	}
	f.audit.Append(audit.Record{Event: audit.Settings, Rule: "policy", Reason: reason, Sites: []string{string(f.site)}})
}

// auditPolicyRefusal records that the site's policy refuses what the broker introduces.
func (f *Frontal) auditPolicyRefusal(in *controlpb.Introduction, rule string, err error) {
	f.audit.Append(audit.Record{
		Event: audit.Decision, Effect: audit.Refused, User: in.GetAskerPrincipal().GetUser(), Project: in.GetAskerPrincipal().GetProject(), Job: in.GetTarget().GetJob(),
		Ranks: []uint32{in.GetAsker().GetRank(), in.GetTarget().GetRank()}, Sites: []string{in.AskerSite, string(f.site)}, Rule: rule, Reason: err.Error(),
	})
}

// auditSession records that a helper came or left.
func (f *Frontal) auditSession(s *control.Session, what string) {
	f.audit.Append(audit.Record{
		Event: audit.Session, Peer: s.Peer().String() + " " + s.RemoteAddr().String(), Reason: what,
		Sites: []string{string(f.site)}, Nodes: []string{s.Peer().Name},
	})
}

// auditCaller records who was turned away before there was a session.
func (f *Frontal) auditCaller(from net.Addr, err error) {
	f.auditRefusal(from.String(), "session", err)
}

// auditOverBudget records what a peer was refused that is over its budget.
func (f *Frontal) auditOverBudget(s *control.Session, err error) {
	f.auditRefusal(s.Peer().String()+" "+s.RemoteAddr().String(), "budget", err)
}

// auditRefusal records what somebody was refused.
func (f *Frontal) auditRefusal(peer, rule string, err error) {
	f.audit.Append(audit.Record{Event: audit.Refusal, Peer: peer, Rule: rule, Reason: err.Error(), Sites: []string{string(f.site)}})
}
