package simopen

import (
	"errors"
	"fmt"
	"net"
	"os"
)

// MayBind443 returns nil if this process may bind port 443, as it has to for a peer whose site lets
// only that port out, or an error that says why not. It binds UDP's for a moment, which nothing else
// here uses and for which the same rule holds as for TCP's.
func MayBind443() error {
	c, err := net.ListenUDP("udp", &net.UDPAddr{Port: 443})
	if err != nil {
		if errors.Is(err, os.ErrPermission) {
			return fmt.Errorf("%w; ports below net.ipv4.ip_unprivileged_port_start need CAP_NET_BIND_SERVICE (install port443.conf beside the unit)", err)
		}
		return nil // it is in use, which is no matter of permission
	}
	return c.Close()
}
