package carrier

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	// lossyFor is for how long connections on a path are taken to lose data like one that did.
	lossyFor = 10 * time.Minute

	maxLossyPaths = 1024 // remembered at a time
)

// LossyPaths remembers on which paths connections were found to lose data. Several connections on
// one path share its losses, but each may need half a minute to find them itself: the fewer packets
// losses leave it, the longer. The zero value is ready, nil remembers nothing, and methods may be
// called concurrently.
type LossyPaths struct {
	mu    sync.Mutex
	until map[hostPair]time.Time
}

// hostPair is the path of a connection, as far as its addresses say.
type hostPair struct{ local, remote netip.Addr }

// pathOf returns a connection's path, or false where its addresses are not those of TCP.
func pathOf(c net.Conn) (hostPair, bool) {
	local, ok := c.LocalAddr().(*net.TCPAddr)
	remote, ok2 := c.RemoteAddr().(*net.TCPAddr)
	if !ok || !ok2 {
		return hostPair{}, false
	}
	return hostPair{local.AddrPort().Addr().Unmap(), remote.AddrPort().Addr().Unmap()}, true
}

// found records that a connection on a path loses data.
func (l *LossyPaths) found(p hostPair, now time.Time) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.until[p]; !known && len(l.until) >= maxLossyPaths {
		l.forget(now)
	}
	if l.until == nil {
		l.until = map[hostPair]time.Time{}
	}
	l.until[p] = now.Add(lossyFor)
}

// forget makes room: for what is out of date, or else for any path, which will be found again.
func (l *LossyPaths) forget(now time.Time) {
	for p, end := range l.until {
		if now.After(end) {
			delete(l.until, p)
		}
	}
	for p := range l.until {
		if len(l.until) < maxLossyPaths {
			return
		}
		delete(l.until, p)
	}
}

// lossy reports whether connections on a path were found to lose data lately.
func (l *LossyPaths) lossy(p hostPair, now time.Time) bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	end, known := l.until[p]
	return known && !now.After(end)
}
