package encap

import "time"

// Parameters of the decision when relays share a connection.
const (
	// ownFirst is how many relays to a proxy have connections of their own, which the kernel
	// forwards, before one makes the connection that others may share. It must exist before the
	// NAT is full.
	ownFirst = 4

	// siteFirst is the same of all nodes of a site, which share the NAT's room: a node has its part, and one at
	// least.
	siteFirst = 16

	fullAfter  = 3                // dials in a row that were not answered, while the shared connection was
	fullMemory = 10 * time.Minute // how long the NAT counts as full since then

	// unansweredAfter is how long, beyond four round trips, a dial waits for an answer before it is
	// asked whether the shared connection gets one: the first SYN and its repetition have been lost
	// then (RFC 6298, section 2.1).
	unansweredAfter = 1500 * time.Millisecond
)

// flows decides which relays to one proxy share a connection, from how dials through a NAT went. A
// NAT that has no room for another session drops the SYN, and what exists goes on: new connections
// to a host are not answered, while an old one to the same port of the same host is. It has no
// clock.
//
//	the first relays, at most ownFirst                have connections of their own
//	the next, if there is no shared connection        makes it
//	further ones                                      have their own; one that is not answered shares,
//	                                                  if the shared connection is alive
//	fullAfter of these in a row                       the NAT is full: all share, for fullMemory
type flows struct {
	begun      int       // dials of connections of their own
	last       time.Time // when the last of them began
	own        int       // those that were answered
	unanswered int       // dials in a row
	until      time.Time // until when the NAT counts as full
}

// firstOf returns how many relays of a node of a site of so many begin with connections of their own.
func firstOf(nodes int) int { return min(max(siteFirst/max(nodes, 1), 1), ownFirst) }

// share reports whether a relay that begins has to share a connection, which exists, or is being made,
// if there is true. first is how many begin with their own.
func (f *flows) share(there bool, first int, now time.Time) bool {
	if now.Sub(f.last) > fullMemory && !f.full(now) {
		f.begun, f.own = 0, 0 // the NAT has forgotten those that ended
	}
	if f.full(now) || !there && f.begun >= first {
		return true
	}
	f.begun, f.last = f.begun+1, now
	return false
}

// answered records a connection of a relay's own.
func (f *flows) answered() {
	f.own++
	f.unanswered = 0
}

// notAnswered records a dial that was not answered, while the shared connection was.
func (f *flows) notAnswered(now time.Time) {
	if f.unanswered++; f.unanswered >= fullAfter {
		f.until = now.Add(fullMemory)
	}
}

// full reports whether the NAT lets no new connection through.
func (f *flows) full(now time.Time) bool { return now.Before(f.until) }
