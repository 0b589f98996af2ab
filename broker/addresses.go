package broker

import (
	"fmt"
	"net/netip"

	"github.com/isthmus-grid/isthmus/internal/policy/netrule"
	"github.com/isthmus-grid/isthmus/overlay"
)

// checkTarget refuses addresses that the broker must not give to other sites: a site that registers
// one would make foreign helpers dial their own host or their own network's management services.
func checkTarget(what string, addr netip.AddrPort, loopback bool) error {
	ip := addr.Addr().Unmap()
	why := ""
	switch {
	case ip.IsUnspecified():
		why = "is no host's address"
	case addr.Port() == 0:
		why = "has no port"
	case ip.IsMulticast() || ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		why = "is not one host's address"
	case ip.IsLinkLocalUnicast():
		why = "is link-local"
	case netrule.StandsFor4(ip):
		why = "stands for an IPv4 address, which is to be registered itself"
	case ip.Is4() && ip.As4()[0] == 0:
		why = "is no host's address"
	case ip.IsLoopback() && !loopback:
		why = "is a loopback address, which other hosts cannot dial (allow_loopback permits it, for a grid on one machine)"
	default:
		return nil
	}
	return fmt.Errorf("%w: %s %v %s", overlay.ErrForbidden, what, addr, why)
}
