package lab

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A reaper ends the UDP mappings of one NAT at a certain age, used or not. The kernel prolongs a
// mapping with every packet, so the reaper scans them at short intervals and deletes the expired
// ones. All state is the kernel's.
type reaper struct {
	name string // of the host
	nl   *netlink.Handle
	life time.Duration
}

// newReaper makes a reaper for the host h, whose rules are natMortal.
func newReaper(h *Host) (*reaper, error) {
	u := &reaper{name: h.Name(), life: h.plan.outer.udpLife}
	return u, h.Do(func() (err error) {
		if u.nl, err = netlink.NewHandle(unix.NETLINK_NETFILTER); err != nil {
			return fmt.Errorf("%s: opening conntrack: %w", u.name, err)
		}
		return nil
	})
}

// serve runs until ctx is done or the kernel returns an error.
func (u *reaper) serve(ctx context.Context) error {
	defer u.nl.Close()
	tick := time.NewTicker(min(u.life/20, time.Second))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := u.round(time.Now()); err != nil {
			return fmt.Errorf("%s: ending UDP mappings: %w", u.name, err)
		}
	}
}

func (u *reaper) round(now time.Time) error {
	flows, err := u.nl.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil // the next round sees what this one missed
	}
	if err != nil {
		return err
	}
	due := expired(flows, uint64(now.Add(-u.life).UnixNano()))
	if len(due) == 0 {
		return nil
	}
	_, err = u.nl.ConntrackDeleteFilters(netlink.ConntrackTable, unix.AF_INET, due)
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil
	}
	return err
}

// A mapping is a UDP mapping in the sense of RFC 4787: the inside address and port, whatever the
// destination.
type mapping struct {
	inside  string // address
	port    uint16 // inside
	outside uint16
}

func mappingOf(f *netlink.ConntrackFlow) (mapping, bool) {
	return mapping{f.Forward.SrcIP.String(), f.Forward.SrcPort, f.Reverse.DstPort}, f.Forward.Protocol == unix.IPPROTO_UDP
}

// mappings is a set that selects the flows of its mappings.
type mappings map[mapping]bool

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (m mappings) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	key, ok := mappingOf(f)
	return ok && m[key]
}

// expired returns the mappings with a flow that began at or before start, in nanoseconds of the
// clock. It ignores a flow without a time.
func expired(flows []*netlink.ConntrackFlow, start uint64) mappings {
	due := make(mappings)
	for _, f := range flows {
		if key, ok := mappingOf(f); ok && f.TimeStart != 0 && f.TimeStart <= start {
			due[key] = true
		}
	}
	return due
}
