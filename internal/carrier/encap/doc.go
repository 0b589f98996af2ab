// Package encap carries a connection to a proxy inside TLS or a WebSocket (RFC 6455), for firewalls
// and HTTP proxies that let nothing else pass on port 443. The content is the same as without: the
// first frame, and the link.
//
// The accepting side distinguishes the forms by the first byte. The dialling side begins with the
// plain form, proceeds to the next if there is no answer, and remembers for a while which form got
// through to which proxy. A plain connection is preferred because the kernel can splice it and it
// can be handed to another process.
//
// Behind a NAT that has no room for more sessions, relays are streams of one connection (flows.go).
//
// Neither form provides confidentiality that matters: links are encrypted from process to process.
// The server's certificate is that of the grid, so that a middlebox that terminates TLS is
// detected; the client presents none, because its ticket says what it may do.
package encap
