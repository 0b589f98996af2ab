package frontal

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/sleep"
)

const (
	sessionMemory = 10 * time.Minute // how long a full NAT is remembered since it was last seen
	maxSessions   = 1 << 20          // that a helper may report
)

// sessionLimit is what is known of a NAT before the site that is full.
type sessionLimit struct {
	log  *slog.Logger
	news func() // called when it is full, and when that has not been seen for long

	mu          sync.Mutex // guards the fields below
	connections uint32
	until       time.Time
}

// seen records that the NAT let no new connection through beyond so many of a node.
func (l *sessionLimit) seen(connections int, now time.Time) {
	l.mu.Lock()
	first := l.connections == 0
	l.connections, l.until = max(l.connections, uint32(connections), 1), now.Add(sessionMemory)
	l.mu.Unlock()
	if !first {
		return
	}
	l.log.Warn("the NAT before the site lets no new connections through, while others live; relays share connections", "about_connections_of_a_node", connections,
		"remedy", "raise the number of sessions, or of ports, that the NAT has for the site's hosts, or have a range of ports opened to them (profile.inbound)")
	l.news()
}

// limit returns the number of connections, 0 if no limit was seen lately.
func (l *sessionLimit) limit(now time.Time) uint32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !now.Before(l.until) {
		return 0
	}
	return l.connections
}

// expire forgets a limit that was not seen lately.
func (l *sessionLimit) expire(now time.Time) {
	l.mu.Lock()
	over := l.connections > 0 && !now.Before(l.until)
	if over {
		l.connections = 0
	}
	l.mu.Unlock()
	if over {
		l.news()
	}
}

// awaitRoom waits until the NAT is not known to be full: a measurement would find nothing, since it
// makes new connections. It reports whether that is so before ctx ends.
func (l *sessionLimit) awaitRoom(ctx context.Context) bool {
	for l.limit(time.Now()) > 0 {
		if sleep.For(ctx, 10*time.Second) != nil {
			return false
		}
	}
	return ctx.Err() == nil
}
