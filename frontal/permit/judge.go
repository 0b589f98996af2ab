// Package permit holds what a site permits: the policy in effect, and its decision about an
// signalling request. Brokers evaluate the same policy, but a site that relied on them alone would
// have to trust them. The package has no lock: the policy in effect is one pointer, and a policy is
// immutable.
package permit

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/policy"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Options are the dependencies of a Judge.
type Options struct {
	Site  overlay.SiteID
	Who   string // the frontal, for errors
	Log   *slog.Logger
	File  func() string      // named by the settings in effect
	Audit func(audit.Record) // its decisions and changes
}

// Judge decides what one site permits.
type Judge struct {
	Options
	policy atomic.Pointer[policy.Policy] // nil: the site has none
}

// New returns the Judge of a site with a policy, nil for none.
func New(o Options, p *policy.Policy) *Judge {
	j := &Judge{Options: o}
	j.policy.Store(p)
	return j
}

// auditChange records that the site has another policy, and which one.
func (j *Judge) auditChange() {
	reason := "the site has no policy any more: links with other sites are refused"
	if p := j.policy.Load(); p != nil {
		reason = fmt.Sprintf("another policy: mode %s, %d rules, SHA-256 %x without its comments", p.Mode, len(p.Rules), sha256.Sum256(p.Text()))
	}
	j.Audit(audit.Record{Event: audit.Settings, Rule: "policy", Reason: reason, Sites: []string{string(j.Site)}})
}

// auditRefusal records that the site's policy refuses a signalling request of the broker.
func (j *Judge) auditRefusal(in *controlpb.Signal, rule string, err error) {
	j.Audit(audit.Record{
		Event: audit.Decision, Effect: audit.Refused, User: in.GetAskerPrincipal().GetUser(), Project: in.GetAskerPrincipal().GetProject(), Job: in.GetTarget().GetJob(),
		Ranks: []uint32{in.GetAsker().GetRank(), in.GetTarget().GetRank()}, Sites: []string{in.AskerSite, string(j.Site)}, Rule: rule, Reason: err.Error(),
	})
}
