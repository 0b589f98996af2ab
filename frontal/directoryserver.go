package frontal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-grid/isthmus/frontal/directory"
	"github.com/isthmus-grid/isthmus/frontal/gateway"
	"github.com/isthmus-grid/isthmus/frontal/outcomes"
	"github.com/isthmus-grid/isthmus/frontal/uplink"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/limit"
	"github.com/isthmus-grid/isthmus/internal/nat/signalling"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

const (
	// maxSignalling bounds one signalling request from request to last event.
	maxSignalling = 30 * time.Second

	// maxQuestions bounds the questions of one call.
	maxQuestions = 1024

	// maxReason bounds the text of a failure that a helper reports, in bytes.
	maxReason = 2 << 10

	// maxLogged bounds the refusals of one call that are logged one by one.
	maxLogged = 16
)

// directoryServer serves the directory calls of helpers.
type directoryServer struct {
	controlpb.UnimplementedDirectoryServer
	f *Frontal
}

// helperOf returns the helper whose call ctx belongs to, or an error if the caller is not a helper.
func (f *Frontal) helperOf(ctx context.Context, call string) (control.Identity, error) {
	s := control.SessionOf(ctx)
	if id := s.Peer(); id.Role != control.RoleHelper || id.Site != f.site {
		return id, f.forbidden("%v may not call %s; helpers of %s may", id, call, f.site)
	}
	if !s.Visiting() {
		if err := f.endpoint.Claim(s); err != nil {
			return s.Peer(), fmt.Errorf("%s: %w", f.who, err)
		}
	}
	return s.Peer(), nil
}

func (f *Frontal) forbidden(format string, args ...any) error {
	return fmt.Errorf("%s: %w: %s", f.who, overlay.ErrForbidden, fmt.Sprintf(format, args...))
}

// Register records a node's processes and registers them at the broker. While the broker is
// unreachable it succeeds: the next session registers all processes.
func (d *directoryServer) Register(ctx context.Context, req *controlpb.RegisterRequest) (*controlpb.RegisterResponse, error) {
	id, err := d.f.helperOf(ctx, "Register")
	if err != nil {
		return nil, control.Status(err)
	}
	faults := make([]error, len(req.Points))
	var taken []overlay.AccessPoint
	var index []int // index in faults of each element of taken
	for i, m := range req.Points {
		p, err := d.f.takePoint(id, control.SessionOf(ctx).Account(), control.SessionOf(ctx).RemoteAddr().Addr(), m)
		if err != nil {
			faults[i] = err
			continue
		}
		taken, index = append(taken, p), append(index, i)
	}
	if len(taken) > 0 {
		refused, err := d.f.up.Register(ctx, taken, d.f.noteGranted)
		if err != nil && !uplink.IsAway(err) {
			return nil, control.Status(err)
		}
		for i, err := range refused {
			if err != nil {
				faults[index[i]] = err
				d.f.forget(taken[i])
			}
		}
	}
	return &controlpb.RegisterResponse{Faults: d.f.logRegistered(id, req.Points, faults)}, nil
}

func (f *Frontal) logRegistered(id control.Identity, points []*controlpb.AccessPoint, errs []error) (faults []*controlpb.Fault) {
	for i, m := range points {
		if errs[i] != nil {
			faults = append(faults, control.Fault(errs[i]))
			if len(faults) <= maxLogged {
				f.log.Warn("process refused", "job", m.GetProcess().GetJob(), "rank", m.GetProcess().GetRank(), "node", id.Node().String(), "error", errs[i])
			}
			f.auditRefusal(id.String(), "access-point", errs[i])
			continue
		}
		f.log.Info("process registered", "job", m.Process.Job, "rank", m.Process.Rank, "node", id.Node().String(), "generation", m.Generation, "local", m.Local)
	}
	if n := len(faults); n > maxLogged {
		f.log.Warn("more processes refused", "node", id.Node().String(), "count", n-maxLogged)
	}
	return faults
}

// vouchedFor returns why a helper that speaks for a single account cannot vouch for a principal, or
// nil. An account of "" means a helper that speaks for all accounts of its node.
func vouchedFor(account string, p overlay.Principal) error {
	if name, _, _ := strings.Cut(p.User, "@"); account == "" || name == account {
		return nil
	}
	return fmt.Errorf("%w: this helper is of an allocation of %s's, and speaks for no other account, and not for %q", overlay.ErrForbidden, account, p.User)
}

// takePoint checks an access point of a helper and adds it to the registry. The public address of a
// gateway_only site is this gateway's.
func (f *Frontal) takePoint(id control.Identity, account string, from netip.Addr, m *controlpb.AccessPoint) (overlay.AccessPoint, error) {
	p, err := control.PointFromPB(m)
	if err != nil {
		return p, fmt.Errorf("%s: %w: %w", f.who, wire.ErrMalformed, err)
	}
	if p.Node != id.Node() {
		return p, f.forbidden("%v may not register a process of node %v", id, p.Node)
	}
	if err := vouchedFor(account, p.Principal); err != nil {
		return p, fmt.Errorf("%s: %v: %w", f.who, p.Process, err)
	}
	if err := p.Principal.CheckVouched(f.site); err != nil {
		return p, fmt.Errorf("%s: %v: %w", f.who, p.Process, err)
	}
	if err := proven(p, time.Now()); err != nil {
		return p, fmt.Errorf("%s: %w", f.who, err)
	}
	if err := f.ownAddress(id, from, p); err != nil {
		return p, err
	}
	if f.profile().GatewayOnly {
		p.Public, p.Public6 = f.gateway.PublicAddr, netip.AddrPort{}
	}
	for _, public := range []*netip.AddrPort{&p.Public, &p.Public6} {
		if !public.IsValid() || isReachedAt(f, id, public.Addr(), from) {
			continue
		}
		err := f.forbidden("%v says that other sites reach %v at %v, which is in none of profile.networks; it is not passed on, so that they do not dial it directly", id, p.Process, *public)
		f.log.Warn("public address refused", "node", id.Node().String(), "error", err)
		f.auditRefusal(id.String(), "public-address", err)
		*public = netip.AddrPort{}
	}
	if err := f.registry.Register(p, time.Now()); err != nil {
		return p, fmt.Errorf("%s: %w", f.who, err)
	}
	return p, nil
}

// proven returns why the identity or location that the point claims for a process is not accepted,
// or nil.
func proven(p overlay.AccessPoint, now time.Time) error {
	if err := p.Generation.Check(now); err != nil {
		return fmt.Errorf("%v: %w", p.Process, err)
	}
	return jobkey.CheckPoint(p)
}

// Withdraw removes processes of a node, here and at the broker.
func (d *directoryServer) Withdraw(ctx context.Context, req *controlpb.WithdrawRequest) (*controlpb.WithdrawResponse, error) {
	id, err := d.f.helperOf(ctx, "Withdraw")
	if err != nil {
		return nil, control.Status(err)
	}
	var gone []*controlpb.Withdrawal
	for _, w := range req.Processes {
		name, err := control.ProcessFromPB(w.Process)
		if err != nil {
			return nil, control.Status(fmt.Errorf("%s: %w: %w", d.f.who, wire.ErrMalformed, err))
		}
		if d.f.registry.Withdraw(id.Name, name, overlay.Generation(w.Generation)) {
			gone = append(gone, w)
		}
		d.f.log.Info("process withdrawn", "job", name.Job, "rank", name.Rank, "node", id.Node().String(), "generation", w.Generation)
	}
	if err := d.f.up.Withdraw(ctx, gone); err != nil && !uplink.IsAway(err) {
		return nil, control.Status(err)
	}
	return &controlpb.WithdrawResponse{}, nil
}

// Resolve answers from registry and cache, and asks the broker for the rest; then it waits for those that
// have not registered, as long as the helper wants.
func (d *directoryServer) Resolve(ctx context.Context, req *controlpb.ResolveRequest) (*controlpb.ResolveResponse, error) {
	id, err := d.f.helperOf(ctx, "Resolve")
	if err != nil {
		return nil, control.Status(err)
	}
	if n := len(req.Questions); n > maxQuestions {
		return nil, control.Status(fmt.Errorf("%s: %w: %d questions in one call, at most %d are answered", d.f.who, overlay.ErrOverloaded, n, maxQuestions))
	}
	waitCtx, cancel := context.WithTimeout(ctx, min(time.Duration(req.WaitMs)*time.Millisecond, maxAwait))
	defer cancel()
	answers := make([]directory.Answer, len(req.Questions))
	var open []directory.Question
	var index []int // index in answers of each element of open
	for i, q := range req.Questions {
		name, err := control.ProcessFromPB(q.Process)
		if err != nil {
			answers[i].Err = fmt.Errorf("%s: %w: %w", d.f.who, wire.ErrMalformed, err)
			continue
		}
		if a, ok := d.f.registry.Local(name); ok && !q.Fresh {
			answers[i] = a
			continue
		}
		open, index = append(open, directory.Question{Name: name, Fresh: q.Fresh}), append(index, i)
	}
	for i, a := range d.f.resolver.Resolve(ctx, open) {
		answers[index[i]] = a
	}
	if req.WaitMs > 0 {
		d.f.await(waitCtx, id, answers)
	}
	resp := &controlpb.ResolveResponse{}
	for _, a := range answers {
		resp.Answers = append(resp.Answers, d.f.tell(id, a))
	}
	return resp, nil
}

// tell converts an answer to a message for a helper, including the plan itself, and permits
// dialling the address in it.
func (f *Frontal) tell(id control.Identity, a directory.Answer) *controlpb.Answer {
	if a.Err == nil {
		a.Err = f.permit.Inside(a.Point)
	}
	if a.Err != nil {
		return &controlpb.Answer{Fault: control.Fault(a.Err)}
	}
	if f.profile().GatewayOnly && a.Plan != nil {
		for _, public := range []string{a.Point.Public, a.Point.Public6} {
			if public != "" {
				f.gateway.Allow(public)
			}
		}
	}
	return &controlpb.Answer{Point: f.insideOf(a.Point), Plan: a.Plan.GetDigest(), PlanIfNew: a.Plan, Memory: f.advice(id, a)}
}

// advice returns what the site has learned about the techniques of an answer's plan.
func (f *Frontal) advice(id control.Identity, a directory.Answer) *controlpb.Memory {
	if a.Plan == nil {
		return nil
	}
	pair := outcomes.Pair{Own: id.Name, Far: directory.NodeOf(a.Point)}
	winner, barred := f.memory.Advice(overlay.SiteID(a.Plan.Target), pair, a.Plan.Digest, time.Now())
	m := &controlpb.Memory{Winner: uint32(winner.Technique), SetupUs: uint32(winner.Setup.Microseconds())}
	for _, b := range barred {
		m.Barred = append(m.Barred, &controlpb.Barred{Technique: uint32(b.Technique), Reason: b.Reason, Inferior: b.Inferior})
	}
	return m
}

// await waits for those of the processes that are not registered, until ctx ends.
func (f *Frontal) await(ctx context.Context, id control.Identity, answers []directory.Answer) {
	for i, a := range answers {
		if !errors.Is(a.Err, overlay.ErrUnknownProcess) {
			continue
		}
		if done, err := f.waiting(id); err != nil {
			answers[i].Err = err
		} else {
			answers[i] = f.awaits.Await(ctx, a.Name)
			done()
		}
	}
}

// Await is Resolve of one process, for helpers of the version before.
func (d *directoryServer) Await(ctx context.Context, req *controlpb.AwaitRequest) (*controlpb.Answer, error) {
	resp, err := d.Resolve(ctx, &controlpb.ResolveRequest{Questions: []*controlpb.Question{{Process: req.Process}}, WaitMs: req.WaitMs})
	if err != nil {
		return nil, err
	}
	return resp.Answers[0], nil
}

// Report drops the cached answer if a connection made from it failed, and reports the attempt to
// the broker. It also takes the news that another site's process has called.
func (d *directoryServer) Report(ctx context.Context, req *controlpb.ReportRequest) (*controlpb.ReportResponse, error) {
	id, err := d.f.helperOf(ctx, "Report")
	if err != nil {
		return nil, control.Status(err)
	}
	name, err := control.ProcessFromPB(req.Target)
	if err != nil {
		return nil, control.Status(fmt.Errorf("%s: %w: %w", d.f.who, wire.ErrMalformed, err))
	}
	if req.Fault != nil {
		req.Fault.Text = limit.Text(req.Fault.Text, maxReason)
	}
	if err := d.f.remember(id, name, req); err != nil {
		return nil, control.Status(fmt.Errorf("%s: %w: %w", d.f.who, wire.ErrMalformed, err))
	}
	if req.Called != 0 { // no attempt of this site
		return &controlpb.ReportResponse{}, nil
	}
	if req.Fault != nil {
		d.f.resolver.Report(name, overlay.Generation(req.Generation))
		d.f.log.Info("connection failed", "node", id.Node().String(), "job", name.Job, "rank", name.Rank, "generation", req.Generation,
			"technique", overlay.Technique(min(req.Technique, 255)).String(), "error", req.Fault.GetText())
	}
	d.f.up.Report(&controlpb.ReportRequest{ // without what this version does not know
		Target: req.Target, Generation: req.Generation, Technique: req.Technique, Fault: req.Fault, TargetSite: req.TargetSite, SetupUs: req.SetupUs, Plan: req.Plan, Proxy: req.Proxy, Node: id.Name,
	})
	return &controlpb.ReportResponse{}, nil
}

// remember records the outcome of a technique between a node of this site and the one of a process of
// another site, if a broker has named that site: others would be as many as a helper invents.
func (f *Frontal) remember(id control.Identity, target overlay.ProcessName, req *controlpb.ReportRequest) error {
	number := req.Technique
	if req.Called != 0 {
		number = req.Called
	}
	technique, err := control.TechniqueFromPB(number)
	if err != nil {
		return err
	}
	site := overlay.SiteID(req.TargetSite)
	if req.Plan == 0 && req.Called == 0 || site == f.site {
		return nil // inside the site there is no choice
	}
	if err := overlay.CheckName("site", string(site)); err != nil {
		return err
	}
	if !f.resolver.KnowsSite(site) {
		return nil
	}
	pair := outcomes.Pair{Own: id.Name, Far: f.resolver.NodeOf(target)}
	switch {
	case req.Called != 0:
		f.measure.Worked(technique, false)
		f.memory.Called(site, id.Name, technique, time.Now())
	case req.Fault == nil:
		f.measure.Worked(technique, true)
		f.memory.Connected(site, pair, req.Plan, technique, time.Duration(req.SetupUs)*time.Microsecond, time.Now())
	case errors.Is(control.FaultErr(req.Fault), overlay.ErrInferior):
		f.memory.Inferior(site, id.Name, req.Plan, technique, req.Fault.Text, time.Now())
		f.measure.Doubt() // it may limit datagrams to less than before
	default:
		f.memory.Failed(site, pair, req.Plan, technique, req.Fault.Text, time.Now())
		if technique != overlay.Relay { // which fails for reasons other than profiles
			f.measure.Doubt()
		}
	}
	return nil
}

// Signal passes a signalling request to the broker and its events back. If the request has no
// offer for a technique that needs one, this gateway is the asker's end.
func (d *directoryServer) Signal(req *controlpb.SignalRequest, out grpc.ServerStreamingServer[controlpb.SignalEvent]) error {
	ctx, cancel := context.WithTimeout(out.Context(), maxSignalling)
	defer cancel()
	id, err := d.f.helperOf(ctx, "Signal")
	if err != nil {
		return control.Status(err)
	}
	release, err := d.f.completeSignal(id, req)
	if err != nil {
		return control.Status(err)
	}
	defer release()
	site := d.targetSite(req)
	err = d.signal(ctx, id, req, func(event *controlpb.SignalEvent) error {
		if event.Kind == controlpb.SignalEvent_ASSIGNED {
			d.f.memory.Present(site, time.Now())
		}
		return out.Send(event)
	})
	if errors.Is(err, overlay.ErrUnknownSite) {
		d.f.memory.Away(site, time.Now())
	}
	return control.Status(err)
}

// signal passes a checked signalling request to the broker, or is its asker's end.
func (d *directoryServer) signal(ctx context.Context, id control.Identity, req *controlpb.SignalRequest, send func(*controlpb.SignalEvent) error) error {
	if len(req.Offer) == 0 && d.f.gateway.StandsIn(overlay.Technique(req.Technique)) {
		return d.f.gateway.Ask(ctx, id.Name, req, send)
	}
	s, err := d.f.up.Get(ctx)
	if err != nil {
		return err
	}
	in, err := controlpb.NewDirectoryClient(s.Conn()).Signal(ctx, req)
	if err != nil {
		return d.f.up.CallError(s, err)
	}
	return d.f.passEvents(in, send, func(err error) error { return d.f.up.CallError(s, err) })
}

// targetSite returns the site of a signalling request's target, "" if it is not known: the helper
// has asked where the target is, but the answer may have been dropped since.
func (d *directoryServer) targetSite(req *controlpb.SignalRequest) overlay.SiteID {
	name, err := control.ProcessFromPB(req.Target)
	if err != nil {
		return ""
	}
	return d.f.resolver.SiteOf(name)
}

// passEvents copies events until the stream ends, and permits dialling the addresses in them.
func (f *Frontal) passEvents(in grpc.ServerStreamingClient[controlpb.SignalEvent], send func(*controlpb.SignalEvent) error, callError func(error) error) error {
	for {
		event, err := in.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return callError(err)
		}
		if err := signalling.CheckNegotiation("answer", event.Answer); err != nil {
			return fmt.Errorf("%s: %w", f.who, err)
		}
		f.gateway.AllowRelay(event.Relay, gateway.AllowedFor)
		if err := send(event); err != nil {
			return err
		}
	}
}

// completeSignal checks a helper's request and adds what only the frontal knows. release undoes
// its setup.
func (f *Frontal) completeSignal(id control.Identity, req *controlpb.SignalRequest) (release func(), err error) {
	asker, err := control.ProcessFromPB(req.Asker)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: asker: %w", f.who, wire.ErrMalformed, err)
	}
	technique, err := control.TechniqueFromPB(req.Technique)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", f.who, wire.ErrMalformed, err)
	}
	if err := f.runsAt(id, asker); err != nil {
		return nil, err
	}
	if err := signalling.CheckNegotiation("offer", req.Offer); err != nil {
		return nil, fmt.Errorf("%s: %w", f.who, err)
	}
	req.AskerNode = id.Name
	if technique != overlay.Reversed || !f.profile().GatewayOnly && req.ConnectAddress != "" {
		return func() {}, nil
	}
	if !f.gateway.PublicAddr.IsValid() {
		return nil, fmt.Errorf("%s: %w: the gateway of %s listens nowhere for connections from outside (public_listen), so it cannot be dialled back", f.who, overlay.ErrNoPath, f.site)
	}
	if len(req.ConnectId) != len(wire.ID{}) {
		return nil, fmt.Errorf("%s: %w: a connect-id of %d bytes, want %d", f.who, wire.ErrMalformed, len(req.ConnectId), len(wire.ID{}))
	}
	req.ConnectAddress = f.gateway.PublicAddr.String()
	return f.gateway.ExpectReturn(wire.ID(req.ConnectId), asker, id.Name, maxSignalling)
}

// runsAt returns an error if a helper may not act for a process, or nil.
func (f *Frontal) runsAt(id control.Identity, name overlay.ProcessName) error {
	if !f.registry.RunsAt(id.Node(), name) {
		return f.forbidden("%v may not speak for %v, which is not registered at its node", id, name)
	}
	return nil
}
