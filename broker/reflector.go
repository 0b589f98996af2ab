package broker

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/broker/registry"
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
	callBackMax     = 5 * time.Second // for a proxy to carry out one
	seenMax         = 1 << 16         // addresses eligible for a call-back
	seenLife        = 10 * time.Minute
	maxReflectors   = 16 // in one answer
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

// ownAddresses returns the broker's addresses as a reflector, as a peer on session s reaches
// them; stun is invalid without a STUN server.
func (b *Broker) ownAddresses(s *control.Session) (tcp, stun netip.AddrPort) {
	tcp = b.cfg.Advertise
	own := s.LocalAddr()
	if b.reflector.listening.Addr().IsUnspecified() && !b.cfg.AllowLoopback { // a frontal on this host shows an address that no node can reach
		own = netip.AddrPortFrom(multihome.Outward(own.Addr()), own.Port())
	}
	if !tcp.IsValid() || tcp.Addr().Is4() != own.Addr().Unmap().Is4() {
		tcp = own // a peer that connected over the other IP version may have no other route
	}
	if b.reflector.sockets != nil {
		stun = netip.AddrPortFrom(tcp.Addr(), b.reflector.sockets.Port())
	}
	return tcp, stun
}

// furtherIPv6 returns the first IPv6 address of a proxy after the address by which it is named.
func furtherIPv6(p registry.Proxy) netip.AddrPort {
	if i := slices.IndexFunc(p.Addresses[1:], func(a netip.AddrPort) bool { return a.Addr().Is6() }); i >= 0 {
		return p.Addresses[1+i]
	}
	return netip.AddrPort{}
}

// stunOverIPv6 returns a proxy's STUN server at that address. Its port is that of all the proxy's
// addresses unless the admin binds it to one; then nothing listens there.
func stunOverIPv6(p registry.Proxy) netip.AddrPort {
	if at := furtherIPv6(p); at.IsValid() && p.STUN.IsValid() {
		return netip.AddrPortFrom(at.Addr(), p.STUN.Port())
	}
	return netip.AddrPort{}
}

// overIPv6 returns this host's IPv6 address as a reflector beside tcp and stun, as ownAddresses;
// invalid where a listener has one address only, or the host has none.
func (b *Broker) overIPv6(tcp, stun netip.AddrPort) (tcp6, stun6 netip.AddrPort) {
	at := b.reflector.listening
	if !tcp.Addr().Unmap().Is4() || !at.Addr().IsUnspecified() || !at.Addr().Is6() {
		return tcp6, stun6
	}
	ip := multihome.OtherVersion(tcp.Addr())
	if !ip.IsValid() {
		return tcp6, stun6
	}
	if stun.IsValid() && b.reflector.sockets.OverIPv6() {
		stun6 = netip.AddrPortFrom(ip, stun.Port())
	}
	return netip.AddrPortFrom(ip, at.Port()), stun6
}

// Bearings implements controlpb.DirectoryServer.
func (d directory) Bearings(ctx context.Context, _ *controlpb.ReflectorsRequest) (*controlpb.ReflectorsResponse, error) {
	s, _, err := d.b.caller(ctx, control.RoleFrontal)
	if err != nil {
		return nil, d.b.fail(err)
	}
	d.b.counters.reflectorQueries.Add(1)
	tcp, stun := d.b.ownAddresses(s)
	resp := &controlpb.ReflectorsResponse{Tcp: []string{tcp.String()}, Clock: d.b.name}
	if stun.IsValid() {
		resp.Stun = append(resp.Stun, stun.String())
	}
	tcp6, stun6 := d.b.overIPv6(tcp, stun)
	if tcp6.IsValid() {
		resp.Tcp6 = append(resp.Tcp6, tcp6.String())
	}
	if stun6.IsValid() {
		resp.Stun6 = append(resp.Stun6, stun6.String())
	}
	for _, p := range d.b.proxies.List() {
		if len(resp.Tcp) == maxReflectors {
			break
		}
		resp.Tcp = append(resp.Tcp, p.Addresses[0].String())
		if p.STUN.IsValid() {
			resp.Stun = append(resp.Stun, p.STUN.String())
		}
		if tcp6 := furtherIPv6(p); tcp6.IsValid() {
			resp.Tcp6 = append(resp.Tcp6, tcp6.String())
		}
		if stun6 := stunOverIPv6(p); stun6.IsValid() {
			resp.Stun6 = append(resp.Stun6, stun6.String())
		}
	}
	resp.Time = time.Now().UnixNano() // last, so that the work before it does not age the value
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
	tcp, stun := d.b.ownAddresses(s)
	tcp6, stun6 := d.b.overIPv6(tcp, stun)
	if from == tcp || from == stun || from == tcp6 || from == stun6 {
		return d.b.reflector.point().CallBack(ctx, target), nil
	}
	for _, p := range d.b.proxies.List() {
		if from != p.STUN && from != stunOverIPv6(p) && !slices.Contains(p.Addresses, from) {
			continue
		}
		proxy := d.b.sessions.byHolder(p.Holder)
		if proxy == nil {
			break // it has just left
		}
		ctx, cancel := context.WithTimeout(ctx, callBackMax)
		defer cancel()
		resp, err := controlpb.NewVantagesClient(proxy.Conn()).CallBack(ctx, &controlpb.CallBackRequest{To: target.To.String(), Udp: target.UDP, Nonce: target.Nonce[:], AfterS: req.GetAfterS(), Quiet: target.Quiet, FromPort: uint32(target.Port)})
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
	Queries   uint64                  `json:"bearings"`
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
