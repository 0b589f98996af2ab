package relay

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-grid/isthmus/bench/runner"
)

// The hosts and their addresses.
var (
	clientAddr  = netip.MustParsePrefix("10.1.0.2/24")
	middleLeft  = netip.MustParsePrefix("10.1.0.1/24")
	middleRight = netip.MustParsePrefix("10.2.0.1/24")
	serverAddr  = netip.MustParsePrefix("10.2.0.2/24")
)

// place is a network namespace.
type place struct{ ns *os.File }

// do calls fn on a thread that is in the namespace.
func (p *place) do(fn func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(p.ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("entering a namespace: %w", err)
		}
		return fn()
	})
}

// onThread calls fn on a thread of its own, which returns to its namespace afterwards.
func onThread(fn func() error) error {
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer home.Close()
	err = fn()
	if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
		return errors.Join(err, back) // the thread stays locked, and so ends with its goroutine
	}
	runtime.UnlockOSThread()
	return err
}

func newPlace() (*place, error) {
	p := new(place)
	return p, onThread(func() error {
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			p.ns, err = os.Open("/proc/thread-self/ns/net")
		}
		return err
	})
}

// network is the three hosts.
type network struct{ client, middle, server *place }

// newNetwork makes the hosts and their wires.
func newNetwork() (*network, error) {
	n := new(network)
	for _, p := range []**place{&n.client, &n.middle, &n.server} {
		var err error
		if *p, err = newPlace(); err != nil {
			return nil, fmt.Errorf("making a namespace: %w", err)
		}
	}
	for _, w := range []struct {
		from     *place
		peerName string
	}{{n.client, "left"}, {n.server, "right"}} {
		err := n.middle.do(func() error {
			return netlink.LinkAdd(&netlink.Veth{
				LinkAttrs: netlink.LinkAttrs{Name: w.peerName},
				PeerName:  "wire0", PeerNamespace: netlink.NsFd(w.from.ns.Fd()),
			})
		})
		if err != nil {
			return nil, fmt.Errorf("laying a wire: %w", err)
		}
	}
	return n, errors.Join(
		n.client.do(func() error { return errors.Join(address("wire0", clientAddr), defaultRoute(middleLeft.Addr())) }),
		n.server.do(func() error { return errors.Join(address("wire0", serverAddr), defaultRoute(middleRight.Addr())) }),
		n.middle.do(func() error {
			return errors.Join(address("left", middleLeft), address("right", middleRight),
				os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0))
		}))
}

func (n *network) close() {
	for _, p := range []*place{n.client, n.middle, n.server} {
		p.ns.Close()
	}
}

func address(name string, p netip.Prefix) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	mask := net.CIDRMask(p.Bits(), 32)
	if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: mask}}); err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}

func defaultRoute(via netip.Addr) error { return netlink.RouteAdd(&netlink.Route{Gw: via.AsSlice()}) }

// limit limits both wires, in both directions, to rate bit/s; 0 removes the limit.
func (n *network) limit(rate uint64) error {
	for _, end := range []struct {
		at   *place
		name string
	}{{n.client, "wire0"}, {n.middle, "left"}, {n.middle, "right"}, {n.server, "wire0"}} {
		if err := end.at.do(func() error { return runner.Limit(end.name, rate) }); err != nil {
			return fmt.Errorf("limiting %s to %d bit/s: %w", end.name, rate, err)
		}
	}
	return nil
}
