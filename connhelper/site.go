package connhelper

import (
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// siteProfile is the profile of this node's site, as last received from the frontal; nil before.
type siteProfile struct {
	atomic.Pointer[overlay.SiteProfile]
}

// idle returns how long the site keeps the state of an idle carrier by path. The value is measured
// in the first minutes of a site: the frontal then makes its helpers enter again, and carriers made
// from then on come with it.
func (s *siteProfile) idle(path overlay.Path) time.Duration {
	if p := s.Load(); p != nil {
		return p.Idle(path)
	}
	return 0
}

// choseIPv6 reports whether a connection is over IPv6 although this site also has IPv4.
func (s *siteProfile) choseIPv6(c net.Conn) bool {
	p, a := s.Load(), netip.Addr{}
	switch remote := c.RemoteAddr().(type) {
	case *net.TCPAddr:
		a = remote.AddrPort().Addr()
	case *net.UDPAddr:
		a = remote.AddrPort().Addr()
	}
	return p != nil && p.IPv6 && !p.IPv6Only && a.Unmap().Is6()
}

// version says that a connection is over IPv6, for the reason of its path, where both versions of
// IP were tried at once. Reasons for IPv6 alone say so already.
func (s *siteProfile) version(c net.Conn, said bool) []string {
	if said || !s.choseIPv6(c) {
		return nil
	}
	return []string{"it is over IPv6"}
}
