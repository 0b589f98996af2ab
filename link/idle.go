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

// This file keeps idle carriers from being forgotten by firewalls and NATs. Each
// end asks in time for those of its own site, whose figure its helper has told it
// (overlay.Carrier.Idle), and by what it has seen carriers die of; who hears a
// question need not ask, so that one question and one answer pass in a period.

// minAsk is the shortest silence after which an idle carrier's peer is asked.
const minAsk = time.Second

// askAfter decides after how long a silence to ask. told is how long the site
// remembers an idle carrier, learned how long one was idle that died of it; 0: not
// known. The end that did not dial the link asks a little later: were both to ask
// after the same time, they would do so at once.
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

// way is what is learnt about: carriers of one kind to one site.
type way struct {
	site      overlay.SiteID // the peer's
	technique overlay.Technique
}

// idleDeaths are what carriers of a mesh were seen to die of. A shorter time replaces a longer
// one, so that what was no firewall's doing costs a few questions more; they
// end with the process.
type idleDeaths struct {
	mu   sync.Mutex // guards idle; held for a moment only, also while a stream is locked
	idle map[way]time.Duration
}

// learn takes the death of a carrier into account, and reports whether there
// was something to learn from it.
func (l *idleDeaths) learn(path overlay.Path, err error) bool {
	var forgotten *stream.IdleError
	if path.Technique == 0 || !errors.As(err, &forgotten) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	w := way{path.Peer.Site, path.Technique}
	if known := l.idle[w]; known > 0 && known <= forgotten.Idle {
		return false
	}
	if l.idle == nil {
		l.idle = map[way]time.Duration{}
	}
	l.idle[w] = forgotten.Idle
	return true
}

// learn is idleDeaths.learn with a word in the log.
func (m *Mesh) learn(path overlay.Path, err error) {
	if m.idleDeaths.learn(path, err) && m.cfg.Log != nil {
		m.cfg.Log.Info("idle carriers are asked more often", "path", path.String(), "peer_site", path.Peer.Site, "cause", err)
	}
}

// of returns after how long an idle carrier by path was seen dead; 0: never.
func (l *idleDeaths) of(path overlay.Path) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.idle[way{path.Peer.Site, path.Technique}]
}

// askAfter is stream.Options.AskAfter.
func (k *keeper) askAfter(c *stream.Carrier) time.Duration {
	a := c.About.(*about)
	return askAfter(a.idle, k.mesh.idleDeaths.of(a.path), k.link.Dialled)
}

// deadPeer is how long the kernel tries to deliver what was written on a carrier. The
// watch gives a carrier up long before; this is for what is left in the
// kernel when the process has closed it, or has ended. A peer that reads nothing for so
// long has been stopped, for the window of a stream always has room.
const deadPeer = 30 * time.Second

// prepare sets up a carrier's socket, if it is the kernel's TCP, before anything
// wraps it. Its keepalive is off: the watch asks in its place, in the time that
// the path needs, and the peer answers, not a relay or gateway in between. What
// cannot be set is left as it is: a link does without.
func prepare(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		carrier.Tune(tcp, carrier.Tuning{UserTimeout: deadPeer})
		tcp.SetKeepAlive(false)
	}
}
