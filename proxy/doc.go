// Package proxy relays byte streams between two processes that cannot reach each other. Both
// connect to it and present a ticket that the broker issued for their link; it joins the two
// connections in the kernel and closes them. It dials no peer, except that its broker may make it
// call back, once and with a nonce, a site that measures what its firewall lets in (package
// reflector). For such measurements it also answers observe frames and STUN.
//
// It knows nothing of what it carries: bytes are opaque, and it asks no other daemon whether a
// ticket is good. Without its broker it continues to serve; only new tickets stop coming.
//
// All state is in memory: tickets used, ends that wait for their partner, live links, counters. It
// belongs to one Server and is guarded by its mutex. A proxy that restarts makes a new ticket key,
// so tickets that the old one honoured cannot be used again.
package proxy
