package carrier

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// AddressEvery is how often the owner of a connection checks that the connection's address is still
// one of this host. A connection from an address that is gone can neither send nor end, and
// otherwise only keepalive would detect that.
const AddressEvery = 250 * time.Millisecond

// HasAddress reports whether addr is an address of this host, or whether that cannot be determined.
// It tests by binding a socket, which costs the same however many interfaces there are, and
// includes addresses that the host has only by a route. Where the host may bind any address
// (net.ipv4.ip_nonlocal_bind) it is always true.
func HasAddress(addr netip.Addr) bool {
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 0)))
	if err != nil {
		return !errors.Is(err, syscall.EADDRNOTAVAIL)
	}
	c.Close()
	return true
}
