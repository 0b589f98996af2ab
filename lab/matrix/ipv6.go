package matrix

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/isthmus-grid/isthmus/lab"
)

// HasIPv6 reports whether a site of that preset can work without IPv4: where IPv4 is not translated
// the lab gives IPv6 as well, and some presets include it.
func HasIPv6(preset string) bool {
	p, err := lab.Profile(preset)
	return err == nil && (p.IPv6 || !p.NAT.Translates())
}

// checkFamily checks that a run over IPv6 used only IPv6: no host of the lab, all of which also
// have IPv4, may ever have sent an IPv4 packet.
func (w *world) checkFamily() error {
	if !w.IPv6 {
		return nil
	}
	var errs []error
	for _, h := range w.lab.Hosts() {
		n, err := ipv4Sent(h)
		if err == nil && n > 0 {
			err = fmt.Errorf("%d packets of IPv4 were sent in a run over IPv6", n)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", h.Name(), err))
		}
	}
	return errors.Join(errs...)
}

// ipv4Sent returns how many IPv4 packets a host has originated, including those to itself, but not
// those to multicast groups: a gateway's bridge joins some.
func ipv4Sent(h *lab.Host) (n uint64, err error) {
	err = h.Do(func() error {
		all, err := readCounter("snmp", "Ip:", "OutRequests")
		if err != nil {
			return err
		}
		groups, err := readCounter("netstat", "IpExt:", "OutMcastPkts")
		n = all - min(groups, all)
		return err
	})
	return n, err
}

// readCounter returns a counter of the calling thread's host.
func readCounter(file, group, name string) (uint64, error) {
	table, err := os.ReadFile("/proc/thread-self/net/" + file)
	if err != nil {
		return 0, err
	}
	return counter(string(table), group, name)
}

// counter returns one value of the kernel's table of network counters, in which each group has a
// line of names and then one of values.
func counter(table, group, name string) (uint64, error) {
	var names []string
	for line := range strings.Lines(table) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] != group {
			continue
		}
		if names == nil {
			names = words
			continue
		}
		if i := slices.Index(names, name); i >= 0 && i < len(words) {
			return strconv.ParseUint(words[i], 10, 64)
		}
		break
	}
	return 0, fmt.Errorf("the kernel does not count %s %s", group, name)
}
