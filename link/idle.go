package link

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/link/stream"
	"github.com/isthmus-grid/isthmus/overlay"
)

// This file keeps firewalls and NATs from dropping the state of idle carriers. Each end sends a
// question early enough for its own site, whose idle time its helper reports
// (overlay.Carrier.Idle), and for the idle times after which carriers were seen to die; an end that
// receives a question need not ask, so one question and one answer pass per period.

// minAsk is the shortest idle time after which the peer of a carrier is asked.
const minAsk = time.Second

// askAfter returns after how long an idle time to send a question. told is how long the site keeps
// the state of an idle carrier, learned the idle time after which one was seen dead; 0 means
// unknown. The end that did not dial the link asks a little later: with equal times both ends would
// ask at once.
func askAfter(told, learned time.Duration, dialled bool) time.Duration {
	after := stream.AskIdle
	for _, idle := range []time.Duration{told, learned} {
		if idle > 0 {
			after = min(after, idle/2)
		}
	}
	after = max(after, minAsk)
	if !dialled {
		after += after / 4
	}
	return after
}

// way identifies what is recorded of carriers: those of one technique to one site. See idleWay for idle deaths.
type way struct {
	site      overlay.SiteID // the peer's
	technique overlay.Technique
}

// idleDeaths records the idle times after which a mesh's carriers were found dead. A shorter time
// replaces a longer one; if a cause other than a firewall was at work, the cost is a few more
// questions. The records end with the process.
type idleDeaths struct {
	mu   sync.Mutex // guards idle; held only briefly, also while a stream is locked
	idle map[way]time.Duration
}

// idleWay returns under which way the idle deaths of carriers by path are recorded: TCP connections
// between two sites pass the same firewalls, whichever end dialled them.
func idleWay(path overlay.Path) way {
	if path.Technique.Kind().EndToEnd() {
		return way{path.Peer.Site, overlay.Direct}
	}
	return way{path.Peer.Site, path.Technique}
}

// learn records the death of a carrier, and reports whether the record changed.
func (l *idleDeaths) learn(path overlay.Path, err error) bool {
	var forgotten *stream.IdleError
	if path.Technique == 0 || !errors.As(err, &forgotten) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	w := idleWay(path)
	if known := l.idle[w]; known > 0 && known <= forgotten.Idle {
		return false
	}
	if l.idle == nil {
		l.idle = map[way]time.Duration{}
	}
	l.idle[w] = forgotten.Idle
	return true
}

// learn calls idleDeaths.learn and logs a change.
func (m *Mesh) learn(path overlay.Path, err error) {
	if m.idleDeaths.learn(path, err) && m.cfg.Log != nil {
		m.cfg.Log.Info("idle carriers are asked more often", "path", path.String(), "peer_site", path.Peer.Site, "cause", err)
	}
}

// of returns the idle time after which a carrier by path was found dead; 0: never.
func (l *idleDeaths) of(path overlay.Path) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.idle[idleWay(path)]
}

// askAfter is stream.Options.AskAfter.
func (sv *supervisor) askAfter(c *stream.Carrier) time.Duration {
	a := c.Owner.(*carrierInfo)
	return askAfter(a.idle, sv.mesh.idleDeaths.of(a.path), sv.link.Dialled)
}

// deadPeer is how long the kernel tries to deliver what was written on a carrier. The watch gives a
// carrier up long before; this bounds what is left in the kernel after the process has closed the
// carrier or ended. A peer that reads nothing for that long has been stopped, because the window of
// a stream always has room.
const deadPeer = 30 * time.Second

// prepare sets up a carrier's socket, if it is the kernel's TCP. It turns
// keepalive off: the watch asks instead, at the interval that the path needs, and the peer answers,
// not a relay or gateway in between. Options that cannot be set are left as they are; a link works
// without them.
func prepare(c net.Conn) {
	if tcp := stream.SocketOf(c); tcp != nil {
		carrier.Tune(tcp, carrier.Tuning{UserTimeout: deadPeer})
		tcp.SetKeepAlive(false)
	}
}
