package connhelper

import (
	"context"
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/connhelper/packetsize"
	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/overlay"
)

// sizes is what this node knows of the packets that arrive at other sites.
type sizes struct {
	*common
	memory packetsize.Memory
}

// sized returns the context in which to connect to a target, and whether packets must be small: as
// the process requests, or as remembered.
func (z *sizes) sized(ctx context.Context, to target, now time.Time) (context.Context, bool) {
	site := to.point.Node.Site
	if site == z.node.Site || to.ways&overlay.FullPackets != 0 {
		return ctx, false
	}
	if _, small := z.memory.Small(site, now); !small && to.ways&overlay.SmallPackets == 0 {
		return ctx, false
	}
	return carrier.WithSmallPackets(ctx), true
}

// fullAllowed returns why a process that has small packets cannot have large ones.
func (z *sizes) fullAllowed(to target, now time.Time) error {
	if to.ways&overlay.FullPackets == 0 {
		return nil
	}
	if until, small := z.memory.Small(to.point.Node.Site, now); small {
		return fmt.Errorf("%w: packets of full size are lost on the path to %s; they are tried again in %v",
			overlay.ErrNoPath, to.point.Node.Site, until.Sub(now).Round(time.Second))
	}
	return nil
}

// largeVanished records that a path carried nothing although the network connected it with
// full-sized packets, whose size may be the reason.
func (z *sizes) largeVanished(to target, technique overlay.Technique, err error) {
	if z.memory.Vanished(to.point.Node.Site, time.Now()) {
		z.log.Warn("a connection carries nothing in packets of full size; those to this site have 576 bytes from now on and are slower, until larger ones pass",
			"site", string(to.point.Node.Site), "technique", technique.String(), "error", err,
			"remedy", "let ICMP \"fragmentation needed\" (type 3, code 4; ICMPv6 type 2) pass the firewalls on the path, or set profile.mtu of the site behind the smaller MTU")
	}
}

// largePassed records that full-sized packets arrived.
func (z *sizes) largePassed(to target) {
	if z.memory.Passed(to.point.Node.Site) {
		z.log.Info("packets of full size pass again", "site", string(to.point.Node.Site))
	}
}
