package broker

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/limit"
	"github.com/isthmus-grid/isthmus/internal/pki/ticket"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Holder names the session of a frontal or a proxy. What a session put into
// the registry is its own. Zero is no session.
type Holder uint64

// Registry is who is where: sites, processes and proxies. The embedded one is
// NewMemory's; others may keep it elsewhere, for several brokers. All methods
// are safe for concurrent use, none calls a peer, and time is an argument, so
// that a registry has no clock. Errors wrap those of package overlay.
type Registry interface {
	// Join makes holder the session of the profile's site and returns the one
	// it replaces, zero if none. Processes of the site that are not registered
	// again within the lease are dropped.
	Join(profile overlay.SiteProfile, holder Holder, now time.Time) (replaced Holder, err error)

	// Register adds or renews processes of the site that holder joined with.
	// The result has one error for each point, nil where it was taken:
	// ErrStale for an older life of a process, ErrForbidden for another site's
	// node, ErrOverloaded over the limits. If holder is not the session of a
	// site, all fail with ErrUnknownSite.
	Register(holder Holder, points []overlay.AccessPoint) []error

	// Withdraw removes a process of holder's site, if it is still in the given
	// generation.
	Withdraw(holder Holder, process overlay.ProcessName, generation overlay.Generation)

	// Died is Withdraw of a process that did not say it leaves. That is known until
	// the process registers anew or nobody of its job is left.
	Died(holder Holder, process overlay.ProcessName, generation overlay.Generation)

	// Refused says that a process was not let register for good, and why. That is
	// known, of a job of which somebody is registered, until the process registers or
	// nobody of its job is left; who awaits it is told at once.
	Refused(process overlay.ProcessName, why error)

	// Lookup returns one entry for each process, in order, with a nil Site for
	// those that are not registered. It appends to dst.
	Lookup(dst []Entry, processes []overlay.ProcessName) []Entry

	// Principals returns on whose behalf the job's processes at a site work,
	// each once, in no order; none if no process is registered there.
	Principals(job overlay.JobID, site overlay.SiteID) []overlay.Principal

	// Await returns the process's entry as soon as there is one, or what Refused
	// told of it. It fails with
	// ErrUnknownProcess when ctx ends, with ErrEnded at once for one that died, and with ErrOverloaded at once when too
	// many wait.
	Await(ctx context.Context, process overlay.ProcessName) (Entry, error)

	// Publish gives names of registered processes of holder's site a text. The
	// result has one error for each, nil where it was taken: ErrNameTaken for
	// another process's, ErrOverloaded over the limits. A name goes with its
	// process; one that the frontal does not publish again when it joins anew, with
	// the lease.
	Publish(holder Holder, names []overlay.Publication) []error

	// Unpublish takes a name back, whose port does not matter. ErrUnknownName if the
	// process has not published it.
	Unpublish(holder Holder, name overlay.Publication) error

	// LookupName returns a published name. Without wait it fails with
	// ErrUnknownName at once when there is none, else when ctx ends, or with
	// ErrOverloaded at once when too many wait.
	LookupName(ctx context.Context, name string, wait bool) (overlay.Publication, error)

	// Site returns what is known of a site; ErrUnknownSite if nothing is.
	Site(id overlay.SiteID) (*Site, error)

	// Offer adds or renews a proxy and returns the session it replaces, zero
	// if none.
	Offer(offer Offer, holder Holder) (replaced Holder, err error)

	// Assign chooses a proxy for a new link and counts the link as the proxy's
	// until its next offer. It fails with ErrNoRelay when no proxy is there that
	// the link may use and ErrOverloaded when none takes another link.
	Assign(choice Choice, need Need) (Offer, error)

	// Proxies returns the proxies that have a session, by name.
	Proxies() []Proxy

	// Leave says that a session ended. A proxy is gone with it; a site's
	// processes stay for the lease, in which its frontal may join again.
	Leave(holder Holder, now time.Time)

	// Points returns the access points of all processes that match picks, in no
	// order. Match must not call the registry.
	Points(match func(overlay.AccessPoint) bool) []overlay.AccessPoint

	// Expire drops what outlived its lease, and returns how many processes.
	Expire(now time.Time) int

	// Inventory returns what is registered.
	Inventory() Inventory
}

// Entry is a registered process and its site. The zero Entry is no process.
type Entry struct {
	Point overlay.AccessPoint
	Site  *Site
	Died  bool // it is not registered because it died

	// Former is where a process was that is not registered any more, while somebody
	// of its job is. Nil: it never was, or that was forgotten. Not to be changed.
	Former *overlay.AccessPoint
	// Refused is why it is not registered, as far as it was refused.
	Refused error
}

// Site is what the registry knows of a site. A Site never changes: when a
// frontal joins or leaves, there is a new one.
type Site struct {
	Profile overlay.SiteProfile
	Holder  Holder    // the frontal's session; zero while it is away
	Since   time.Time // when it joined, or left if away
}

// Proxy is a proxy and its session.
type Proxy struct {
	Offer
	Holder Holder
}

// Need is what a link asks of its proxy.
type Need struct {
	Only443 bool   // an address of port 443
	IPv4    bool   // an IPv4 address; looked at only with IPv6
	IPv6    bool   // an IPv6 address
	Owner   string // that it keeps policies' allowances, those of this owner's links all alike; "" for a link without
}

// Offer is a proxy as it described itself.
type Offer struct {
	Name      string
	Addresses []netip.AddrPort // where nodes reach it, in order; not to be changed
	STUN      netip.AddrPort   // of its STUN server; not valid if it has none
	Key       ticket.Key
	Live      int // links when it last said so
	Capacity  int // links at most
	Draining  bool
	Named     bool // it takes tickets that name a principal
	Limited   bool // it takes tickets with allowances, and keeps those

	// Clock is the proxy's, by which its tickets expire, when this broker's was Heard; zero
	// of one of an older version, whose clock is taken for the broker's.
	Clock, Heard time.Time

	// The lowest rates that its quota holds links to, those of no project and those
	// of one; nil is none. For users to know; not to be changed.
	Limit, ProjectLimit *controlpb.RateLimit
}

// renewedAt returns what the proxy's clock shows when the broker's is now.
func (o Offer) renewedAt(now time.Time) time.Time {
	if o.Clock.IsZero() {
		return now
	}
	return o.Clock.Add(now.Sub(o.Heard))
}

// port443 is the one port that a site with restricted egress lets out.
const port443 = 443

// on443 reports whether a site that lets only port 443 out reaches the proxy.
func (o Offer) on443() bool {
	return slices.ContainsFunc(o.Addresses, func(a netip.AddrPort) bool { return a.Port() == port443 })
}

// reaches reports whether the proxy has an address of each version of IP that the need names.
func (o Offer) reaches(n Need) bool {
	has := func(is func(netip.Addr) bool) bool {
		return slices.ContainsFunc(o.Addresses, func(a netip.AddrPort) bool { return is(a.Addr().Unmap()) })
	}
	return !n.IPv6 || has(netip.Addr.Is6) && (!n.IPv4 || has(netip.Addr.Is4))
}

// Inventory is the registry's content in numbers, for status pages.
type Inventory struct {
	Sites   []SiteInventory
	Jobs    []JobInventory
	Proxies []ProxyInventory
	Waiting int // callers of Await and LookupName
	Names   int // that are published

	NameLimits limit.Stats // how far those of one site and all are used
}

// SiteInventory is one site.
type SiteInventory struct {
	Site
	Processes int
}

// JobInventory is one job.
type JobInventory struct {
	Job       overlay.JobID
	Processes map[overlay.SiteID]int
	For       []JobPrincipal // on whose behalf it works, by site
}

// JobPrincipal is on whose behalf a job works at a site.
type JobPrincipal struct {
	Site overlay.SiteID `json:"site"`
	overlay.Principal
	Processes int `json:"processes"`
}

// ProxyInventory is one proxy.
type ProxyInventory struct {
	Offer
	Assigned uint64 // links since its session began
}
