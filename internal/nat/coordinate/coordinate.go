// Package coordinate carries out the techniques that need both ends: simultaneous open, traversing
// TCP and hole punching. Each side runs its half, Ask at the asker and Answer at the target; they
// exchange an offer and an answer, which are opaque to the daemons that carry them.
//
//	asker                          target
//	prepare, learn own address
//	        ---------- offer ---------->
//	                               prepare, learn own address, decide
//	        <--------- answer ----------
//	open                           open
//	        <------- reserved port -----    a port for the next time
//
// It knows sockets and firewalls, but no process, job or broker. A PortPool holds the state that is
// kept between two traversals.
package coordinate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/limit/decode"
	"github.com/isthmus-grid/isthmus/internal/nat/traverse"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// MaxOffer is the largest offer or answer, in bytes.
const MaxOffer = 8 << 10

// Side is one end of coordinated traversals: a host and what is known about its site.
type Side struct {
	Address netip.Addr // address that faces the frontal or the broker
	Other   netip.Addr // source address of packets of the other IP version; not valid without one (OtherAddress)
	Profile overlay.SiteProfile

	// Reflectors returns the reflectors: those of Clocks are the broker, whose clock is the reference,
	// and is the same for every site of the grid.
	Reflectors func(context.Context) (Reflectors, error)

	Forbidden []netip.Prefix // networks that no peer may make this host contact

	// Permit, if not nil, returns why this host does not contact an address that a peer names as
	// its own.
	Permit func(netip.Addr) error

	Log *slog.Logger

	PortPool *PortPool        // nil: nothing is prepared ahead
	Engine   *traverse.Engine // nil: this process may not do traversing TCP
}

// Reflectors are the addresses of reflectors, at which a host learns its public address.
type Reflectors struct {
	TCP    []netip.AddrPort
	STUN   []netip.AddrPort
	STUN6  []netip.AddrPort // over IPv6, of hosts that STUN has over IPv4
	Clocks []netip.AddrPort // the broker's addresses, some of them in TCP; not empty unless TCP is
	Clock  string           // name of the broker; "" if it does not say it
}

// Filter reduces each list of addresses in the directory's answer to what keep returns of it.
func Filter(m *controlpb.ReflectorsResponse, keep func([]string) []string) {
	for _, list := range []*[]string{&m.Tcp, &m.Stun, &m.Tcp6, &m.Stun6, &m.Own} {
		*list = keep(*list)
	}
}

// ReadReflectors checks and converts the directory's answer.
func ReadReflectors(m *controlpb.ReflectorsResponse) (b Reflectors, err error) {
	parse := func(texts []string) (out []netip.AddrPort) {
		for _, text := range texts {
			a, parseErr := netip.ParseAddrPort(text)
			if parseErr != nil {
				err = fmt.Errorf("reflector %q: %w", text, parseErr)
				continue
			}
			out = append(out, a)
		}
		return out
	}
	b.TCP, b.STUN, b.STUN6 = parse(m.GetTcp()), parse(m.GetStun()), parse(m.GetStun6())
	b.Clocks, b.Clock = parse(m.GetOwn()), m.GetClock()
	if len(b.TCP) == 0 {
		return b, err
	}
	if b.TCP[0].Addr().Is6() { // the gateway's session is over IPv6, which leads to the others, too
		b.TCP = append(b.TCP, parse(m.GetTcp6())...)
	}
	if len(b.Clocks) == 0 { // an older broker
		b.Clocks = b.TCP[:1:1]
	}
	return b, err
}

// Exchange carries the offer to the target's side and returns its answer.
type Exchange func(ctx context.Context, offer []byte) (answer []byte, err error)

// Knows reports whether the package carries out t.
func Knows(t overlay.Technique) bool { return techniques[t].ask != nil }

// AsksByTCP reports whether t opens TCP connections to reflectors, in addition to the one that it
// makes.
func AsksByTCP(t overlay.Technique) bool { return t.Kind() == overlay.BothDial }

// techniques says how each technique is carried out, from either side.
var techniques = map[overlay.Technique]struct {
	ask    func(s *Side, ctx context.Context, peer string, port uint16, ex Exchange) (net.Conn, error)
	answer func(s *Side, ctx context.Context, peer string, offer []byte, reply func([]byte) error) (net.Conn, error)
}{
	overlay.SimultaneousOpen: {(*Side).askOpen, (*Side).answerOpen},
	overlay.Traversing:       {(*Side).askTraverse, (*Side).answerTraverse},
	overlay.HolePunching:     {(*Side).askPunch, (*Side).answerPunch},
}

// Ask carries out t from the asker's side and returns the connection: a *net.TCPConn, or a
// *punch.Conn of hole punching. peer identifies the target; the caller must always use the same
// name for it. port is the port to dial from, 0 for any (overlay.Step.Port). For a step over IPv6
// the side is OverIPv6. ex is called once or more, sequentially; the last call is that of the
// connection. Ask ends with ctx.
func (s *Side) Ask(ctx context.Context, t overlay.Technique, peer string, port uint16, ex Exchange) (net.Conn, error) {
	if !Knows(t) {
		return nil, fmt.Errorf("%w: technique %v", wire.ErrVersion, t)
	}
	return techniques[t].ask(s, ctx, peer, port, ex)
}

// Answer carries out t from the target's side. It calls reply once, when it knows its answer, and
// then opens its end. The connection is nil, without an error, when the asker only requested a
// preparation. peer identifies the asker; the caller must always use the same name for it.
func (s *Side) Answer(ctx context.Context, t overlay.Technique, peer string, offer []byte, reply func(answer []byte) error) (net.Conn, error) {
	if len(offer) > MaxOffer {
		return nil, fmt.Errorf("%w: an offer of %d bytes", wire.ErrMalformed, len(offer))
	}
	if !Knows(t) {
		return nil, fmt.Errorf("%w: technique %v", wire.ErrVersion, t)
	}
	return techniques[t].answer(s, ctx, peer, offer, reply)
}

// checkTarget rejects what is neither a public nor a site address: a peer's offer must not become a
// way into this host or its networks.
func (s *Side) checkTarget(a netip.AddrPort) error {
	ip := a.Addr().Unmap()
	if !ip.IsValid() || ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() {
		return fmt.Errorf("%w: the peer names %v as its address", overlay.ErrForbidden, a)
	}
	for _, p := range s.Forbidden {
		if p.Contains(ip) {
			return fmt.Errorf("%w: the peer names %v as its address, which this site's settings deny", overlay.ErrForbidden, a)
		}
	}
	if s.Permit != nil {
		if err := s.Permit(ip); err != nil {
			return fmt.Errorf("the peer names %v as its address: %w", a, err)
		}
	}
	return nil
}

func marshal(m proto.Message) []byte {
	b, err := proto.Marshal(m)
	if err != nil {
		panic(err) // only for strings that are no UTF-8
	}
	return b
}

func unmarshal(b []byte, m proto.Message) error {
	if err := decode.Unmarshal(b, m); err != nil {
		return fmt.Errorf("%w: %w", wire.ErrMalformed, err)
	}
	return nil
}

// profileOf decodes the profile that the peer sent. It decides only how hard the two ends try; it
// grants no permission.
func profileOf(b []byte) (overlay.SiteProfile, error) {
	var m controlpb.Profile
	if err := unmarshal(b, &m); err != nil {
		return overlay.SiteProfile{}, err
	}
	return control.ProfileFromPB("peer", &m)
}

func parseAddr(what, text string) (netip.AddrPort, error) {
	a, err := netip.ParseAddrPort(text)
	if err != nil {
		return a, fmt.Errorf("%w: %s: %w", wire.ErrMalformed, what, err)
	}
	return a, nil
}

// cause returns the cause of ctx's end in preference to the error that it led to.
func cause(ctx context.Context, err error) error {
	if c := context.Cause(ctx); c != nil && errors.Is(err, ctx.Err()) {
		return c
	}
	return err
}
