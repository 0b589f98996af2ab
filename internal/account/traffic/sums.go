package traffic

import (
	"cmp"
	"maps"
	"time"

	"github.com/isthmus-grid/isthmus/internal/account/metrics"
	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/limit"
	"github.com/isthmus-grid/isthmus/internal/limit/quota"
	"github.com/isthmus-grid/isthmus/internal/limit/ratelimit"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Bounds of what one daemon distinguishes. Traffic of further pairs of sites is counted between
// Unknown sites, and of further projects for metrics.Other.
const (
	MaxPairs    = 1000
	maxProjects = 10_000
)

// Unknown stands for a site that a link's set-up did not name. No site can have this name.
const Unknown = overlay.SiteID("-")

// Pair is a direction between two sites: bytes go from From to To, whichever asked for the link.
type Pair struct{ From, To overlay.SiteID }

// Back returns the other direction.
func (p Pair) Back() Pair { return Pair{p.To, p.From} }

// Count is what passed in one direction. Rule and Rate describe the last wait, as in ratelimit.Held.
type Count struct {
	Bytes uint64
	Links int // live
	Waits uint64
	Rule  string
	Rate  quota.Rate
	held  time.Time // start of the last wait; not reported
}

// Plus returns the sum of both. The later wait determines Rule and Rate.
func (c Count) Plus(other Count) Count {
	c.Bytes += other.Bytes
	c.Links += other.Links
	c.Waits += other.Waits
	if other.Rule != "" && !other.held.Before(c.held) {
		c.Rule, c.Rate, c.held = other.Rule, other.Rate, other.held
	}
	return c
}

// Of returns what a link has moved so far: out from its first end to its second, back in the other
// direction. live means that the link still exists. held may be nil.
func Of(stats carrier.Stats, held *ratelimit.Throttle, live bool) (out, back Count) {
	out.Bytes, back.Bytes = stats.AToB, stats.BToA
	for dir, c := range []*Count{&out, &back} {
		if live {
			c.Links = 1
		}
		if held != nil {
			h := held.Held(dir)
			c.Waits, c.Rule, c.Rate, c.held = h.Waits, h.Rule, h.Rate, h.At
		}
	}
	return out, back
}

// Sums are what links have moved, by pair of sites and by project. The zero value is ready; it is
// not safe for concurrent use.
type Sums struct {
	pairs    limit.Bounded[Pair, Count]
	projects limit.Bounded[string, uint64]
}

// Add adds to both directions of a pair.
func (s *Sums) Add(p Pair, out, back Count) {
	s.pairs.Max, s.pairs.Other = MaxPairs-1, Pair{Unknown, Unknown}
	there, here := s.pairs.At(p), s.pairs.At(p.Back())
	*there = there.Plus(out)
	*here = here.Plus(back)
}

// AddProject adds bytes for a project. Those for none, "", are under "-", which no project can be.
func (s *Sums) AddProject(project string, bytes uint64) {
	s.projects.Max, s.projects.Other = maxProjects, metrics.Other
	*s.projects.At(cmp.Or(project, "-")) += bytes
}

// Clone returns a copy.
func (s *Sums) Clone() *Sums { return &Sums{s.pairs.Clone(), s.projects.Clone()} }

// Counts returns the counts by pair.
func (s *Sums) Counts() map[Pair]Count { return maps.Collect(s.pairs.All()) }

// Projects returns the bytes of both directions by project.
func (s *Sums) Projects() map[string]uint64 { return maps.Collect(s.projects.All()) }
