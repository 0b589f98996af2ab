package broker

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier/multihome"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/limit/accept"
	"github.com/isthmus-grid/isthmus/internal/nat/reflector"
	"github.com/isthmus-grid/isthmus/internal/nat/stunserver"
	"github.com/isthmus-grid/isthmus/overlay"
)

// A broker is a reflector, and knows the others: its proxies.

// Bounds of call-backs. A site that measures itself needs some twenty at once, and measures once an
// hour.
const (
	callBackBurst   = 64              // of one site, at once
	callBackEvery   = 5 * time.Second // of one site, beyond the burst
	callBacksAtOnce = 256             // of all sites
	callBackMax     = 7 * time.Second // for a proxy to carry out one, which may be far away
	seenMax         = 1 << 16         // addresses eligible for a call-back
	seenLife        = 10 * time.Minute
)

// reflectorState is the broker's state as a reflector.
type reflectorState struct {
	observer *reflector.Observer
	seen     *reflector.Seen // addresses that contacted the broker over TCP
	rates    *reflector.Rates[overlay.SiteID]
	inFlight chan struct{} // one place for each call-back
	stun     *stunserver.Server

	// Set before the first session.
	sockets   *reflector.Sockets // nil: no STUN
	listening netip.AddrPort     // where Serve accepts sessions and observe frames
}

func newReflectorState(by string, places *accept.HalfOpen, log *slog.Logger) reflectorState {
	v := reflectorState{
		seen:     reflector.NewSeen(seenMax, seenLife),
		rates:    reflector.NewRates[overlay.SiteID](callBackBurst, callBackEvery),
		inFlight: make(chan struct{}, callBacksAtOnce), stun: new(stunserver.Server),
	}
	v.observer = reflector.NewObserver(by, places, 0, func(a netip.AddrPort) { v.seen.Note(a.Addr(), time.Now()) })
	v.observer.Log = log
	return v
}

// point returns what the broker itself calls back from.
func (v *reflectorState) point() reflector.Point {
	return reflector.Point{Observer: v.observer, Sockets: v.sockets}
}

// openSTUN opens the sockets of stun_listen. If that fails, the broker still starts: it serves
// everything but STUN.
func (b *Broker) openSTUN(ctx context.Context) {
	if !b.cfg.STUNListen.IsValid() {
		return
	}
	s, err := reflector.Listen(ctx, b.cfg.STUNListen)
	if err != nil {
		b.log.Warn("no STUN server: sites cannot learn their UDP mapping here; if a proxy on this host has the port, set stun_listen to another or to \"\"", "error", err)
		return
	}
	b.reflector.sockets = s
}

// serveSTUN serves the sockets of openSTUN, if any, until ctx ends.
func (b *Broker) serveSTUN(ctx context.Context) {
	if b.reflector.sockets == nil {
		return
	}
	if err := b.reflector.sockets.Serve(ctx, b.reflector.stun, b.reflector.observer); err != nil {
		b.log.Error("the STUN server ended", "error", err)
	}
}

// ownAddresses returns the broker's addresses as a reflector, first that at which a peer on session s
// reaches it.
func (b *Broker) ownAddresses(s *control.Session) []reflectorAddress {
	own, at := s.LocalAddr(), b.reflector.listening
	if at.Addr().IsUnspecified() && !b.cfg.AllowLoopback { // a frontal on this host shows an address that no node can reach
		own = netip.AddrPortFrom(multihome.Outward(own.Addr()), own.Port())
	}
	var all []reflectorAddress
	for _, tcp := range ofBothVersions(b.cfg.Advertise, own, otherThan(own.Addr(), at, multihome.Beside)) {
		a := reflectorAddress{tcp: tcp}
		if sockets := b.reflector.sockets; sockets != nil && sockets.Serves(tcp.Addr()) {
			a.stun = netip.AddrPortFrom(tcp.Addr(), sockets.Port())
		}
		all = append(all, a)
	}
	return all
}

// otherThan returns where a listener is reached over the IP version that is not own's, given the host's
// address beside own; not valid if it does not listen there.
func otherThan(own netip.Addr, listening netip.AddrPort, beside func(netip.Addr) netip.Addr) netip.AddrPort {
	if ip := listening.Addr(); !ip.IsUnspecified() || !ip.Is6() { // [::] is IPv4's, too
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(beside(own), listening.Port())
}

// Reflectors implements controlpb.DirectoryServer.
func (d directory) Reflectors(ctx context.Context, _ *controlpb.ReflectorsRequest) (*controlpb.ReflectorsResponse, error) {
	s, _, err := d.b.caller(ctx, control.RoleFrontal)
	if err != nil {
		return nil, d.b.fail(err)
	}
	d.b.counters.reflectorQueries.Add(1)
	resp := listReflectors(d.b.ownAddresses(s), d.b.proxies.List())
	resp.Clock, resp.Time = d.b.name, time.Now().UnixNano() // last, so that the work before it does not age the value
	return resp, nil
}

// CallBack implements controlpb.DirectoryServer.
func (d directory) CallBack(ctx context.Context, req *controlpb.CallBackRequest) (*controlpb.CallBackResponse, error) {
	resp, err := d.callBack(ctx, req)
	who := control.SessionOf(ctx).Peer().String()
	if err != nil {
		d.b.counters.callBacksRefused.Add(1)
		d.b.log.Warn("call-back refused", "by", who, "to", req.GetTo(), "udp", req.GetUdp(), "from", req.GetFrom(), "error", err)
		d.b.auditRefusal(fmt.Sprint(who), "call-back", err)
		return nil, d.b.fail(err)
	}
	d.b.counters.callBacks[min(int(resp.Outcome), len(d.b.counters.callBacks)-1)].Add(1)
	d.b.log.Info("call-back", "by", who, "to", req.GetTo(), "udp", req.GetUdp(), "from", req.GetFrom(), "outcome", resp.Outcome.String(), "text", resp.Text)
	return resp, nil
}

func (d directory) callBack(ctx context.Context, req *controlpb.CallBackRequest) (*controlpb.CallBackResponse, error) {
	s, _, err := d.b.caller(ctx, control.RoleFrontal)
	if err != nil {
		return nil, err
	}
	target, err := reflector.ParseTarget(req, d.b.cfg.AllowLoopback)
	if err != nil {
		return nil, err
	}
	now, ip := time.Now(), target.To.Addr()
	if ip != s.RemoteAddr().Addr() && !d.b.reflector.seen.Has(ip, now) {
		return nil, fmt.Errorf("%w: call back %v: neither does the session of %v come from %v, nor was broker %s asked an observe frame from there within %v",
			overlay.ErrForbidden, target.To, s.Peer(), ip, d.b.name, seenLife)
	}
	if wait := d.b.reflector.rates.Take(s.Peer().Site, now); wait > 0 {
		return nil, fmt.Errorf("%w: %s has been called back as often as it may; again in %v", overlay.ErrOverloaded, s.Peer().Site, wait.Round(time.Second))
	}
	select {
	case d.b.reflector.inFlight <- struct{}{}:
		defer func() { <-d.b.reflector.inFlight }()
	default:
		return nil, fmt.Errorf("%w: %d call-backs are under way, the broker's limit", overlay.ErrOverloaded, callBacksAtOnce)
	}
	return d.callBackFrom(ctx, s, target, req)
}

// callBackFrom makes the reflector that the request names call back.
func (d directory) callBackFrom(ctx context.Context, s *control.Session, target reflector.Target, req *controlpb.CallBackRequest) (*controlpb.CallBackResponse, error) {
	if req.GetFrom() == "" {
		return d.b.reflector.point().CallBack(ctx, target), nil
	}
	from, err := netip.ParseAddrPort(req.GetFrom())
	if err != nil {
		return nil, malformed(fmt.Errorf("call back from %q: %w", req.GetFrom(), err))
	}
	has := func(a reflectorAddress) bool { return from == a.tcp || from == a.stun }
	if slices.ContainsFunc(d.b.ownAddresses(s), has) {
		return d.b.reflector.point().CallBack(ctx, target), nil
	}
	for _, p := range d.b.proxies.List() {
		if !slices.Contains(p.Addresses, from) && !slices.ContainsFunc(proxyAddresses(p), has) {
			continue
		}
		proxy := d.b.sessions.byHolder(p.Holder)
		if proxy == nil {
			break // it has just left
		}
		ctx, cancel := context.WithTimeout(ctx, callBackMax)
		defer cancel()
		resp, err := controlpb.NewReflectorClient(proxy.Conn()).CallBack(ctx, &controlpb.CallBackRequest{To: target.To.String(), Udp: target.UDP, Nonce: target.Nonce[:], AfterS: req.GetAfterS(), Quiet: target.Quiet, FromPort: uint32(target.Port)})
		if err != nil {
			return nil, fmt.Errorf("%v: %w", proxy.Peer(), control.FromStatus(err))
		}
		return resp, nil
	}
	return nil, fmt.Errorf("%w: no reflector has the address %v; ask for the reflectors again", overlay.ErrUnreachable, from)
}

// ReflectorStatus is the broker's activity as a reflector.
type ReflectorStatus struct {
	STUN      string                  `json:"stun,omitempty"` // port, "" without a STUN server
	Observer  reflector.ObserverStats `json:"observer"`
	Answers   stunserver.Stats        `json:"stun_answers"`
	Queries   uint64                  `json:"queries"`
	CallBacks map[string]uint64       `json:"call_backs"` // by outcome
	Refused   uint64                  `json:"call_backs_refused"`
}

func (b *Broker) reflectorStatus() ReflectorStatus {
	s := ReflectorStatus{
		Observer: b.reflector.observer.Stats(), Answers: b.reflector.stun.Stats(),
		Queries: b.counters.reflectorQueries.Load(), CallBacks: map[string]uint64{}, Refused: b.counters.callBacksRefused.Load(),
	}
	if b.reflector.sockets != nil {
		s.STUN = fmt.Sprintf(":%d", b.reflector.sockets.Port())
	}
	for i := range b.counters.callBacks {
		if n := b.counters.callBacks[i].Load(); n > 0 {
			s.CallBacks[controlpb.CallBackResponse_Outcome(i).String()] = n
		}
	}
	return s
}
