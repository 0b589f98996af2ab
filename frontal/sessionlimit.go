package frontal

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/sleep"
)

const (
	sessionMemory = 10 * time.Minute // how long a full NAT is remembered since it was last seen
	maxSessions   = 1 << 20          // that a helper may report
	maxWitnesses  = 64               // nodes that are remembered
)

// ownWord is who says so where one is enough: the gateway itself, or the only node of the site.
const ownWord = ""

// sessionLimit is what is known of a NAT before the site that is full. All links of the site are relayed then, so
// one of several nodes is not believed; its own relays share connections without that.
type sessionLimit struct {
	log  *slog.Logger
	news func() // called when it is full, and when that has not been seen for long

	mu     sync.Mutex         // guards the fields below
	nodes  map[string]fullNAT // by who says so
	isFull bool               // what news was called for last
}

// fullNAT is what one node says.
type fullNAT struct {
	connections uint32
	until       time.Time
}

// seen records that the NAT let no new connection through beyond so many of a node, as one says.
func (l *sessionLimit) seen(node string, connections int, now time.Time) {
	l.mu.Lock()
	was, listed := l.nodes[node]
	if listed || len(l.nodes) < maxWitnesses || node == ownWord {
		if l.nodes == nil {
			l.nodes = map[string]fullNAT{}
		}
		l.nodes[node] = fullNAT{max(was.connections, uint32(connections), 1), now.Add(sessionMemory)}
	}
	full := l.connections(now)
	first := full > 0 && !l.isFull
	l.isFull = l.isFull || first
	l.mu.Unlock()
	if !first {
		return
	}
	l.log.Warn("the NAT before the site lets no new connections through, while others live; relays share connections", "about_connections_of_a_node", full,
		"remedy", "raise the number of sessions, or of ports, that the NAT has for the site's hosts, or have a range of ports opened to them (profile.inbound)")
	l.news()
}

// connections returns the largest number that was seen lately, 0 if too few say so. The caller holds mu.
func (l *sessionLimit) connections(now time.Time) (most uint32) {
	witnesses := 0
	for node, one := range l.nodes {
		if !now.Before(one.until) {
			continue
		}
		if witnesses++; node == ownWord {
			witnesses++
		}
		most = max(most, one.connections)
	}
	if witnesses < 2 {
		return 0
	}
	return most
}

// limit returns the number of connections, 0 if no limit was seen lately.
func (l *sessionLimit) limit(now time.Time) uint32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.connections(now)
}

// expire forgets a limit that was not seen lately.
func (l *sessionLimit) expire(now time.Time) {
	l.mu.Lock()
	maps.DeleteFunc(l.nodes, func(_ string, one fullNAT) bool { return !now.Before(one.until) })
	over := l.isFull && l.connections(now) == 0
	if over {
		l.isFull = false
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
