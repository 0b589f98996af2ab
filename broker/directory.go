package broker

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/broker/registry"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/limit"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// directory implements the directory service, which frontals call.
type directory struct {
	controlpb.UnimplementedDirectoryServer
	b *Broker
}

// Bounds of one call.
const (
	maxQuestions = 1024            // what messages hold, and frontals ask
	maxAwait     = 5 * time.Minute // a caller that waits longer calls again
	maxLogged    = 16              // refusals that are logged one by one
)

// malformed wraps a conversion error as wire.ErrMalformed.
func malformed(err error) error { return fmt.Errorf("%w: %w", wire.ErrMalformed, err) }

// Register implements controlpb.DirectoryServer.
func (d directory) Register(ctx context.Context, req *controlpb.RegisterRequest) (*controlpb.RegisterResponse, error) {
	s, holder, err := d.b.caller(ctx, control.RoleFrontal)
	if err != nil {
		return nil, d.b.fail(err)
	}
	resp := &controlpb.RegisterResponse{}
	refuse := func(err error) {
		d.b.counters.fault(err)
		if len(resp.Faults) < maxLogged {
			d.b.log.Info("access point refused", "by", s.Peer().String(), "error", err)
		}
		d.b.auditRefusal(s.Peer().String(), "access-point", err)
		resp.Faults = append(resp.Faults, control.Fault(err))
	}
	// Consecutive acceptable points are registered together, so that the faults are in the order of
	// the points.
	points := make([]overlay.AccessPoint, 0, len(req.Points))
	flush := func() {
		for _, err := range d.b.registry.Register(holder, points) {
			if err != nil {
				refuse(err)
			}
		}
		points = points[:0]
	}
	var elsewhere map[netip.Addr]overlay.SiteID // source addresses of other sites' sessions
	granted, shown := make([]*controlpb.Principal, 0, len(req.Points)), false
	for _, m := range req.Points {
		point, err := control.PointFromPB(m)
		if err != nil {
			err = malformed(err)
		} else if err = point.Principal.CheckVouched(s.Peer().Site); err != nil {
			err = fmt.Errorf("%v: %w", point.Process, err)
		} else if err = point.Generation.Check(time.Now()); err != nil {
			err = fmt.Errorf("%v: %w", point.Process, err)
		} else if err = jobkey.CheckPoint(point); err != nil {
			// Not remembered with Refused: a registration without the job's key must not make the
			// genuine process look refused to its peers.
		} else if err = d.b.read(&point, time.Now()); err != nil {
			err = fmt.Errorf("%v: %w", point.Process, err)
			if errors.Is(err, overlay.ErrForbidden) {
				d.b.registry.Refused(point.Process, err)
			}
		} else if point.Public.IsValid() || point.Public6.IsValid() {
			if elsewhere == nil {
				elsewhere = d.b.sessions.sources(s.Peer().Site, time.Now())
			}
			err = d.checkPublic(s, point, elsewhere)
		}
		if err != nil {
			flush()
			refuse(err)
			continue
		}
		shown = shown || !point.Until.IsZero()
		granted = append(granted, control.PrincipalToPB(point.Principal))
		points = append(points, point)
	}
	flush()
	if n := len(resp.Faults); n > maxLogged {
		d.b.log.Info("more access points refused", "by", s.Peer().String(), "count", n-maxLogged)
	}
	if shown && len(resp.Faults) == 0 {
		for i, p := range granted {
			if p == nil { // a list has no nil elements
				granted[i] = &controlpb.Principal{}
			}
		}
		resp.Principals = granted
	}
	d.b.log.Debug("registered", "by", s.Peer().String(), "points", len(req.Points), "refused", len(resp.Faults))
	return resp, nil
}

// checkPublic refuses public addresses that do not demonstrably belong to the site: the frontal's
// session comes from another address and its settings do not declare this one, or another site's
// session comes, or lately came, from it or from the networks in which it is declared. Other sites' nodes would dial it.
func (d directory) checkPublic(s *control.Session, point overlay.AccessPoint, elsewhere map[netip.Addr]overlay.SiteID) error {
	for _, public := range []netip.AddrPort{point.Public, point.Public6} {
		if !public.IsValid() {
			continue
		}
		if err := d.checkPublicAddress(s, point, public, elsewhere); err != nil {
			return err
		}
	}
	return nil
}

func (d directory) checkPublicAddress(s *control.Session, point overlay.AccessPoint, public netip.AddrPort, elsewhere map[netip.Addr]overlay.SiteID) error {
	what := fmt.Sprintf("public address of %v", point.Process)
	if err := checkTarget(what, public, d.b.cfg.AllowLoopback); err != nil {
		return err
	}
	ip := public.Addr().Unmap()
	if ip == s.RemoteAddr().Addr().Unmap() {
		return nil
	}
	site, err := d.b.registry.Site(point.Node.Site)
	if err != nil {
		site = new(registry.Site)
	}
	if err == nil && !site.Profile.Declares(ip) {
		return fmt.Errorf("%w: %s %v: the session of %v comes from %v, and %s does not declare another address there (profile.networks)",
			overlay.ErrForbidden, what, public, s.Peer(), s.RemoteAddr().Addr(), point.Node.Site)
	}
	if other, ok := elsewhere[ip]; ok {
		return fmt.Errorf("%w: %s %v: that is where frontal %s comes from", overlay.ErrForbidden, what, public, other)
	}
	if network, other := overlaps(site.Profile.Networks, ip, s.RemoteAddr().Addr().Unmap(), elsewhere); other != "" {
		return fmt.Errorf("%w: %s %v: of the networks that %s declares there, frontal %s comes from %v, too; declare smaller ones, without other sites' hosts (profile.networks)",
			overlay.ErrForbidden, what, public, point.Node.Site, other, network)
	}
	return nil
}

// overlaps returns a network that a site declares for an address and a site that was seen in it, unless one of those networks has
// no other site. own is where the declaring site's session comes from, which others may share.
func overlaps(declared []netip.Prefix, ip, own netip.Addr, elsewhere map[netip.Addr]overlay.SiteID) (network netip.Prefix, other overlay.SiteID) {
	for _, n := range declared {
		if !n.Contains(ip) {
			continue
		}
		found := overlay.SiteID("")
		for addr, site := range elsewhere {
			if addr != own && n.Contains(addr) && (found == "" || site < found) {
				found = site
			}
		}
		if found == "" {
			return netip.Prefix{}, ""
		}
		network, other = n, found
	}
	return network, other
}

// Withdraw implements controlpb.DirectoryServer.
func (d directory) Withdraw(ctx context.Context, req *controlpb.WithdrawRequest) (*controlpb.WithdrawResponse, error) {
	s, holder, err := d.b.caller(ctx, control.RoleFrontal)
	if err != nil {
		return nil, d.b.fail(err)
	}
	for _, w := range req.Processes {
		name, err := control.ProcessFromPB(w.GetProcess())
		if err != nil {
			return nil, d.b.fail(malformed(err))
		}
		if w.GetDied() {
			d.b.registry.Died(holder, name, overlay.Generation(w.GetGeneration()))
		} else {
			d.b.registry.Withdraw(holder, name, overlay.Generation(w.GetGeneration()))
		}
		d.b.names.ended(s.Peer().Site, name, overlay.Generation(w.GetGeneration()))
	}
	return &controlpb.WithdrawResponse{}, nil
}

// Resolve implements controlpb.DirectoryServer.
func (d directory) Resolve(ctx context.Context, req *controlpb.ResolveRequest) (*controlpb.ResolveResponse, error) {
	asker, err := d.asker(ctx)
	if err != nil {
		return nil, d.b.fail(err)
	}
	if n := len(req.Questions); n > maxQuestions {
		return nil, d.b.fail(fmt.Errorf("%w: %d questions in one call, at most %d are answered; ask in several calls", overlay.ErrOverloaded, n, maxQuestions))
	}
	names := make([]overlay.ProcessName, len(req.Questions))
	for i, q := range req.Questions {
		// An invalid name is never registered, so it needs no check of its own.
		names[i] = overlay.ProcessName{Job: overlay.JobID(q.GetProcess().GetJob()), Rank: q.GetProcess().GetRank()}
	}
	resp := &controlpb.ResolveResponse{Answers: make([]*controlpb.Answer, 0, len(names))}
	entries, before := d.b.registry.Lookup(make([]registry.Entry, 0, len(names)), names), judged{}
	if wait := time.Duration(req.GetWaitMs()) * time.Millisecond; wait > 0 {
		waitCtx, cancel := context.WithTimeout(ctx, min(wait, maxAwait))
		defer cancel()
		d.b.counters.awaits.Add(1)
		d.await(waitCtx, asker, req.Questions, entries)
	} else {
		d.b.counters.resolves.Add(1)
		d.b.counters.questions.Add(uint64(len(req.Questions)))
	}
	for i, e := range entries {
		answer, p := d.answer(asker, names[i], e, before)
		resp.Answers = append(resp.Answers, answer)
		if p != nil && !slices.Contains(req.CachedPlans, p.Digest) && !slices.Contains(resp.Plans, p) {
			resp.Plans = append(resp.Plans, p)
		}
	}
	return resp, nil
}

// asker returns the site that a frontal's call comes from.
func (d directory) asker(ctx context.Context) (*registry.Site, error) {
	s, _, err := d.b.caller(ctx, control.RoleFrontal)
	if err != nil {
		return nil, err
	}
	return d.b.registry.Site(s.Peer().Site)
}

// answer returns where a process is and the plan by which the asker's site connects to it; the plan
// is nil within one site.
func (d directory) answer(asker *registry.Site, name overlay.ProcessName, e registry.Entry, before judged) (*controlpb.Answer, *controlpb.Plan) {
	if e.Site == nil {
		if err := d.noPlanError(asker, e, before); err != nil {
			d.b.counters.fault(err)
			return &controlpb.Answer{Fault: control.Fault(err)}, nil
		}
		err := fmt.Errorf("%w: %v is not known to broker %s", overlay.ErrUnknownProcess, name, d.b.name)
		if e.Died {
			err = fmt.Errorf("%w: %v, as its node reported to broker %s", overlay.ErrEnded, name, d.b.name)
		}
		d.b.counters.fault(err)
		return &controlpb.Answer{Fault: control.Fault(err)}, nil
	}
	if err := inTime(e.Point, time.Now()); err != nil {
		d.b.counters.fault(err)
		return &controlpb.Answer{Fault: control.Fault(err)}, nil
	}
	g, err := d.consult(asker, e, before)
	if err != nil {
		d.b.counters.fault(err)
		return &controlpb.Answer{Fault: control.Fault(err)}, nil
	}
	if e.Point.Node.Site == asker.Profile.Site {
		return &controlpb.Answer{Point: control.PointToPB(e.Point)}, nil
	}
	e.Point.Local = netip.AddrPort{} // meaningful only inside its own site
	answer := &controlpb.Answer{Point: control.PointToPB(e.Point)}
	p := d.b.plans.decide(d.b.log, asker, e.Site, d.b.proxyKinds(time.Now()), g)
	answer.Plan = p.msg.Digest
	return answer, p.msg
}

// noPlanError returns why no link to an unregistered process is possible, if that is known: its
// registration was refused, or it has left and would be refused a link if it came back, because
// its grant has expired or by policies. Otherwise, of a job that is refused, the first process to
// learn of it leaves and the others would wait for it. Nil means that the asker should wait.
func (d directory) noPlanError(asker *registry.Site, e registry.Entry, before judged) error {
	switch {
	case e.Refused != nil:
		return e.Refused
	case e.Former == nil:
		return nil
	}
	if err := inTime(*e.Former, time.Now()); err != nil {
		return err
	}
	if _, err := d.consult(asker, registry.Entry{Point: *e.Former}, before); errors.Is(err, overlay.ErrForbidden) {
		return err
	}
	return nil
}

// await waits for those of the processes that are not registered, until ctx ends, unless no link to them is
// possible. Of a process for which it cannot wait it sets why in its entry.
func (d directory) await(ctx context.Context, asker *registry.Site, questions []*controlpb.Question, entries []registry.Entry) {
	site, before := asker.Profile.Site, judged{}
	for i, e := range entries {
		if e.Site != nil || e.Died || d.noPlanError(asker, e, before) != nil {
			continue
		}
		name, err := control.ProcessFromPB(questions[i].GetProcess())
		if err != nil {
			continue // it will never be registered
		}
		if err = d.b.waits.Take(site, 1); err == nil {
			e, err = d.b.registry.Await(ctx, name)
			d.b.waits.Give(site, 1)
		} else {
			d.b.auditRefusal(control.SessionOf(ctx).Peer().String(), "waits", err)
		}
		switch {
		case err == nil:
			entries[i] = e
		case errors.Is(err, overlay.ErrOverloaded):
			entries[i].Refused = err
		}
	}
}

// Await implements controlpb.DirectoryServer, for frontals of the version before.
func (d directory) Await(ctx context.Context, req *controlpb.AwaitRequest) (*controlpb.Answer, error) {
	resp, err := d.Resolve(ctx, &controlpb.ResolveRequest{Questions: []*controlpb.Question{{Process: req.GetProcess()}}, WaitMs: req.GetWaitMs()})
	if err != nil {
		return nil, err
	}
	answer := resp.Answers[0]
	if len(resp.Plans) > 0 {
		answer.PlanIfNew = resp.Plans[0]
	}
	return answer, nil
}

// Report implements controlpb.DirectoryServer. The broker only counts and logs: what one site
// observed of a connection is no reason to remove another site's registration.
func (d directory) Report(ctx context.Context, req *controlpb.ReportRequest) (*controlpb.ReportResponse, error) {
	s, _, err := d.b.caller(ctx, control.RoleFrontal)
	if err != nil {
		return nil, d.b.fail(err)
	}
	name, err := control.ProcessFromPB(req.GetTarget())
	if err != nil {
		return nil, d.b.fail(malformed(err))
	}
	technique, err := control.TechniqueFromPB(req.GetTechnique())
	if err != nil {
		return nil, d.b.fail(malformed(err))
	}
	by := overlay.NodeID{Site: s.Peer().Site, Name: req.GetNode()} // an older frontal names no node
	if by.Name != "" {
		if err := overlay.CheckName("node", by.Name); err != nil {
			return nil, d.b.fail(malformed(err))
		}
	}
	d.b.counters.reports.Add(1)
	if _, err := d.b.registry.Site(overlay.SiteID(req.GetTargetSite())); err == nil { // others would be as many as a peer invents
		d.b.outcomes.note(s.Peer().Site, overlay.SiteID(req.TargetSite), technique, float64(req.SetupUs)/1000, wire.Code(min(req.GetFault().GetCode(), 255)), req.GetFault().GetText(), time.Now())
	}
	switch {
	case technique != overlay.Relay:
	case req.Fault != nil:
		d.b.proxies.Failed(by, req.GetProxy(), time.Now())
	default:
		d.b.proxies.Worked(req.GetProxy())
	}
	if req.Fault != nil {
		d.b.log.Info("connection failed", "by", s.Peer().String(), "node", by.Name, "job", name.Job, "target", name.Rank,
			"generation", req.GetGeneration(), "technique", technique.String(), "error", limit.Text(req.Fault.Text, maxReason))
	}
	return &controlpb.ReportResponse{}, nil
}
