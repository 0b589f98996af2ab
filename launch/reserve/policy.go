package reserve

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// Policy is what a node's owner permits others.
type Policy struct {
	Jobs      int   // J: concurrent jobs, including booked ones; 0: none
	Processes int   // P: processes of one job at a time
	Memory    int64 // bytes for all jobs together; 0: not limited
	CPU       int   // thousandths of a core for all jobs together; 0: not limited

	// Deny and Allow decide who may book. A requester that matches a rule of Deny may not; of the
	// others, those that match a rule of Allow may; none if it is empty. Only members of the grid
	// reach this check.
	Allow, Deny []Rule

	Lease   time.Duration // how long a reservation lives unless renewed; 0: 30 s
	Longest time.Duration // how long one may be renewed before it is committed; 0: 10 minutes
}

// Rule matches requesters. Each field that is set must match; at least one must be set.
type Rule struct {
	Identity  string // a pattern of path.Match: an asterisk matches anything but a slash
	Site      overlay.SiteID
	Addresses netip.Prefix
}

// Requester is the sender of a message, as authenticated by the connection.
type Requester struct {
	Identity string // of its certificate; never empty
	Site     overlay.SiteID
	Address  netip.Addr

	// Parts are those for whom a job asks, itself included, each of whom the rules must allow; empty: it asks
	// for itself. Each knows only of the next that it is so.
	Parts []Requester
}

func (r Requester) String() string {
	where := ""
	if r.Address.IsValid() {
		where = " at " + r.Address.String()
	}
	return fmt.Sprintf("%s of site %s%s", r.Identity, r.Site, where)
}

func (r Rule) fits(q Requester) bool {
	return r != Rule{} &&
		(r.Identity == "" || matches(r.Identity, q.Identity)) &&
		(r.Site == "" || r.Site == q.Site) &&
		(r.Addresses == netip.Prefix{} || r.Addresses.Contains(q.Address.Unmap()))
}

func matches(pattern, identity string) bool {
	ok, err := path.Match(pattern, identity)
	return ok && err == nil
}

// String describes what the rule matches.
func (r Rule) String() string {
	var parts []string
	if r.Identity != "" {
		parts = append(parts, "identity "+r.Identity)
	}
	if r.Site != "" {
		parts = append(parts, "site "+string(r.Site))
	}
	if (r.Addresses != netip.Prefix{}) {
		parts = append(parts, "addresses "+r.Addresses.String())
	}
	return strings.Join(parts, ", ")
}

// Check returns an error if the policy is invalid.
func (p Policy) Check() error {
	if p.Jobs < 0 || p.Processes < 0 || p.Memory < 0 || p.CPU < 0 || p.Lease < 0 || p.Longest < 0 {
		return errors.New("a policy has a negative number; 0 jobs or processes admit no job, 0 memory or CPU do not limit")
	}
	for _, r := range slices.Concat(p.Allow, p.Deny) {
		if r == (Rule{}) {
			return errors.New("a rule says nothing: set its identity, its site or its addresses")
		}
		if _, err := path.Match(r.Identity, ""); err != nil {
			return fmt.Errorf("identity %q of a rule: %w", r.Identity, err)
		}
	}
	return nil
}

func (p Policy) withDefaults() Policy {
	p.Lease = cmp.Or(p.Lease, 30*time.Second)
	p.Longest = cmp.Or(p.Longest, 10*time.Minute)
	return p
}

// Allows reports whether the rules let q book, and if not, why, for people.
func (p Policy) Allows(q Requester) (ok bool, why string) {
	for _, part := range q.Parts {
		if ok, why := p.Allows(part); !ok {
			return false, fmt.Sprintf("a job asks, as %s, each of whom must be allowed: %s", q.Identity, why)
		}
	}
	if len(q.Parts) > 0 {
		return true, ""
	}
	fits := func(r Rule) bool { return r.fits(q) }
	if i := slices.IndexFunc(p.Deny, fits); i >= 0 {
		return false, fmt.Sprintf("the owner denies %v", p.Deny[i])
	}
	if !slices.ContainsFunc(p.Allow, fits) {
		return false, fmt.Sprintf("no rule of the owner allows %v; what does: {site: %s} in offer.allow of its helper's settings", q, q.Site)
	}
	return true, ""
}
