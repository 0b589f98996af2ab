package registry

import (
	"time"

	"github.com/isthmus-grid/isthmus/internal/limit"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Limits are how many there may be of what a registry holds.
type Limits struct {
	Sites        int // those whose frontal is away included
	Processes    int // of all sites
	PerSite      int // processes of one site
	Waiting      int // callers of Await and LookupName
	NamesPerSite int // published names of one site, of MaxNames in all
}

// Holder names the session of a frontal or a proxy. What a session put into
// the registry is its own. Zero is no session.
type Holder uint64

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

// Inventory is the registry's content in numbers, for status pages.
type Inventory struct {
	Sites   []SiteInventory
	Jobs    []JobInventory
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
