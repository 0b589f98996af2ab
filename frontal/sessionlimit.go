package frontal

import (
	"sync"
	"time"
)

const (
	sessionMemory = 10 * time.Minute // how long a full NAT is remembered since it was last seen
	maxSessions   = 1 << 20          // that a helper may report
)

// sessionLimit is what is known of a NAT before the site that is full. It has no clock. Its zero
// value is one with room.
type sessionLimit struct {
	mu          sync.Mutex // guards the fields below
	connections uint32
	until       time.Time
}

// seen records that the NAT let no new connection through beyond so many of a node, and reports
// whether that is new.
func (l *sessionLimit) seen(connections int, now time.Time) (news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	news = l.connections == 0
	l.connections, l.until = max(l.connections, uint32(connections), 1), now.Add(sessionMemory)
	return news
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

// expire forgets a limit that was not seen lately, and reports whether it did.
func (l *sessionLimit) expire(now time.Time) (over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if over = l.connections > 0 && !now.Before(l.until); over {
		l.connections = 0
	}
	return over
}

// natFull records that the NAT before the site lets no new connection through, and tells the broker,
// whose plans have only relays then.
func (f *Frontal) natFull(connections int) {
	if !f.sessions.seen(connections, time.Now()) {
		return
	}
	f.log.Warn("the NAT before the site lets no new connections through, while others live; relays share connections", "about_connections_of_a_node", connections,
		"remedy", "raise the number of sessions, or of ports, that the NAT has for the site's hosts, or give the site a port range (profile.inbound)")
	f.work.Go(f.joinAgain)
}
