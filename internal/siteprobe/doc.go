// Package siteprobe measures a site's profile: what its firewall, NAT and
// routes let through, seen from a node of the site (or its gateway) with the
// help of the grid's vantage points. Measure makes observations with sockets;
// Infer says what follows from them and is a pure function. Every finding says
// how it was learned, and what cannot be told is said to be unknown: nothing
// is guessed and no port is scanned.
//
// What cannot be told from inside by an ordinary user, and why:
//
//	filter strict     Whether a stateful filter also drops what its tracker
//	                  calls invalid shows only to packets that no ordinary
//	                  socket sends. It is reported as stateful.
//	filter, no UDP    Stateless and stateful filters refuse the same SYNs. An
//	                  unasked datagram tells them apart, where datagrams pass.
//	filter behind NAT A NAT tracks connections, and what its filter adds to that
//	                  is hidden behind it. It is reported as stateful.
//	filter, all let in What lets every SYN in refuses nothing: none, without a NAT.
//	NAT that changes  A gateway that translates its own packets to its own
//	nothing           address and port does nothing that anybody could see.
//	port ranges       Only the range that the admin names is tried, at three of
//	                  its ports: to find one would be to scan.
//	http-proxy        No packet of the site reaches a vantage point, so that no
//	                  address of it is known to call back: all but egress and
//	                  UDP is unknown.
//	idle timeout      Mappings live for tens of seconds at least; waiting for
//	                  their end is no part of a measurement of some seconds.
//	UDP rate          A datagram that passes says that UDP is usable; at which
//	                  rate is measured where it is used, by the link.
//
// The package keeps no state; its sockets live as long as a call of Measure.
package siteprobe
