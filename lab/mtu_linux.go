package lab

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables"

	"golang.org/x/sys/unix"
)

// A Narrowing is a path to a site whose MTU was reduced while a test runs, with all ICMP errors
// about it suppressed.
type Narrowing struct {
	lab    *Lab
	uplink string
	silent string // the table that drops the ICMP errors
}

// Narrow makes bytes the largest packet that reaches a site from the others, and silently drops
// larger ones: as if a tunnel had replaced a link on the path, and a firewall dropped ICMP (RFC
// 2923, section 2.1). The MTU of the site's own gateway stays unchanged.
func (l *Lab) Narrow(site string, bytes int) (*Narrowing, error) {
	i := slices.IndexFunc(l.plan.hosts, func(h hostPlan) bool {
		return h.uplink != "" && siteOf(h.name) == site && (h.role == roleGateway || h.role == roleProvider)
	})
	if i < 0 {
		return nil, fmt.Errorf("lab: narrowing the path to %q: no site behind a gateway has that name", site)
	}
	h := l.plan.hosts[i]
	if h.six.addr.IsValid() && bytes < 1280 {
		return nil, fmt.Errorf("lab: narrowing the path to %q: IPv6 asks for packets of 1280 bytes (RFC 8200, section 5), not %d", site, bytes)
	}
	n := &Narrowing{lab: l, uplink: h.uplink, silent: fmt.Sprintf("narrow%d", faults.Add(1))}
	err := l.internet.Do(func() error {
		if err := loadRules(strings.Replace(internetSilence, "table inet silence", "table inet "+n.silent, 1)); err != nil {
			return err
		}
		return SetMTU(n.uplink, bytes)
	})
	if err != nil {
		return nil, fmt.Errorf("lab: narrowing the path to %s to %d bytes: %w", site, bytes, err)
	}
	return n, nil
}

// Lift lets packets of 1500 bytes pass again.
func (n *Narrowing) Lift() error {
	err := n.lab.internet.Do(func() error {
		conn, err := nftables.New()
		if err != nil {
			return err
		}
		conn.DelTable(&nftables.Table{Name: n.silent, Family: unix.NFPROTO_INET})
		return errors.Join(SetMTU(n.uplink, 1500), conn.Flush())
	})
	if err != nil {
		return fmt.Errorf("lab: widening %s again: %w", n.uplink, err)
	}
	return nil
}
