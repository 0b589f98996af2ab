package proxy

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier/multihome"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/pki/ticket"
	"github.com/isthmus-grid/isthmus/internal/sleep"
)

// When the broker is notified of the load: at least every offerEvery, and after a change, but not
// within offerPause of it.
const (
	offerEvery = 5 * time.Second
	offerPause = 200 * time.Millisecond
	offerBound = 10 * time.Second // for the broker's answer
)

// offerer announces the proxy to the brokers.
type offerer struct {
	server    *Server
	key       ticket.Key
	advertise []netip.AddrPort // as configured
	listen    []netip.AddrPort // as bound
	stunPort  uint16           // 0: no STUN server
	log       *slog.Logger

	mu       sync.Mutex // guards sessions
	sessions []*control.Session
}

// run serves one session with the broker until it ends.
func (o *offerer) run(ctx context.Context, session *control.Session) error {
	defer o.joined(session)()
	addresses := advertised(o.advertise, o.listen, multihome.Outward(session.LocalAddr().Addr())) // the broker may be on this host
	stun := stunAddress(addresses, o.stunPort)
	relays := controlpb.NewRelaysClient(session.Conn())
	changed := o.server.Changed()
	if err := o.offer(ctx, relays, addresses, stun); err != nil {
		return fmt.Errorf("offering to %v: %w", session.Peer(), err)
	}
	o.log.Info("offered to the broker", "broker", session.Peer().String(), "addresses", fmt.Sprint(addresses), "stun", stun)
	every := time.NewTicker(offerEvery)
	defer every.Stop()
	for {
		tick := false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
			sleep.For(ctx, offerPause)
		case <-every.C:
			tick = true
		}
		changed = o.server.Changed() // before the state is read, so that no change is missed
		if err := o.offer(ctx, relays, addresses, stun); err != nil {
			return fmt.Errorf("reporting load to %v: %w", session.Peer(), err)
		}
		// The sites of links are requested while the links live: for processes that have ended the
		// broker knows no site.
		if report := o.server.trafficReport(); tick || len(report.Ask) > 0 {
			if err := o.reportTraffic(ctx, session, report); err != nil {
				o.log.Debug("cannot report the traffic to the broker; retrying", "every", offerEvery.String(), "error", err)
			}
		}
	}
}

func (o *offerer) offer(ctx context.Context, relays controlpb.RelaysClient, addresses []netip.AddrPort, stun string) error {
	ctx, cancel := context.WithTimeout(ctx, offerBound)
	defer cancel()
	st := o.server.Status()
	quota := o.server.set.Quota
	resp, err := relays.Offer(ctx, &controlpb.OfferRequest{
		Limit: control.RateLimitToPB(quota.Lowest(false)), ProjectLimit: control.RateLimitToPB(quota.Lowest(true)),
		Name: st.Name, Addresses: stringsOf(addresses), TicketKey: o.key[:],
		Live: uint32(st.Links + st.Waiting), Capacity: uint32(st.Capacity), Stun: stun, Draining: st.Draining, NamedTickets: true, LimitedTickets: true, ClockMs: o.server.clock().UnixMilli(),
	})
	if err == nil {
		o.server.elsewhere.Store(resp.GetOthers() > 0)
	}
	return control.FromStatus(err)
}

// advertised returns the addresses to offer: those configured, or else those listened on, with own
// in place of "any address of this host".
func advertised(set, listen []netip.AddrPort, own netip.Addr) []netip.AddrPort {
	if len(set) == 0 {
		set = listen
	}
	var out []netip.AddrPort
	for _, a := range set {
		if a.Addr().IsUnspecified() {
			a = netip.AddrPortFrom(own, a.Port())
		}
		out = append(out, a)
	}
	return out
}

// stunAddress returns where the STUN server is reached: on the host of the first address; ""
// without a STUN server.
func stunAddress(addresses []netip.AddrPort, port uint16) string {
	if port == 0 {
		return ""
	}
	return netip.AddrPortFrom(addresses[0].Addr(), port).String()
}

func stringsOf(addresses []netip.AddrPort) []string {
	out := make([]string, len(addresses))
	for i, a := range addresses {
		out[i] = a.String()
	}
	return out
}
