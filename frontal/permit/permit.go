package permit

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/policy"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// Load reads a site's policy; nil if the settings name no file.
func Load(file string) (*policy.Policy, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	return policy.Parse(file, text)
}

// Change puts a policy into effect, nil for none, and reports whether it differs from the one
// before: if so, it must be sent to the brokers, and their cached answers about how to connect must
// be dropped. Other sites use their answers until these expire.
func (j *Judge) Change(p *policy.Policy) (changed bool) {
	before := j.Text()
	j.policy.Store(p)
	if changed = !bytes.Equal(before, j.Text()); changed {
		j.Describe()
		j.auditChange()
	}
	return changed
}

// Text is the policy as sent to the broker; empty if the site has no policy.
func (j *Judge) Text() []byte {
	if p := j.policy.Load(); p != nil {
		return p.Text()
	}
	return nil
}

// Describe logs what the site permits, and which rules nothing enforces.
func (j *Judge) Describe() {
	p := j.policy.Load()
	if p == nil {
		j.Log.Warn("the site has no policy (policy in the settings): links with other sites are refused, by rule "+policy.NoPolicy,
			"smallest", policy.Example(j.Site, "siteb"))
		return
	}
	j.Log.Info("the site's policy", "file", j.File(), "mode", p.Mode, "rules", len(p.Rules), "contact", p.Contact)
}

// CheckKept warns if the broker does not enforce the policy that it was sent.
func (j *Judge) CheckKept(resp *controlpb.JoinResponse) {
	p := j.policy.Load()
	if p != nil && !resp.GetPolicy() {
		j.Log.Warn("the broker is older than policies: it refuses nothing for this site's sake; only signalling requests of others to this site are held to its policy", "broker", resp.GetBroker())
	} else if p != nil && p.Limited() && !resp.GetLimits() {
		j.Log.Warn("the broker is too old for limits of policies: they do not apply to links that this site's processes request, and links that other sites request are refused", "broker", resp.GetBroker())
	}
}

// Permit evaluates the site's own policy for a signalling request to a process of the site,
// regardless of the broker's decision; without a policy, no process of another site is permitted.
// The asker's identity and the grants of both ends are as the broker reports them; an account of
// this site is as its helper reports it.
func (j *Judge) Permit(in *controlpb.Signal, point overlay.AccessPoint) error {
	p := j.policy.Load()
	if in.AskerSite == string(j.Site) {
		return nil
	}
	asker, err := control.PrincipalFromPB(in.AskerPrincipal)
	if err != nil {
		return fmt.Errorf("%w: asker: %w", overlay.ErrForbidden, err)
	}
	own, err := control.PrincipalFromPB(in.TargetPrincipal)
	if err != nil {
		return fmt.Errorf("%w: target: %w", overlay.ErrForbidden, err)
	}
	if own.Site() != "" || !own.IsSet() {
		own = point.Principal
	}
	g := policy.Agree(policy.Side{Site: j.Site, Policy: p}, policy.Side{Site: overlay.SiteID(in.AskerSite), EvaluatedElsewhere: true},
		point.Process.Job.Name(), []policy.Who{asker, own}, time.Now())
	for _, text := range g.Would() {
		j.Log.Warn("dry-run: "+text, "job", point.Process.Job, "asker_site", in.AskerSite)
	}
	if err := g.Err(); err != nil {
		j.auditRefusal(in, g.Rule(), err)
		return err
	}
	technique, err := control.TechniqueFromPB(in.Technique)
	if err != nil {
		return fmt.Errorf("%w: %w", overlay.ErrForbidden, err)
	}
	if why := g.Without(technique); why != "" {
		return fmt.Errorf("%w: %s to %s by %v: %s", overlay.ErrForbidden, in.AskerSite, j.Site, technique, why)
	}
	for _, a := range g.Allowances(point.Process.Job, [2]policy.Who{own, asker}) {
		if !carriesAllowance(in.GetRelay().GetTicket(), a) {
			return fmt.Errorf("%w: %s to %s: the ticket for proxy %s does not hold the link to %s, as the policy of %s wants; if that has just changed, try again",
				overlay.ErrForbidden, in.AskerSite, j.Site, in.GetRelay().GetProxy(), g.Within(), j.Site)
		}
	}
	return nil
}

// Inside returns nil for a process whose location this site's processes may learn: one of the site
// or, if it has a policy, of another site, since the broker has evaluated the policy for it.
func (j *Judge) Inside(point *controlpb.AccessPoint) error {
	there := overlay.SiteID(point.GetSite())
	if there == j.Site || j.policy.Load() != nil {
		return nil
	}
	job := overlay.JobID(point.GetProcess().GetJob())
	g := policy.Agree(policy.Side{Site: j.Site}, policy.Side{Site: there, EvaluatedElsewhere: true}, job.Name(), nil, time.Now())
	j.Audit(audit.Record{
		Event: audit.Decision, Effect: audit.Refused, Job: string(job), Sites: []string{string(j.Site), string(there)}, Rule: g.Rule(), Reason: g.Err().Error(),
	})
	return fmt.Errorf("%s: %w", j.Who, g.Err())
}

// carriesAllowance reports whether a ticket makes the proxy enforce an allowance, or a tighter one,
// on its link. The proxy is the one to detect a forged ticket.
func carriesAllowance(ticket []byte, want overlay.Allowance) bool {
	frame, err := wire.Read(bytes.NewReader(ticket))
	t, ok := frame.(*wire.Ticket)
	if err != nil || !ok {
		return false
	}
	return slices.ContainsFunc(t.Allowances[:], func(a overlay.Allowance) bool {
		return a.Site == want.Site && a.Owner == want.Owner && a.Rule == want.Rule &&
			within(uint64(a.Links), uint64(want.Links)) && within(a.Rate, want.Rate) && within(a.Month, want.Month)
	})
}

// within reports whether a bound is as tight as another; 0 is none.
func within(bound, want uint64) bool { return want == 0 || bound != 0 && bound <= want }

// Status is the site's policy.
type Status struct {
	File    string `json:"file"`
	Mode    string `json:"mode"`
	Rules   int    `json:"rules"`
	Contact string `json:"contact"`
}

// Status returns nil if the site has no policy.
func (j *Judge) Status() *Status {
	p := j.policy.Load()
	if p == nil {
		return nil
	}
	return &Status{j.File(), p.Mode, len(p.Rules), p.Contact}
}
