package lab

import (
	"net"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestExpired(t *testing.T) {
	flow := func(protocol uint8, port, outside uint16, start uint64) *netlink.ConntrackFlow {
		return &netlink.ConntrackFlow{
			Forward: netlink.IPTuple{Protocol: protocol, SrcIP: net.IPv4(100, 64, 1, 2), SrcPort: port}, TimeStart: start,
			Reverse: netlink.IPTuple{Protocol: protocol, DstPort: outside},
		}
	}
	flows := []*netlink.ConntrackFlow{
		flow(unix.IPPROTO_UDP, 1, 1, 100), // old
		flow(unix.IPPROTO_UDP, 1, 1, 900), // of the same mapping
		flow(unix.IPPROTO_UDP, 1, 7, 900), // the next mapping of that place
		flow(unix.IPPROTO_UDP, 2, 2, 501),
		flow(unix.IPPROTO_UDP, 3, 3, 0), // the kernel does not say
		flow(unix.IPPROTO_TCP, 4, 4, 100),
	}
	due := expired(flows, 500)
	for i, want := range []bool{true, true, false, false, false, false} {
		if got := due.MatchConntrackFlow(flows[i]); got != want {
			t.Errorf("flow %d ends: %v, want %v", i, got, want)
		}
	}
}
