package traffic

import (
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/limit/pace"
	"github.com/isthmus-grid/isthmus/internal/limit/quota"
	"github.com/isthmus-grid/isthmus/overlay"
)

// MaxPairs bounds the pairs of sites that one daemon distinguishes and reports. Traffic of further
// pairs is counted between Unknown sites.
const MaxPairs = 1000

// Unknown stands for a site that a link's set-up did not name. No site can have this name.
const Unknown = overlay.SiteID("-")

// Pair is a direction between two sites: bytes go from From to To, whichever asked for the link.
type Pair struct{ From, To overlay.SiteID }

// Back returns the other direction.
func (p Pair) Back() Pair { return Pair{p.To, p.From} }

// Count is what passed in one direction. Rule and Rate describe the last wait, as in pace.Held.
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
func Of(stats carrier.Stats, held *pace.Link, live bool) (out, back Count) {
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

// Sums are counts by pair, at most MaxPairs. The zero value is ready; it is not safe for concurrent
// use.
type Sums struct{ of map[Pair]Count }

// Add adds to both directions of a pair.
func (s *Sums) Add(p Pair, out, back Count) {
	s.add(p, out)
	s.add(p.Back(), back)
}

func (s *Sums) add(p Pair, c Count) {
	if s.of == nil {
		s.of = map[Pair]Count{}
	}
	if _, known := s.of[p]; !known && len(s.of) >= MaxPairs-1 {
		p = Pair{Unknown, Unknown}
	}
	s.of[p] = s.of[p].Plus(c)
}

// Clone returns a copy.
func (s *Sums) Clone() *Sums {
	c := &Sums{of: make(map[Pair]Count, len(s.of))}
	for p, n := range s.of {
		c.of[p] = n
	}
	return c
}

// Counts returns the counts. They belong to s.
func (s *Sums) Counts() map[Pair]Count { return s.of }
