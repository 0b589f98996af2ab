// Package probe measures a site's profile: what its firewall, NAT and routes let through, seen from
// a node of the site (or its gateway) with the help of the grid's reflectors. Measure makes
// observations with sockets; Infer draws the conclusions and is a pure function. Every finding says
// how it was learned, and what cannot be determined is reported as unknown: nothing is guessed and
// no port is scanned.
//
// What an ordinary user cannot determine from inside, and why:
//
//	filter strict     Whether a stateful filter also drops what its tracker
//	                  calls invalid shows only to packets that no ordinary
//	                  socket sends. It is reported as stateful.
//	filter, no UDP    Stateless and stateful filters refuse the same SYNs. An
//	                  unsolicited datagram distinguishes them, where datagrams
//	                  pass; otherwise a SYN that comes from where this host has
//	                  just sent one, from a port of a reflector that answers
//	                  nothing. Where that port cannot be reached, it is unknown.
//	filter behind NAT A NAT tracks connections, and what its filter adds to that
//	                  is hidden behind it. It is reported as stateful.
//	filter, all let in A filter that lets every SYN in refuses nothing: none,
//	                  without a NAT.
//	NAT that changes  A gateway that translates its own packets to its own
//	nothing           address and port does nothing that is observable.
//	port ranges       Only the range that the admin names is tried, at three of
//	                  its ports: finding one would be a scan.
//	http-proxy        No packet of the site reaches a reflector, so that no
//	                  address of it is known to call back: all but egress and
//	                  UDP is unknown.
//	UDP rate          Datagrams are tried at up to 3 Mb/s, for less than half a
//	                  second. A limit of more than about 2 Mb/s, or one that
//	                  applies only after megabytes, is reported as no limit
//	                  below that. An inbound limit of just half the outbound one
//	                  looks like one limit for both together.
//	MTU               Only where datagrams pass, and between sizes that are tried
//	                  or that a router reported. A packet larger than 1500 bytes
//	                  is not tried.
//	privileged,       Of the node that measures; others are not asked.
//	high_ports_only
//	IPv6              Only when a reflector has an IPv6 address, and its rules only when
//	                  the broker has one. A range of ports is not tried over IPv6 where there
//	                  is IPv4, and neither are how much passes and how long mappings live.
//
// How long an idle mapping lives takes as long to measure, and is a separate measurement,
// MeasureIdle: several mappings are left idle for different times, and then a reflector sends
// on each what it was requested to send before:
//
//	socket     STUN      control session                 STUN port
//	  |--- question --->|                                    |
//	  |<--- mapping ----|                                    |
//	  |-------- CallBack(mapping, after 55 s) -------------->|
//	  |                   ... nothing passes ...             |
//	  |<------------------ nonce, if it is let in -----------|
//
// The result is the longest idle time after which the nonce arrived; the mapping is as young as a
// link that has exchanged one packet each way, which some gateways forget sooner than one that is
// in use.
//
// The package keeps no state; its sockets live as long as a call of Measure or MeasureIdle.
package probe
