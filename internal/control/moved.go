package control

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// addressEvery is how often the dialling side of a session looks whether its
// address is still one of this host. A connection from an address that is gone
// can neither send nor end, and only keepalive would tell.
const addressEvery = 250 * time.Millisecond

// hasAddress reports whether addr is an address of this host, or whether that
// cannot be told. It asks by binding a socket, which costs the same however
// many interfaces there are, and counts addresses that the host has by a route
// alone. Where the host may bind any address (net.ipv4.ip_nonlocal_bind) it
// is always true.
func hasAddress(addr netip.Addr) bool {
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 0)))
	if err != nil {
		return !errors.Is(err, syscall.EADDRNOTAVAIL)
	}
	c.Close()
	return true
}
