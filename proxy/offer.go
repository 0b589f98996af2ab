package proxy

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/ticket"
)

// How often the broker hears of the load: at least every offerEvery, and after
// a change, but not sooner than offerPause after the last time.
const (
	offerEvery = 5 * time.Second
	offerPause = 200 * time.Millisecond
	offerBound = 10 * time.Second // for the broker's answer
)

// offerer tells the broker what the proxy offers.
type offerer struct {
	server    *Server
	key       ticket.Key
	advertise []netip.AddrPort // as set
	listen    []netip.AddrPort // as bound
	log       *slog.Logger
}

// run serves one session with the broker until it ends.
func (o *offerer) run(ctx context.Context, session *control.Session) error {
	addresses := advertised(o.advertise, o.listen, session.LocalAddr().Addr())
	relays := controlpb.NewRelaysClient(session.Conn())
	if err := o.offer(ctx, relays, addresses); err != nil {
		return fmt.Errorf("offering to %v: %w", session.Peer(), err)
	}
	o.log.Info("offered to the broker", "broker", session.Peer().String(), "addresses", fmt.Sprint(addresses))
	every := time.NewTicker(offerEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-o.server.Changed():
			pause(ctx, offerPause)
		case <-every.C:
		}
		if err := o.offer(ctx, relays, addresses); err != nil {
			return fmt.Errorf("reporting load to %v: %w", session.Peer(), err)
		}
	}
}

func (o *offerer) offer(ctx context.Context, relays controlpb.RelaysClient, addresses []string) error {
	ctx, cancel := context.WithTimeout(ctx, offerBound)
	defer cancel()
	st := o.server.Status()
	_, err := relays.Offer(ctx, &controlpb.OfferRequest{
		Name: st.Name, Addresses: addresses, TicketKey: o.key[:],
		Live: uint32(st.Links + st.Waiting), Capacity: uint32(st.Capacity),
	})
	return control.FromStatus(err)
}

// advertised are the addresses to offer: those that are set, or else those
// listened on, where own stands for "any address of this host".
func advertised(set, listen []netip.AddrPort, own netip.Addr) []string {
	if len(set) == 0 {
		set = listen
	}
	var out []string
	for _, a := range set {
		if a.Addr().IsUnspecified() {
			a = netip.AddrPortFrom(own, a.Port())
		}
		out = append(out, a.String())
	}
	return out
}
