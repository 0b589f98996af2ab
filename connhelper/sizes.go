package connhelper

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/overlay"
)

// sizes remembers the sites on the way to which large packets vanish, whatever the profiles say: a
// router on the way has a smaller MTU, and the ICMP message that would inform the kernel is
// filtered (RFC 2923, section 2.1). Connections to such a site are made with small packets, and
// after a while one of full size is tried again, less and less often.
type sizes struct {
	mu    sync.Mutex
	sites map[overlay.SiteID]vanishing
}

// vanishing is what is known about one site. It uses no clock.
type vanishing struct {
	until time.Time     // large packets are not tried before
	rest  time.Duration // between the last two attempts
}

// How long large packets are not tried after they have vanished, and the maximum when they do so
// again and again.
const (
	firstVanished = 15 * time.Second
	lastVanished  = 10 * time.Minute
)

// maxSizes bounds the sites that are remembered.
const maxSizes = 4096

// seenAgain returns v after large packets have vanished at now. Packets sent before the end of the
// current wait change nothing.
func (v vanishing) seenAgain(now time.Time) vanishing {
	if now.Before(v.until) {
		return v
	}
	v.rest = min(max(2*v.rest, firstVanished), lastVanished)
	v.until = now.Add(v.rest)
	return v
}

// small returns until when packets to a site must be small, or false.
func (s *sizes) small(site overlay.SiteID, now time.Time) (until time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.sites[site]
	return v.until, now.Before(v.until)
}

// vanished records that large packets to a site vanished, and reports whether that was unknown.
func (s *sizes) vanished(site overlay.SiteID, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, known := s.sites[site]
	if !known && len(s.sites) >= maxSizes {
		return false
	}
	if s.sites == nil {
		s.sites = make(map[overlay.SiteID]vanishing)
	}
	s.sites[site] = v.seenAgain(now)
	return !known
}

// passed records that large packets arrived, and reports whether the site was remembered.
func (s *sizes) passed(site overlay.SiteID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.sites[site]
	delete(s.sites, site)
	return known
}

// sized returns the context in which to connect to a target, and whether packets must be small: as
// the process requests, or as remembered.
func (h *Helper) sized(ctx context.Context, to target, now time.Time) (context.Context, bool) {
	site := to.point.Node.Site
	if site == h.node.Site || to.ways&overlay.FullPackets != 0 {
		return ctx, false
	}
	if _, small := h.sizes.small(site, now); !small && to.ways&overlay.SmallPackets == 0 {
		return ctx, false
	}
	return carrier.WithSmallPackets(ctx), true
}

// fullAllowed returns why a process that has small packets cannot have large ones.
func (h *Helper) fullAllowed(to target, now time.Time) error {
	if to.ways&overlay.FullPackets == 0 {
		return nil
	}
	if until, small := h.sizes.small(to.point.Node.Site, now); small {
		return fmt.Errorf("%w: packets of full size vanish on the way to %s; they are tried again in %v",
			overlay.ErrNoPath, to.point.Node.Site, until.Sub(now).Round(time.Second))
	}
	return nil
}

// largeVanished records that a path carried nothing although the network connected it with
// full-sized packets, whose size may be the reason.
func (h *Helper) largeVanished(to target, technique overlay.Technique, err error) {
	if h.sizes.vanished(to.point.Node.Site, time.Now()) {
		h.log.Warn("a connection carries nothing in packets of full size; those to this site have 576 bytes from now on and are slower, until larger ones pass",
			"site", string(to.point.Node.Site), "technique", technique.String(), "error", err,
			"remedy", "let ICMP \"fragmentation needed\" (type 3, code 4; ICMPv6 type 2) pass the firewalls on the way, or set profile.mtu of the site behind the smaller MTU")
	}
}

// largePassed records that full-sized packets arrived.
func (h *Helper) largePassed(to target) {
	if h.sizes.passed(to.point.Node.Site) {
		h.log.Info("packets of full size pass again", "site", string(to.point.Node.Site))
	}
}
