package link

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
)

// This file drops carriers whose local address the host has lost: a laptop has changed networks, or
// a site was renumbered. Such a carrier can neither send nor receive, and its silence would be
// noticed only some round trips later. The paths themselves are not to blame, and what was found of them no longer
// holds: from the new address a path may work that did not.

// quietBefore is how long nothing must have arrived on a carrier before its address is checked: a
// carrier on which data arrives has its address.
const quietBefore = 150 * time.Millisecond

var errAddressGone = errors.New("no longer an address of this host")

// checkAddresses drops the carriers whose local address is gone. Called by the goroutine that
// watches the mesh's links.
func (sv *supervisor) checkAddresses(now time.Time) {
	if now.Before(sv.addressDue) {
		return
	}
	for _, c := range sv.link.stream.Carriers() {
		a := c.Carrier.Owner.(*carrierInfo)
		if !a.placed {
			a.placed, a.local = true, sv.localAddress(a.socket)
		}
		if !a.local.IsValid() || c.Quiet < quietBefore {
			continue
		}
		sv.addressDue = now.Add(carrier.AddressEvery)
		if !sv.mesh.hasAddress(a.local) {
			sv.mesh.movedAway(now)
			sv.link.stream.Drop(c.Carrier, fmt.Errorf("its local address, %v, is %w", a.local, errAddressGone))
		}
	}
}

// movedAway makes all links look for a better path soon, whatever they have found from an address that is gone.
func (m *Mesh) movedAway(now time.Time) {
	for _, sv := range m.kept() {
		sv.mu.Lock()
		sv.lookout.restart(now)
		sv.ranker.forget()
		sv.mu.Unlock()
	}
}

// localAddress returns the address from which a socket sends, if that is one of this host's. A
// helper may have opened the socket in another network namespace, whose addresses are unknown here.
func (sv *supervisor) localAddress(socket *net.TCPConn) netip.Addr {
	if socket == nil {
		return netip.Addr{}
	}
	own, ok := socket.LocalAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	addr := own.AddrPort().Addr().Unmap()
	if !sv.mesh.hasAddress(addr) {
		return netip.Addr{}
	}
	return addr
}
