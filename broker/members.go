package broker

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/isthmus-grid/isthmus/broker/registry"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/limit/quota"
	"github.com/isthmus-grid/isthmus/internal/pki/ticket"
	"github.com/isthmus-grid/isthmus/overlay"
)

// claim makes a session the one that acts for its peer, a frontal or a proxy.
func (b *Broker) claim(s *control.Session) error {
	err := b.endpoint.Claim(s)
	if errors.Is(err, overlay.ErrForbidden) { // else it has ended
		b.log.Warn("session refused", "peer", s.Peer().String(), "from", s.RemoteAddr().String(), "error", err)
		b.auditRefusal(s.Peer().String(), "session", err)
	}
	if err != nil {
		return fmt.Errorf("broker %s: %w", b.name, err)
	}
	return nil
}

// sites implements the sites service, by which frontals join.
type sites struct {
	controlpb.UnimplementedSitesServer
	b *Broker
}

// Join implements controlpb.SitesServer.
func (s sites) Join(ctx context.Context, req *controlpb.JoinRequest) (*controlpb.JoinResponse, error) {
	session, holder, err := s.b.caller(ctx, control.RoleFrontal)
	if err != nil {
		return nil, s.b.fail(err)
	}
	if err := s.b.claim(session); err != nil {
		return nil, s.b.fail(err)
	}
	site := session.Peer().Site
	profile, err := control.ProfileFromPB(site, req.GetProfile())
	if err != nil {
		return nil, s.b.fail(malformed(err))
	}
	if err := s.b.measured.note(site, req.GetMeasured()); err != nil {
		return nil, s.b.fail(fmt.Errorf("what %s measured: %w", site, err))
	}
	if err := s.b.policies.note(site, req.GetPolicy()); err != nil {
		return nil, s.b.fail(malformed(err))
	}
	if s.b.entering != nil {
		s.b.entering()
	}
	old, err := s.b.registry.Join(profile, holder, time.Now())
	if err != nil {
		return nil, s.b.fail(err)
	}
	if err := s.b.entered(session, holder); err != nil {
		return nil, s.b.fail(err)
	}
	s.b.replaced(old, session.Peer())
	session.Prepare() // for the first signalling request to the site
	if m := s.b.measured.get(site); m != nil {
		for _, d := range m.Differences(profile) {
			s.b.log.Warn("a site's declared profile is not what it measured; the declared one holds", "site", site, "field", d.Field,
				"declared", d.Declared, "measured", d.Measured, "how", d.How, "node", m.Node)
		}
	}
	s.b.log.Info("site joined", "site", site, "inbound", profile.Inbound.String(), "ports", profile.Ports.String(),
		"filter", profile.Filter.String(), "nat", profile.NAT.Mapping.String(), "nat_udp", profile.DatagramNAT().Mapping.String(), "egress", profile.Egress.String(),
		"gateway_only", profile.GatewayOnly, "forbidden", fmt.Sprint(profile.Forbidden), "policy", s.b.policies.status(site).text())
	return &controlpb.JoinResponse{Broker: s.b.name, Epoch: s.b.epoch, Policy: true, Limits: true}, nil
}

// relays implements the relays service, by which proxies offer themselves.
type relays struct {
	controlpb.UnimplementedRelaysServer
	b *Broker
}

// maxAddresses bounds the addresses that a link's ends try.
const maxAddresses = 8

// Offer implements controlpb.RelaysServer.
func (r relays) Offer(ctx context.Context, req *controlpb.OfferRequest) (*controlpb.OfferResponse, error) {
	session, holder, err := r.b.caller(ctx, control.RoleProxy)
	if err != nil {
		return nil, r.b.fail(err)
	}
	if err := r.b.claim(session); err != nil {
		return nil, r.b.fail(err)
	}
	offer, err := r.offer(session.Peer(), req)
	if err != nil {
		r.b.auditRefusal(session.Peer().String(), "offer", err)
		return nil, r.b.fail(err)
	}
	removed, err := r.b.ownOnly(ctx, session.RemoteAddr().Addr(), &offer)
	for _, why := range removed {
		r.b.log.Warn("an address that a proxy advertises is not named to sites", "error", why)
		r.b.auditRefusal(session.Peer().String(), "offer", why)
	}
	if err != nil {
		return nil, r.b.fail(err)
	}
	if r.b.entering != nil {
		r.b.entering()
	}
	old, err := r.b.proxies.Offer(offer, holder)
	if err != nil {
		return nil, r.b.fail(err)
	}
	if err := r.b.entered(session, holder); err != nil {
		return nil, r.b.fail(err)
	}
	r.b.replaced(old, session.Peer())
	r.b.log.Debug("proxy offers itself", "proxy", offer.Name, "addresses", fmt.Sprint(offer.Addresses),
		"live", offer.Live, "capacity", offer.Capacity, "draining", offer.Draining)
	resp := &controlpb.OfferResponse{}
	if offer.Draining {
		for _, p := range r.b.proxies.List() {
			if p.Name != offer.Name && !p.Draining && p.Live < p.Capacity {
				resp.Others++
			}
		}
	}
	return resp, nil
}

// rateLimit returns a copy of what a proxy says of a limit, with no more text than it may have.
func rateLimit(m *controlpb.RateLimit) *controlpb.RateLimit {
	return control.RateLimitToPB(quota.Rate(min(m.GetRate(), 1<<62)), m.GetRule())
}

// offer validates an offer.
func (r relays) offer(peer control.Identity, req *controlpb.OfferRequest) (registry.Offer, error) {
	o := registry.Offer{Name: req.GetName(), Live: int(req.GetLive()), Capacity: int(req.GetCapacity()), Draining: req.GetDraining(), Named: req.GetNamedTickets(), Limited: req.GetLimitedTickets(),
		Limit: rateLimit(req.GetLimit()), ProjectLimit: rateLimit(req.GetProjectLimit())}
	if o.Name != peer.Name {
		return o, fmt.Errorf("%w: the certificate names proxy %s, the offer proxy %q", overlay.ErrForbidden, peer.Name, o.Name)
	}
	if o.Capacity == 0 {
		return o, malformed(fmt.Errorf("%v offers room for 0 links; set its capacity", peer))
	}
	if n := len(req.GetAddresses()); n == 0 || n > maxAddresses {
		return o, malformed(fmt.Errorf("%v offers %d addresses, want 1 to %d", peer, n, maxAddresses))
	}
	for _, text := range req.GetAddresses() {
		addr, err := netip.ParseAddrPort(text)
		if err != nil {
			return o, malformed(fmt.Errorf("%v offers address %q: %w", peer, text, err))
		}
		if err := checkTarget(fmt.Sprintf("%v: address", peer), addr, r.b.cfg.AllowLoopback); err != nil {
			return o, err
		}
		o.Addresses = append(o.Addresses, addr)
	}
	if req.GetStun() != "" {
		addr, err := netip.ParseAddrPort(req.GetStun())
		if err != nil {
			return o, malformed(fmt.Errorf("%v offers STUN at %q: %w", peer, req.GetStun(), err))
		}
		if err := checkTarget(fmt.Sprintf("%v: STUN address", peer), addr, r.b.cfg.AllowLoopback); err != nil {
			return o, err
		}
		o.STUN = addr
	}
	key, err := ticket.ParseKey(req.GetTicketKey())
	if err != nil {
		return o, malformed(fmt.Errorf("%v: %w", peer, err))
	}
	o.Key = key
	if ms := req.GetClockMs(); ms != 0 {
		o.Clock, o.Heard = time.UnixMilli(ms), time.Now()
	}
	return o, nil
}
