// Package star builds a minimal star network: hosts in network namespaces of their own around one
// namespace that forwards between them. The emulator's tests and benchmark run on it. It knows
// nothing of sites, firewalls or delay, and needs root privileges in the caller's user namespace.
// Everything is in memory: a namespace ends with its thread and its sockets, so nothing survives
// the process.
package star

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A Space is a network namespace and the thread that runs in it.
type Space struct {
	jobs  chan func()
	ended chan struct{}
	fd    int // of the namespace, to move interfaces into it
}

// NewSpace makes a namespace with its loopback up and room for 32 MiB of TCP data in each
// direction.
func NewSpace() (*Space, error) {
	s := &Space{jobs: make(chan func()), ended: make(chan struct{}), fd: -1}
	ready := make(chan error, 1)
	go func() { // ends with Close
		defer close(s.ended)
		runtime.LockOSThread() // permanently: the thread must not return to other goroutines
		err := s.enter()
		ready <- err
		if err != nil {
			return
		}
		for job := range s.jobs {
			job()
		}
	}()
	if err := <-ready; err != nil {
		<-s.ended
		s.closeFD()
		return nil, fmt.Errorf("star: new namespace: %w", err)
	}
	return s, nil
}

func (s *Space) enter() (err error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	if s.fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return errors.Join(netlink.LinkSetUp(lo),
		sysctl("ipv4/tcp_rmem", "4096 131072 33554432"),
		sysctl("ipv4/tcp_wmem", "4096 65536 33554432"))
}

// sysctl sets a value of the calling thread's namespace.
func sysctl(key, value string) error {
	return os.WriteFile("/proc/sys/net/"+key, []byte(value), 0)
}

// Do runs f on the thread in the namespace and returns its error. Sockets that f makes stay in the
// namespace and may be used anywhere. f must use address literals with "tcp4" or "udp4": lookups
// use other threads. Do must not be called after Close, nor from within f.
func (s *Space) Do(f func() error) error {
	done := make(chan error, 1)
	s.jobs <- func() { done <- f() }
	return <-done
}

// Close ends the thread, and with it the namespace once no socket is left.
func (s *Space) Close() {
	close(s.jobs)
	<-s.ended
	s.closeFD()
}

func (s *Space) closeFD() {
	if s.fd >= 0 {
		unix.Close(s.fd)
	}
}

// A Star is a centre that forwards IPv4 between hosts.
type Star struct {
	Centre *Space
	Hosts  []*Space
}

// New makes a star of n hosts, at most 250. The centre's interface towards
// host i is Port(i), the host's address Addr(i).
func New(n int) (_ *Star, err error) {
	s := new(Star)
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if s.Centre, err = NewSpace(); err != nil {
		return nil, err
	}
	if err := s.Centre.Do(func() error { return sysctl("ipv4/ip_forward", "1") }); err != nil {
		return nil, fmt.Errorf("star: forwarding: %w", err)
	}
	for i := range n {
		h, err := NewSpace()
		if err != nil {
			return nil, err
		}
		s.Hosts = append(s.Hosts, h)
		if err := s.plug(i, h); err != nil {
			return nil, fmt.Errorf("star: host %d: %w", i, err)
		}
	}
	for i, h := range s.Hosts {
		err := errors.Join(
			s.Centre.Do(func() error { return AwaitUp(Port(i)) }),
			h.Do(func() error { return AwaitUp("eth0") }))
		if err != nil {
			return nil, fmt.Errorf("star: host %d: %w", i, err)
		}
	}
	return s, nil
}

// upWait bounds the wait for an interface; the kernel checks carriers at intervals of up to a
// second.
const upWait = 10 * time.Second

// AwaitUp waits until the calling thread's interface is operational: the kernel drops packets sent
// before.
func AwaitUp(name string) error {
	for end := time.Now().Add(upWait); ; time.Sleep(time.Millisecond) {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if link.Attrs().OperState == netlink.OperUp {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("waited %v for interface %s to come up", upWait, name)
		}
	}
}

// Port returns the name of the centre's interface towards host i.
func Port(i int) string { return fmt.Sprintf("h%d", i) }

// Addr returns the address of host i.
func Addr(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 9, byte(i), 2}) }

// Gateway returns the centre's address towards host i.
func Gateway(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 9, byte(i), 1}) }

// plug connects host i to the centre.
func (s *Star) plug(i int, h *Space) error {
	gw := Gateway(i)
	err := s.Centre.Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = Port(i)
		attrs.HardwareAddr = mac(gw)
		veth := &netlink.Veth{
			LinkAttrs: attrs, PeerName: "eth0", PeerHardwareAddr: mac(Addr(i)), PeerNamespace: netlink.NsFd(h.fd),
		}
		if err := netlink.LinkAdd(veth); err != nil {
			return err
		}
		return address(Port(i), gw, Addr(i))
	})
	if err != nil {
		return err
	}
	return h.Do(func() error {
		if err := address("eth0", Addr(i), gw); err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{Gw: gw.AsSlice()})
	})
}

// mac returns the hardware address of the interface with address a.
func mac(a netip.Addr) net.HardwareAddr {
	b := a.As4()
	return net.HardwareAddr{2, 0, b[0], b[1], b[2], b[3]}
}

// address gives the calling thread's interface the address a of a /24, sets it up and adds a
// permanent entry for its peer, so that no packet waits for, or is lost during, address resolution.
func address(name string, a, peer netip.Addr) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	ip := &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(24, 32)}
	if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: ip}); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return err
	}
	return netlink.NeighSet(&netlink.Neigh{
		LinkIndex: link.Attrs().Index, State: netlink.NUD_PERMANENT, IP: peer.AsSlice(), HardwareAddr: mac(peer),
	})
}

// Close ends all namespaces.
func (s *Star) Close() {
	for _, h := range s.Hosts {
		h.Close()
	}
	if s.Centre != nil {
		s.Centre.Close()
	}
}
