package broker

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/isthmus-grid/isthmus/broker/registry"
	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// auditSignalling records the decision about two processes and its outcome. Sites and nodes are
// those that the registry knows, not those that the asker claims; they are empty for a request that
// was refused before the lookup.
func (b *Broker) auditSignalling(by control.Identity, in *signalRequest, err error) {
	r := audit.Record{
		Event: audit.Decision, Effect: audit.Permitted, Peer: by.String(),
		User: in.principal.User, Project: in.principal.Project, Job: string(in.asker.Job),
		Ranks: []uint32{in.asker.Rank, in.target.Rank}, Technique: in.technique.String(), Relay: in.proxy,
		Link: hex.EncodeToString(in.link[:]), Rule: in.rule, Reason: in.reason,
	}
	if in.reserved {
		r.Reason = "kept in reserve: " + r.Reason
	}
	if in.entry.Site != nil {
		r.Sites = []string{string(in.askerSite.Profile.Site), string(in.entry.Point.Node.Site)}
		r.Nodes = []string{in.askerNode, in.entry.Point.Node.Name}
	}
	if err != nil {
		r.Effect, r.Reason = audit.Failed, err.Error()
		if !in.denied {
			r.Rule = wire.CodeOf(err).String()
		}
		if errors.Is(err, overlay.ErrForbidden) || errors.Is(err, overlay.ErrNoPath) || !in.assigned {
			r.Effect = audit.Refused
		}
	}
	b.audit.Append(r)
}

// auditAddress records that a site does not get a process's address because policies refuse the
// link.
func (b *Broker) auditAddress(asker *registry.Site, e registry.Entry, rule string, err error) {
	b.audit.Append(audit.Record{
		Event: audit.Decision, Effect: audit.Refused, Peer: "frontal " + string(asker.Profile.Site), Job: string(e.Point.Process.Job),
		Sites: []string{string(asker.Profile.Site), string(e.Point.Node.Site)}, Rule: rule, Reason: err.Error(),
	})
}

// auditEnrolment records that a certificate was issued, or why it was not, and what authorised it:
// a token, an old certificate, or an identity provider's token.
func (b *Broker) auditEnrolment(identity, by, peer string, err error) {
	r := audit.Record{Event: audit.Enrolment, Effect: audit.Permitted, Peer: peer, Rule: by, Reason: "a certificate for " + identity}
	r.User, _ = strings.CutPrefix(identity, control.RoleUser.String()+" ")
	if r.User == identity {
		r.User = ""
	}
	if err != nil {
		r.Event, r.Effect, r.Rule = audit.Refusal, audit.Refused, "enrolment"
		r.Reason = fmt.Sprintf("no certificate for %q by %q: %v", identity, by, err)
	}
	b.audit.Append(r)
}

// auditSession records the start or the end of a session of a daemon or an admin.
func (b *Broker) auditSession(s *control.Session, what string) {
	r := audit.Record{Event: audit.Session, Peer: s.Peer().String() + " " + s.RemoteAddr().String(), Reason: what}
	if site := s.Peer().Site; site != "" {
		r.Sites = []string{string(site)}
	}
	b.audit.Append(r)
}

// turnedAway logs a connection that was closed before authentication because too many were open.
func (b *Broker) turnedAway(from net.Addr, err error) {
	b.log.Debug("connection closed", "from", from.String(), "error", err)
	b.auditRefusal(from.String(), "half-open", err)
}

// auditOverBudget records a refusal to a peer that exceeds its budget.
func (b *Broker) auditOverBudget(s *control.Session, err error) {
	b.auditRefusal(s.Peer().String()+" "+s.RemoteAddr().String(), "budget", err)
}

// auditCaller records a connection that was refused before it had a session.
func (b *Broker) auditCaller(from net.Addr, err error) {
	b.auditRefusal(from.String(), "session", err)
}

// auditRefusal records a refusal.
func (b *Broker) auditRefusal(peer, rule string, err error) {
	b.audit.Append(audit.Record{Event: audit.Refusal, Peer: peer, Rule: rule, Reason: err.Error()})
}
