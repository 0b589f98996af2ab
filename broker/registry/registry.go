package registry

import (
	"time"

	"github.com/isthmus-grid/isthmus/internal/limit"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Limits are the bounds on the contents of a registry.
type Limits struct {
	Sites        int // including those whose frontal is away
	Processes    int // of all sites
	PerSite      int // processes of one site
	Waiting      int // callers of Await and LookupName
	NamesPerSite int // published names of one site, of MaxNames in all
}

// Holder names the session of a frontal or a proxy, which owns what it entered into the registry.
// Zero is no session.
type Holder uint64

// Entry is a registered process and its site. The zero Entry is no process.
type Entry struct {
	Point overlay.AccessPoint
	Site  *Site
	Died  bool // not registered because it died

	// Former is the former access point of a process that is no longer registered, while another
	// process of its job is. Nil: it never registered, or the record was dropped. Read-only.
	Former *overlay.AccessPoint
	// Refused is why its registration was refused, if it was.
	Refused error
}

// Site is the registry's entry of a site. A Site is immutable: when a frontal joins or leaves, a
// new one replaces it.
type Site struct {
	Profile overlay.SiteProfile
	Holder  Holder    // the frontal's session; zero while it is away
	Since   time.Time // when it joined, or left if away
}

// Inventory is a summary of the registry's content, for status pages.
type Inventory struct {
	Sites   []SiteInventory
	Jobs    []JobInventory
	Waiting int // callers of Await and LookupName
	Names   int // published names

	NameLimits limit.Stats // use of the limits on names, per site and in all
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
	For       []JobPrincipal // on whose behalf it runs, by site
}

// JobPrincipal is on whose behalf a job runs at a site.
type JobPrincipal struct {
	Site overlay.SiteID `json:"site"`
	overlay.Principal
	Processes int `json:"processes"`
}
