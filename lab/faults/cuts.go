package faults

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/isthmus-grid/isthmus/internal/sleep"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/overlay"
)

// A cut is one way to end carriers.
type cut struct {
	name string

	// hits returns its effect on a way's carrier.
	hits func(way) hit

	// spares reports whether another path works while the way's own is away.
	spares func(way) bool

	// multihomed gives the asker's site a second uplink.
	multihomed bool

	// do cuts. The returned function restores the path; nil means that the path was never away,
	// though the carrier is dead.
	do func(context.Context, *site) (undo func(context.Context) error, err error)
}

// A hit is the effect of a cut on a carrier.
type hit uint8

const (
	misses  hit = iota // nothing may happen
	perhaps            // the carrier may live or die
	kills
)

// site is where a cut is made.
type site struct {
	way  way
	lab  *lab.Lab
	grid *grid.Grid
	used carrierState // carrier that the sender uses for the stream
}

func always(way) bool { return true }

func either(kill bool) hit {
	if kill {
		return kills
	}
	return misses
}

var cuts = []cut{
	{
		name:   "proxy",
		hits:   func(w way) hit { return either(w.technique == overlay.Relay) },
		spares: always, // there are two
		do:     cutProxy,
	},
	{name: "rst", hits: func(w way) hit { return either(!w.datagrams) }, spares: always, do: cutReset},
	{name: "drop", hits: func(way) hit { return kills }, spares: always, do: cutDrop},
	{
		name:   "gateway",
		hits:   func(w way) hit { return either(w.via) },
		spares: func(w way) bool { return !w.via },
		do:     cutGateway,
	},
	{name: "address", hits: func(way) hit { return kills }, spares: always, do: cutAddress},
	{
		name: "conntrack",
		hits: func(w way) hit {
			if w.tracked && !w.strict {
				return perhaps // the firewall picks the connection up again with its next packet out
			}
			return either(w.strict)
		},
		// A strict firewall has forgotten every connection of its site, including the reserve
		// relay's and those to the broker, but lets new ones through.
		spares: always,
		do:     cutConntrack,
	},
	{ // one relay is not measured against another: a link without another kind of path stays
		name: "policing",
		hits: func(w way) hit {
			if w.technique == overlay.Relay {
				return perhaps
			}
			return kills
		},
		spares: func(w way) bool { return w.technique != overlay.Relay },
		do:     cutPolice,
	},
	{name: "mtu", hits: func(w way) hit { return unless(w.datagrams) }, spares: always, do: cutMTU},
	{name: "options", hits: func(w way) hit { return either(!w.datagrams) }, spares: always, do: cutOptions},
	{name: "uplink", hits: func(way) hit { return kills }, spares: always, multihomed: true, do: cutUplink},
}

// unless returns perhaps for a carrier that adapts its packet size by itself.
func unless(adapts bool) hit {
	if adapts {
		return perhaps
	}
	return kills
}

// narrowed is the MTU of a path after it was reduced, in bytes.
const narrowed = 1300

// cutMTU silently drops full-size packets to the asker's site, without ICMP errors.
func cutMTU(_ context.Context, s *site) (func(context.Context) error, error) {
	n, err := s.lab.Narrow(askerSite, narrowed)
	if err != nil {
		return nil, err
	}
	return func(context.Context) error { return n.Lift() }, nil
}

// cutOptions makes the asker's gateway remove window scaling, SACK and timestamps from the packets
// it forwards, and resets the carrier's connection: the next one is made without them, and ends
// when the gateway stops removing them.
func cutOptions(ctx context.Context, s *site) (func(context.Context) error, error) {
	stripping, err := s.lab.Host(askerSite+"/gw").Strip("window", "sack-perm", "timestamp")
	if err != nil {
		return nil, err
	}
	undo := func(ctx context.Context) error {
		if err := stripping.Lift(); err != nil {
			return err
		}
		others := append(s.targets(), s.lab.Host(proxy1).Addr(), s.lab.Host(proxy2).Addr())
		return s.inflict(ctx, (*lab.Host).Reset, between(netip.Addr{}, others), resetFor)
	}
	if _, err := cutReset(ctx, s); err != nil {
		return nil, errors.Join(err, stripping.Lift())
	}
	return undo, nil
}

// policed is the rate of a policed path, in bytes per second: 320 kb/s.
const policed = 40_000

// cutPolice makes the asker's gateway drop everything above a trickle between the site and the
// carrier's other end: the path connects, but carries almost nothing.
func cutPolice(_ context.Context, s *site) (func(context.Context) error, error) {
	police := func(h *lab.Host, f lab.Flow) (*lab.Fault, error) { return h.Police(f, policed) }
	faults, err := s.start(police, between(netip.Addr{}, s.far()))
	if err != nil {
		return nil, err
	}
	return func(context.Context) error { return lift(faults) }, nil
}

// far returns the addresses of the carrier's other end: the proxy, or the target's whole site.
func (s *site) far() []netip.Addr {
	if s.used.Proxy != "" {
		return []netip.Addr{s.lab.Host("public/" + s.used.Proxy).Addr()}
	}
	return s.targets()
}

// Cuts returns the names of the cuts that a run can make.
func Cuts() []string {
	var names []string
	for _, c := range cuts {
		names = append(names, c.name)
	}
	return names
}

// cutProxy kills the proxy that carries the link, or all of them if none does.
func cutProxy(_ context.Context, s *site) (func(context.Context) error, error) {
	var killed []*grid.Daemon
	for _, name := range []string{"p1", "p2"} {
		if s.used.Proxy == "" || s.used.Proxy == name {
			d := s.grid.Daemon("proxy " + name)
			d.Kill()
			killed = append(killed, d)
		}
	}
	return restart(s, killed), nil
}

// cutGateway kills the frontal of the asker's site, which carries the data of
// nodes without a route out.
func cutGateway(_ context.Context, s *site) (func(context.Context) error, error) {
	d := s.grid.Daemon("frontal " + askerSite)
	d.Kill()
	return restart(s, []*grid.Daemon{d}), nil
}

func restart(s *site, killed []*grid.Daemon) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, d := range killed {
			if err := d.Start(ctx); err != nil {
				return err
			}
		}
		return s.grid.Settled(ctx)
	}
}

// resetFor is how long segments of the connection are answered with resets: long enough for both
// ends to have sent one.
const resetFor = 300 * time.Millisecond

// cutReset resets the carrier's connection on its way through the asker's gateway. If the carrier
// has no TCP connection on the network, it would hit any that the asker has with the target.
func cutReset(ctx context.Context, s *site) (func(context.Context) error, error) {
	flows := []lab.Flow{{A: s.used.Ends[0], B: s.used.Ends[1]}}
	if !s.used.Ends[0].IsValid() {
		flows = between(netip.Addr{}, s.targets())
	}
	return nil, s.inflict(ctx, (*lab.Host).Reset, flows, resetFor)
}

// cutDrop makes the asker's gateway drop everything between the site and the carrier's other end:
// the proxy, or the target's whole site.
func cutDrop(_ context.Context, s *site) (func(context.Context) error, error) {
	faults, err := s.start((*lab.Host).Drop, between(netip.Addr{}, s.far()))
	if err != nil {
		return nil, err
	}
	return func(context.Context) error { return lift(faults) }, nil
}

// cutUplink silences the uplink of the asker's site that its hosts use by default. The other one
// stays up.
func cutUplink(_ context.Context, s *site) (func(context.Context) error, error) {
	return func(context.Context) error { return s.lab.RestoreUplink(askerSite, 1) }, s.lab.CutUplink(askerSite, 1)
}

// cutAddress gives the asker's node another address.
func cutAddress(_ context.Context, s *site) (func(context.Context) error, error) {
	h := s.lab.Host(askerNode)
	to := h.Addr().As4()
	to[3] += 100
	return nil, h.Renumber(h.Addr(), netip.AddrFrom4(to))
}

// cutConntrack makes both gateways forget the connections that they track.
func cutConntrack(_ context.Context, s *site) (func(context.Context) error, error) {
	return nil, errors.Join(s.lab.Host(askerSite+"/gw").ForgetFlows(), s.lab.Host(targetSite+"/gw").ForgetFlows())
}

// targets returns the addresses of the target's site.
func (s *site) targets() []netip.Addr {
	return []netip.Addr{s.lab.Host(targetNode).Addr(), s.lab.Host(targetSite + "/gw").WANAddr()}
}

// between returns the flows between one address and several others.
func between(a netip.Addr, others []netip.Addr) (flows []lab.Flow) {
	for _, b := range others {
		flows = append(flows, lab.Everything(a, b))
	}
	return flows
}

type fault func(*lab.Host, lab.Flow) (*lab.Fault, error)

// start inflicts a fault on flows through the asker's gateway.
func (s *site) start(f fault, flows []lab.Flow) (all []*lab.Fault, err error) {
	for _, flow := range flows {
		one, err := f(s.lab.Host(askerSite+"/gw"), flow)
		if err != nil {
			return all, errors.Join(err, lift(all))
		}
		all = append(all, one)
	}
	return all, nil
}

func lift(all []*lab.Fault) error {
	var errs []error
	for _, f := range all {
		errs = append(errs, f.Lift())
	}
	return errors.Join(errs...)
}

// inflict inflicts a fault for a time.
func (s *site) inflict(ctx context.Context, f fault, flows []lab.Flow, d time.Duration) error {
	all, err := s.start(f, flows)
	if err != nil {
		return err
	}
	return errors.Join(sleep.For(ctx, d), lift(all))
}
