// Package traffic counts what passes a daemon between pairs of sites, and tells
// the broker. Counts only grow while a daemon lives, so that a report that is
// lost or comes twice changes nothing; the broker makes rates of them by its own
// clock ([Meter]).
//
// Everything here is pure: whoever counts, tells and asks for the time is a
// daemon. State is in a [Sums] at each daemon that carries, and in a Meter at
// the broker.
package traffic
