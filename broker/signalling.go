package broker

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-grid/isthmus/broker/decide"
	"github.com/isthmus-grid/isthmus/broker/registry"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/limit/quota"
	"github.com/isthmus-grid/isthmus/internal/pki/ticket"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// ticketLife is the lifetime of tickets for a relay that both ends dial at once: a minute allows
// for clock skew and slow networks.
const ticketLife = time.Minute

// signalRequest is one validated request for the target's help.
type signalRequest struct {
	link       wire.ID
	technique  overlay.Technique
	asker      overlay.ProcessName
	askerNode  string            // as registered
	principal  overlay.Principal // the asker's; the target's is in entry
	target     overlay.ProcessName
	generation overlay.Generation
	address    string // the address that the target dials in a reversed connection
	connectID  []byte
	small      bool          // packets, SignalRequest.small_packets
	life       time.Duration // lifetime of the relay's tickets
	reserved   bool          // the relay is not dialled now
	offer      []byte        // the asker's half of a negotiation, opaque to the broker
	otherThan  string        // a proxy that is in doubt

	askerSite *registry.Site
	entry     registry.Entry // the target's
	frontal   *control.Session
	reason    string
	via       overlay.Via
	askerLife overlay.Generation
	rule      string              // of the sites' policies (policy.Agreement.Rule); empty within a site
	denied    bool                // rule refuses it
	allowed   []overlay.Allowance // that the relay enforces
	proxy     string
	assigned  bool // the asker was sent ASSIGNED
}

// Signal implements controlpb.DirectoryServer. An error before the asker was sent ASSIGNED fails
// the call; a later one is sent as FAILED.
func (d directory) Signal(req *controlpb.SignalRequest, stream grpc.ServerStreamingServer[controlpb.SignalEvent]) error {
	in, err := d.signal(req, stream)
	result := "connected"
	if err != nil {
		result = err.Error()
	}
	d.b.log.Info("signalling", "by", control.SessionOf(stream.Context()).Peer().String(), "job", in.asker.Job,
		"user", in.principal.User, "project", in.principal.Project, "asker", in.asker.Rank, "target", in.target.Rank, "target_site", in.entry.Point.Node.Site,
		"technique", in.technique.String(), "proxy", in.proxy, "link", hex.EncodeToString(in.link[:]), "result", result, "rule", in.rule)
	d.b.auditSignalling(control.SessionOf(stream.Context()).Peer(), in, err)
	switch {
	case err == nil:
		return nil
	case !in.assigned:
		return d.b.fail(err)
	}
	d.b.counters.fault(err)
	return stream.Send(&controlpb.SignalEvent{Kind: controlpb.SignalEvent_FAILED, Fault: control.Fault(err)})
}

// signal validates the request, sends the asker its relay assignment and calls the target's
// side. The returned request is never nil.
func (d directory) signal(req *controlpb.SignalRequest, stream grpc.ServerStreamingServer[controlpb.SignalEvent]) (*signalRequest, error) {
	session, _, err := d.b.caller(stream.Context(), control.RoleFrontal)
	if err != nil {
		return new(signalRequest), err
	}
	in, err := parseSignalRequest(req)
	if err != nil {
		return in, malformed(err)
	}
	d.b.counters.byTech[in.technique].asked.Add(1)
	leave, err := d.b.enterSignalling(session.Peer().Site)
	if err != nil {
		return in, err
	}
	defer leave()
	if err := d.permit(session.Peer().Site, in); err != nil {
		return in, err
	}
	message, toAsker, err := d.arrange(in)
	if err != nil {
		return in, err
	}
	in.assigned = true
	if err := stream.Send(&controlpb.SignalEvent{Kind: controlpb.SignalEvent_ASSIGNED, Relay: toAsker}); err != nil {
		return in, fmt.Errorf("%w: the asker is gone: %w", overlay.ErrUnreachable, err)
	}
	if err := d.pass(stream, in, message); err != nil {
		return in, err
	}
	d.b.counters.byTech[in.technique].connected.Add(1)
	return in, nil
}

// enterSignalling reserves one of the places of the asker's site for signalling requests in flight;
// leave releases it.
func (b *Broker) enterSignalling(asker overlay.SiteID) (leave func(), err error) {
	if err := b.audit.Ready(); err != nil {
		return nil, err
	}
	if err := b.signalling.Take(asker, 1); err != nil {
		return nil, err
	}
	return func() { b.signalling.Give(asker, 1) }, nil
}

// parseSignalRequest validates the request's form. The result is never nil.
func parseSignalRequest(req *controlpb.SignalRequest) (*signalRequest, error) {
	in := &signalRequest{
		generation: overlay.Generation(req.GetTargetGeneration()),
		address:    req.GetConnectAddress(), connectID: req.GetConnectId(), offer: req.GetOffer(), small: req.GetSmallPackets(), life: ticketLife,
		otherThan: req.GetOtherThan(),
	}
	if n := len(in.offer); n > control.MaxNegotiation {
		return in, fmt.Errorf("an offer of %d bytes, at most %d are passed on", n, control.MaxNegotiation)
	}
	if in.otherThan != "" {
		if err := overlay.CheckName("proxy", in.otherThan); err != nil {
			return in, err
		}
	}
	if len(req.GetLink()) != len(in.link) {
		return in, fmt.Errorf("a link id of %d bytes, want %d", len(req.GetLink()), len(in.link))
	}
	in.link = wire.ID(req.GetLink())
	var err error
	if in.asker, err = control.ProcessFromPB(req.GetAsker()); err != nil {
		return in, fmt.Errorf("asker: %w", err)
	}
	if in.target, err = control.ProcessFromPB(req.GetTarget()); err != nil {
		return in, fmt.Errorf("target: %w", err)
	}
	if in.asker == in.target {
		return in, fmt.Errorf("%v asks for itself", in.asker)
	}
	technique, err := control.TechniqueFromPB(req.GetTechnique())
	if err != nil {
		return in, err
	}
	in.technique = technique
	switch kind := in.technique.Kind(); {
	case kind == overlay.ByProxy:
	case kind.Negotiated(): // in offer and answer, which are opaque here
	case kind == overlay.TargetDials:
		if len(in.connectID) != len(wire.ID{}) {
			return in, fmt.Errorf("a connect id of %d bytes, want %d", len(in.connectID), len(wire.ID{}))
		}
	default:
		return in, fmt.Errorf("technique %v needs no signalling", in.technique)
	}
	return in, nil
}

// permit reports as an error why a frontal of site may not make the request, and fills in
// what the registry knows of both ends.
func (d directory) permit(site overlay.SiteID, in *signalRequest) error {
	if in.asker.Job != in.target.Job {
		return fmt.Errorf("%w: %v asks for %v, which is a process of another job", overlay.ErrForbidden, in.asker, in.target)
	}
	var err error
	if in.askerSite, err = d.b.registry.Site(site); err != nil {
		return err
	}
	var found [2]registry.Entry
	entries := d.b.registry.Lookup(found[:0], []overlay.ProcessName{in.asker, in.target})
	asker, target := entries[0], entries[1]
	switch {
	case asker.Site == nil:
		return fmt.Errorf("%w: the asker, %v, is not known to broker %s; it must register before it dials", overlay.ErrUnknownProcess, in.asker, d.b.name)
	case asker.Point.Node.Site != site:
		return fmt.Errorf("%w: %v is a process of %s, not of %s", overlay.ErrForbidden, in.asker, asker.Point.Node.Site, site)
	case target.Site == nil:
		return fmt.Errorf("%w: %v is not known to broker %s", overlay.ErrUnknownProcess, in.target, d.b.name)
	case target.Point.Generation != in.generation:
		return fmt.Errorf("%w: %v is in generation %d, the asker knows generation %d; resolve it again", overlay.ErrStale, in.target, target.Point.Generation, in.generation)
	}
	for _, point := range []overlay.AccessPoint{asker.Point, target.Point} {
		if err := inTime(point, time.Now()); err != nil {
			return err
		}
	}
	in.entry = target
	in.askerNode, in.principal, in.askerLife = asker.Point.Node.Name, asker.Point.Principal, asker.Point.Generation
	return d.permitTechnique(in, asker.Point)
}

// permitTechnique checks the technique against the plan of the two sites.
func (d directory) permitTechnique(in *signalRequest, asker overlay.AccessPoint) error {
	g := d.b.policies.consult(d.b.log, in.askerSite.Profile.Site, in.entry.Point.Node.Site, in.asker.Job,
		[]overlay.Principal{in.principal, in.entry.Point.Principal})
	if g != nil {
		in.rule = g.Rule()
		if err := g.Err(); err != nil {
			in.denied = true
			return err
		}
		in.allowed = g.Allowances(in.asker.Job, [2]overlay.Principal{in.principal, in.entry.Point.Principal})
	}
	p := d.b.plans.decide(d.b.log, in.askerSite, in.entry.Site, d.b.proxyKinds(time.Now()), g)
	step := p.step(in.technique)
	if step == nil {
		if g != nil && g.Without(in.technique) != "" {
			in.denied = true
			return fmt.Errorf("%w: %s to %s by %v: %s", overlay.ErrForbidden, p.Asker, p.Target, in.technique, g.Without(in.technique))
		}
		return fmt.Errorf("%w: %s to %s by %v: %s", overlay.ErrNoPath, p.Asker, p.Target, in.technique, p.rejection(in.technique))
	}
	in.reason, in.via = step.Reason, step.Via
	if in.technique.Kind() == overlay.TargetDials {
		if err := d.checkConnectAddress(in, asker); err != nil {
			return err
		}
	}
	if in.frontal = d.b.sessions.byHolder(in.entry.Site.Holder); in.frontal == nil {
		return fmt.Errorf("%w: the frontal of %s has no session with broker %s since %v",
			overlay.ErrUnknownSite, p.Target, d.b.name, in.entry.Site.Since.UTC().Format(time.RFC3339))
	}
	return nil
}

// checkConnectAddress restricts the address that the target dials to the host that the asker
// registered for this kind of caller, inside or outside its site: an asker must not make other
// helpers dial arbitrary hosts.
func (d directory) checkConnectAddress(in *signalRequest, asker overlay.AccessPoint) error {
	addr, err := netip.ParseAddrPort(in.address)
	if err != nil {
		return malformed(fmt.Errorf("connect address: %w", err))
	}
	registered := asker.Public
	switch {
	case in.entry.Point.Node.Site == asker.Node.Site:
		registered = asker.Local
	case addr.Addr().Unmap().Is6() && asker.Public6.IsValid():
		registered = asker.Public6
	}
	if !registered.IsValid() {
		return fmt.Errorf("%w: the connect address %v of %v: %s registered no address of it for other sites; one counts only in the networks that the site declares (profile.networks in its frontal.yaml)",
			overlay.ErrForbidden, addr, in.asker, asker.Node.Site)
	}
	if addr.Addr().Unmap() != registered.Addr().Unmap() {
		return fmt.Errorf("%w: the connect address %v is not on the host of %v, which registered %v", overlay.ErrForbidden, addr, in.asker, registered)
	}
	return checkTarget("connect address", addr, d.b.cfg.AllowLoopback)
}

// arrange builds the message for each side: the signal for the target and, with a relay, the
// asker's assignment. The other techniques need no assignment. A connect address is passed on only
// with the technique it was checked for.
func (d directory) arrange(in *signalRequest) (*controlpb.Signal, *controlpb.Assignment, error) {
	message := &controlpb.Signal{
		Link: in.link[:], Technique: uint32(in.technique),
		Asker: control.ProcessToPB(in.asker), AskerSite: string(in.askerSite.Profile.Site), AskerNode: in.askerNode,
		Target: control.ProcessToPB(in.target), TargetGeneration: uint64(in.generation),
		Reason: in.reason, Offer: in.offer, SmallPackets: in.small,
		AskerPrincipal: control.PrincipalToPB(in.principal), TargetPrincipal: control.PrincipalToPB(in.entry.Point.Principal),
	}
	switch in.technique.Kind() {
	case overlay.ByProxy:
	case overlay.TargetDials:
		message.ConnectAddress, message.ConnectId = in.address, in.connectID
		return message, nil, nil
	default:
		return message, nil, nil
	}
	asker, target := in.askerSite.Profile, in.entry.Site.Profile
	need := registry.Need{
		Site: asker.Site, Node: in.askerNode, Now: time.Now(), OtherThan: in.otherThan, Proxy: decide.NeedOf(asker, target),
		Prefer4: !asker.IPv6 && !asker.IPv6Only || !target.IPv6 && !target.IPv6Only,
	}
	if len(in.allowed) > 0 {
		// If both ends have an allowance, the owner of the site whose name sorts first, so that the
		// choice does not depend on which end asks.
		need.Owner = slices.MinFunc(in.allowed, func(a, b overlay.Allowance) int { return cmp.Compare(a.Site, b.Site) }).Owner
	}
	offer, err := d.b.proxies.Assign(d.b.config().ProxyChoice, need)
	if err != nil {
		return nil, nil, err
	}
	in.proxy = offer.Name
	expires := offer.ProxyTime(time.Now()).Add(in.life)
	if in.reserved {
		message.AskerGeneration, message.LifeMs = uint64(in.askerLife), uint32(in.life.Milliseconds())
	}
	message.Relay = in.assignment(offer, 1, expires, uint64(d.b.config().RelayLimit))
	return message, in.assignment(offer, 0, expires, uint64(d.b.config().RelayLimit)), nil
}

// assignment issues the ticket for one end of the link.
func (in *signalRequest) assignment(offer registry.Offer, end uint8, expires time.Time, limit uint64) *controlpb.Assignment {
	claims := wire.Ticket{
		Link: in.link, End: end, Job: in.asker.Job, Asker: in.asker.Rank, Target: in.target.Rank,
		Proxy: offer.Name, Expires: uint64(expires.UnixMilli()), Limit: limit,
	}
	if offer.Named {
		claims.Principal = in.principal
	}
	copy(claims.Allowances[:], in.allowed)
	t := ticket.Issue(offer.Key, claims)
	a := &controlpb.Assignment{Proxy: offer.Name, Ticket: wire.Append(nil, &t), Limit: in.limit(offer)}
	for _, addr := range offer.Addresses {
		a.Addresses = append(a.Addresses, addr.String())
	}
	return a
}

// limit returns the lowest rate that the proxy will hold the link to.
func (in *signalRequest) limit(offer registry.Offer) *controlpb.RateLimit {
	low := offer.Limit
	if in.principal.Project != "" && offer.Named {
		low = offer.ProjectLimit
	}
	for _, a := range in.allowed {
		if a.Rate > 0 && (low == nil || a.Rate < low.Rate) {
			low = control.RateLimitToPB(quota.Rate(a.Rate), "policy of "+a.Key())
		}
	}
	return low
}

// pass calls the target's frontal and forwards its events to the asker up to the final one. The
// error is the one to report to the asker.
func (d directory) pass(stream grpc.ServerStreamingServer[controlpb.SignalEvent], in *signalRequest, message *controlpb.Signal) error {
	ctx, cancel := context.WithTimeout(stream.Context(), d.b.signallingMax)
	defer cancel()
	who := in.frontal.Peer()
	events, err := controlpb.NewTargetClient(in.frontal.Conn()).Signal(ctx, message)
	for err == nil {
		var event *controlpb.SignalEvent
		if event, err = events.Recv(); err != nil {
			break
		}
		switch event.GetKind() {
		case controlpb.SignalEvent_CONNECTED, controlpb.SignalEvent_ACCEPTED:
			if n := len(event.GetAnswer()); n > control.MaxNegotiation {
				return fmt.Errorf("%v: %w: an answer of %d bytes, at most %d are passed on", who, wire.ErrMalformed, n, control.MaxNegotiation)
			}
			err = stream.Send(&controlpb.SignalEvent{Kind: event.Kind, Answer: event.GetAnswer()})
			if event.Kind == controlpb.SignalEvent_CONNECTED {
				return err
			}
		case controlpb.SignalEvent_FAILED:
			return failure(who, event.GetFault())
		}
	}
	switch {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%w: %v ended the signalling request without a result", overlay.ErrUnreachable, who)
	case (ctx.Err() != nil || plain(err, codes.DeadlineExceeded)) && stream.Context().Err() == nil:
		return fmt.Errorf("%w: waited %v for %v to do its part of the link", overlay.ErrTimeout, d.b.signallingMax, who)
	}
	return fmt.Errorf("%v: %w", who, control.FromStatus(err))
}

// plain reports whether gRPC itself ended a call with the code, rather than an error of the
// handler: the far end may notice a deadline first.
func plain(err error, code codes.Code) bool {
	st := status.Convert(err)
	return st.Code() == code && len(st.Details()) == 0
}

// failure converts the fault that the target's side reported.
func failure(who control.Identity, f *controlpb.Fault) error {
	if f == nil {
		return fmt.Errorf("%w: %v gave no reason", overlay.ErrRefused, who)
	}
	return control.FaultErr(f)
}
