package connhelper

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier/multihome"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/nat/coordinate"
	"github.com/isthmus-grid/isthmus/internal/nat/traverse"
)

// traversals makes this node one end of coordinated traversals.
type traversals struct {
	*common
	address    netip.Addr // in the settings
	oneHost    bool       // the grid may be on this host
	reflectors *coordinate.ReflectorCache
	portPool   *coordinate.PortPool
	engine     *traverse.Engine // nil without CAP_NET_RAW; set before anything runs

	hasAddress func(netip.Addr) bool // carrier.HasAddress, except in tests
}

// ownAddress returns the address of this node for other nodes.
func (v *traversals) ownAddress(s *control.Session) netip.Addr {
	ip, doubt := ownAddress(v.address, s.LocalAddr().Addr(), v.oneHost, v.hasAddress, multihome.Outward)
	if doubt != "" {
		v.log.Warn("other nodes may not reach this one: "+doubt+"; set the key address", "address", ip.String())
	}
	return ip
}

// moveEvery is the time between two looks whether this node still has the addresses at which it is reached.
const moveEvery = time.Second

// awaitMove waits until ctx ends, and returns "" then, or until this node has lost one of the addresses that it
// gave others, of which the first is its own, or is to give another; then it returns what has changed. The session lives
// on where the frontal is on this host, or is reached by another network.
func (v *traversals) awaitMove(ctx context.Context, facing netip.Addr, given ...netip.Addr) (change string) {
	own := given[0]
	given = slices.DeleteFunc(given, func(ip netip.Addr) bool { return !ip.IsValid() || !v.hasAddress(ip) })
	look := time.NewTicker(moveEvery)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return ""
		case <-look.C:
		}
		for _, ip := range given {
			if !v.hasAddress(ip) {
				return fmt.Sprintf("this host does not have %v any more", ip)
			}
		}
		if now, _ := ownAddress(v.address, facing, v.oneHost, v.hasAddress, multihome.Outward); now != own {
			return fmt.Sprintf("this host is to be reached at %v now, and not at %v", now, own)
		}
	}
}

// ownAddress returns the address in the settings, if this host has it, or else the one from which the
// frontal is reached; of a frontal on this host that may be one that no other node can send to, and is
// replaced unless the grid is this host. It also returns what is doubtful about it.
func ownAddress(set, facing netip.Addr, oneHost bool, has func(netip.Addr) bool, outward func(netip.Addr) netip.Addr) (ip netip.Addr, doubt string) {
	if set.IsValid() {
		if has(set) {
			return set, ""
		}
		doubt = fmt.Sprintf("this host does not have %v, the address in the settings", set)
	}
	if oneHost {
		return facing, doubt
	}
	ip = outward(facing)
	if kind := multihome.Unreachable(ip); kind != "" && doubt == "" {
		doubt = fmt.Sprintf("the frontal is reached from a %s address, and this host has no other", kind)
	}
	return ip, doubt
}

// permitted removes from r the reflectors that the settings deny; r may be nil.
func (v *traversals) permitted(r *controlpb.ReflectorsResponse) *controlpb.ReflectorsResponse {
	if r != nil {
		coordinate.Filter(r, v.outbound.rule.Without)
	}
	return r
}

// side returns this node as one end of a coordinated traversal, on behalf of j.
func (v *traversals) side(f *frontal, j journey) *coordinate.Side {
	ip := f.local.Addr()
	if !ip.IsValid() {
		ip = v.ownAddress(f.session)
	}
	return &coordinate.Side{
		Address: ip, Other: coordinate.OtherAddress(ip), Profile: f.profile, Log: v.log, PortPool: v.portPool, Engine: v.engine,
		Permit: func(ip netip.Addr) error {
			err := v.outbound.rule.With(f.networks).Foreign(ip)
			if err != nil {
				v.audit.denied(j, err)
			}
			return err
		},
		Reflectors: func(ctx context.Context) (coordinate.Reflectors, error) {
			return v.reflectors.Get(ctx, func(ctx context.Context) (*controlpb.ReflectorsResponse, error) {
				r, err := f.directory().Reflectors(ctx, &controlpb.ReflectorsRequest{})
				return v.permitted(r), err
			})
		},
	}
}
