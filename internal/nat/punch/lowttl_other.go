//go:build !linux

package punch

import (
	"errors"
	"net"
	"net/netip"
)

const lowTTLSupported = false

func sendLowTTL(*net.UDPConn, netip.AddrPort) error {
	return errors.New("low-TTL datagrams need Linux")
}
