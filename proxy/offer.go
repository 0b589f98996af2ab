package proxy

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
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
	stun      stunServer       // nil: none
	log       *slog.Logger

	mu       sync.Mutex // guards sessions
	sessions []*control.Session
}

// run serves one session with the broker until it ends.
func (o *offerer) run(ctx context.Context, session *control.Session) error {
	defer o.joined(session)()
	own := multihome.Outward(session.LocalAddr().Addr()) // the broker may be on this host
	addresses := advertised(o.advertise, o.listen, own, multihome.Beside(own))
	stun := stunAddress(addresses, o.stun)
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

// maxOffered bounds the addresses offered: a broker takes no more.
const maxOffered = 8

// advertised returns the addresses to offer: those configured, or else those listened on, with own and
// other, this host's addresses of the two versions of IP, in place of "any address of this host". other
// is not valid if there is none.
func advertised(set, listen []netip.AddrPort, own, other netip.Addr) (out []netip.AddrPort) {
	if len(set) == 0 {
		set = listen
	}
	for _, a := range set {
		if !a.Addr().IsUnspecified() {
			out = append(out, a)
			continue
		}
		ips := slices.DeleteFunc([]netip.Addr{own, other}, func(ip netip.Addr) bool {
			return !ip.IsValid() || a.Addr().Is4() && ip.Is6() // [::] is IPv4's, too
		})
		if len(ips) == 0 {
			ips = []netip.Addr{own} // it came from there
		}
		for _, ip := range ips {
			out = append(out, netip.AddrPortFrom(ip, a.Port()))
		}
	}
	return out[:min(len(out), maxOffered)]
}

// A stunServer is where this proxy's STUN server listens.
type stunServer interface {
	Port() uint16
	Serves(netip.Addr) bool // ip's version of IP
}

// stunAddress returns where the STUN server is reached: on the host of the first address whose version
// of IP it serves; "" without a STUN server.
func stunAddress(addresses []netip.AddrPort, s stunServer) string {
	if s == nil {
		return ""
	}
	i := slices.IndexFunc(addresses, func(a netip.AddrPort) bool { return s.Serves(a.Addr()) })
	if i < 0 {
		return ""
	}
	return netip.AddrPortFrom(addresses[i].Addr(), s.Port()).String()
}

func stringsOf(addresses []netip.AddrPort) []string {
	out := make([]string, len(addresses))
	for i, a := range addresses {
		out[i] = a.String()
	}
	return out
}
