// Package packetsize remembers the sites on the way to which large packets vanish, and when to try
// them again. It sends nothing, and has no clock: the time is an argument. Its state is in a
// Memory, which has a lock.
package packetsize

import (
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// Memory remembers the sites on the way to which large packets vanish, whatever the profiles say: a
// router on the way has a smaller MTU, and the ICMP message that would inform the kernel is
// filtered (RFC 2923, section 2.1). Connections to such a site are made with small packets, and
// after a while one of full size is tried again, less and less often. The zero Memory knows nothing.
type Memory struct {
	mu    sync.Mutex // guards sites
	sites map[overlay.SiteID]vanishing
}

// vanishing is what is known about one site. It uses no clock.
type vanishing struct {
	until    time.Time     // large packets are not tried before
	interval time.Duration // between the last two attempts
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
	v.interval = min(max(2*v.interval, firstVanished), lastVanished)
	v.until = now.Add(v.interval)
	return v
}

// Small returns until when packets to a site must be small, or false.
func (s *Memory) Small(site overlay.SiteID, now time.Time) (until time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.sites[site]
	return v.until, now.Before(v.until)
}

// Vanished records that large packets to a site vanished, and reports whether that was unknown.
func (s *Memory) Vanished(site overlay.SiteID, now time.Time) bool {
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

// Passed records that large packets arrived, and reports whether the site was remembered.
func (s *Memory) Passed(site overlay.SiteID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.sites[site]
	delete(s.sites, site)
	return known
}
