// Package traffic counts what passes a daemon between pairs of sites, for reports to the broker.
// Counts only grow during a daemon's life, so that a lost or duplicate report changes nothing; the
// broker computes rates by its own clock ([Meter]).
//
// Everything here is pure: the daemons count, send reports and pass the time. State is in a [Sums]
// at each daemon that carries links, and in a Meter at the broker.
package traffic
