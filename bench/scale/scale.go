// Package scale is `isthmus-lab bench scale`: the capacity of one proxy and one frontal. The proxy
// has thousands of live links that share its rate; the frontal a thousand helpers with ten
// processes each. Daemons run in processes of their own, on loopback sockets, and their memory and
// descriptors are read from the system; many of their clients share a process.
package scale

import (
	"fmt"
	"io"
	"time"

	"github.com/isthmus-grid/isthmus/internal/limit/quota"
)

// Options of a run.
type Options struct {
	Links     int           // through the proxy
	Rate      quota.Rate    // that they share
	For       time.Duration // that they are counted
	Helpers   int           // of the frontal; 0 leaves it out
	Processes int           // of all helpers together
	JSON      bool
	Self      []string // runs this program's Part; the part's name follows
	Out       io.Writer
	Err       io.Writer // progress
}

// Limits of a run.
const (
	maxLinks   = 4000 // this process holds both ends of each
	maxHelpers = 2000
	warmUp     = 2 * time.Second // until the burst is spent and all links are active
	patience   = 3 * time.Minute // until all have joined
	perProcess = 250             // helpers of one process
	maxRanks   = 20_000          // of all helpers
)

// Check returns an error for invalid options, or nil.
func (o Options) Check() error {
	switch {
	case o.Links < 0 || o.Links > maxLinks:
		return fmt.Errorf("%d links; want 0 to %d", o.Links, maxLinks)
	case o.Links > 0 && o.Rate <= 0:
		return fmt.Errorf("the links need a rate to share")
	case o.For < time.Second || o.For > time.Minute:
		return fmt.Errorf("counting for %v; want 1s to 1m", o.For)
	case o.Helpers < 0 || o.Helpers > maxHelpers:
		return fmt.Errorf("%d helpers; want 0 to %d", o.Helpers, maxHelpers)
	case o.Helpers > 0 && (o.Processes < o.Helpers || o.Processes > maxRanks):
		return fmt.Errorf("%d processes of %d helpers; want one for each at least, and at most %d", o.Processes, o.Helpers, maxRanks)
	case o.Links == 0 && o.Helpers == 0:
		return fmt.Errorf("there is nothing to measure without links and without helpers")
	}
	return nil
}
