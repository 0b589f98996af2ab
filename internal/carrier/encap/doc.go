// Package encap carries a connection to a proxy inside of TLS or of a WebSocket
// (RFC 6455), for firewalls and HTTP proxies that let nothing else pass on port
// 443. What is carried is as it would be without: the first frame, and the link.
//
// The accepting side tells the forms apart by the first byte. The dialling side
// begins with the plain form, goes on to the next where nothing comes back, and
// remembers for a while what got through to whom. A plain connection is preferred
// because the kernel can splice it and hand it to another process.
//
// Neither form hides anything that matters: links are encrypted from process to
// process. The server's certificate is that of the grid, so that whoever
// terminates TLS in between is found out; the client shows none, for what it may
// do is in its ticket.
package encap
