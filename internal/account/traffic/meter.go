package traffic

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/limit/quota"
	"github.com/isthmus-grid/isthmus/overlay"
)

const (
	// least is the shortest time over which a rate is computed: reports closer together do not
	// provide one.
	least = time.Second

	// Old is how long a daemon's report counts as current.
	Old = 15 * time.Second

	// kept is how long the flows of a daemon are kept after its last report.
	kept = 24 * time.Hour

	// maxFlows bounds the flows that a Meter keeps of all daemons together.
	maxFlows = 100_000
)

// Meter keeps the daemons' traffic reports, and computes rates. It has no clock. The zero value is
// ready; it is safe for concurrent use.
type Meter struct {
	mu    sync.Mutex // guards the fields below
	by    map[string]*daemonCounts
	flows int
}

// daemonCounts are those of one daemon.
type daemonCounts struct {
	life  uint64
	heard time.Time      // time of the last report
	since time.Time      // time of the report from which the next rates are computed
	base  map[Pair]Count // content of that report
	flows map[Pair]*flow
}

type flow struct {
	Flow
	last Count // as in the last report
}

// Flow is what one daemon carried in one direction between two sites.
type Flow struct {
	By    string         `json:"by"` // "proxy p1", "frontal a"
	From  overlay.SiteID `json:"from_site"`
	To    overlay.SiteID `json:"to_site"`
	Bytes uint64         `json:"bytes"`           // since the daemon started, plus the reported counts of earlier starts
	Rate  float64        `json:"bits_per_second"` // between the last two reports; 0 without two recent ones
	Links int            `json:"links"`           // live
	Waits uint64         `json:"waits"`           // how often a link had to wait for a quota

	Held     bool       `json:"held"`               // one did between the last two reports
	Rule     string     `json:"rule,omitempty"`     // the reason of the last wait
	RuleRate quota.Rate `json:"rule_rate,omitzero"` // shared by all links under the rule
	At       time.Time  `json:"at"`                 // time of the last report
}

// Fold replaces sites in a report for which known is false by Unknown, so that a daemon cannot invent
// any. Pairs of which the daemon has reported before stay, for a site may be gone for a while.
func (m *Meter) Fold(by string, r Report, known func(overlay.SiteID) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	of := func(id overlay.SiteID) overlay.SiteID {
		if id == Unknown || known(id) {
			return id
		}
		return Unknown
	}
	for p, c := range maps.Clone(r.Counts) {
		if d := m.by[by]; d != nil && d.flows[p] != nil {
			continue
		}
		if to := (Pair{of(p.From), of(p.To)}); to != p {
			delete(r.Counts, p)
			r.Counts[to] = r.Counts[to].Plus(c)
		}
	}
}

// Note records a report.
func (m *Meter) Note(by string, r Report, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.by == nil {
		m.by = map[string]*daemonCounts{}
	}
	d := m.by[by]
	if d == nil {
		d = &daemonCounts{flows: map[Pair]*flow{}}
		m.by[by] = d
	}
	if d.life != r.Life || now.Sub(d.heard) > Old { // nothing to compare with
		d.since, d.base = time.Time{}, nil
		for _, f := range d.flows {
			f.Rate, f.Held, f.Links = 0, false, 0
			if d.life != r.Life {
				f.last = Count{}
			}
		}
	}
	d.life, d.heard = r.Life, now
	took := now.Sub(d.since)
	for p, c := range r.Counts {
		f := d.flows[p]
		if f == nil {
			if m.flows >= maxFlows {
				continue
			}
			m.flows++
			f = &flow{Flow: Flow{By: by, From: p.From, To: p.To}}
			d.flows[p] = f
		}
		f.Bytes += grown(f.last.Bytes, c.Bytes)
		f.Waits += grown(f.last.Waits, c.Waits)
		f.last, f.Links = c, c.Links
		if c.Rule != "" {
			f.Rule, f.RuleRate = c.Rule, c.Rate
		}
		if !d.since.IsZero() && took >= least {
			was := d.base[p]
			f.Rate = float64(grown(was.Bytes, c.Bytes)) * 8 / took.Seconds()
			f.Held = c.Waits > was.Waits
		}
	}
	if d.since.IsZero() || took >= least {
		d.since, d.base = now, r.Counts
	}
}

// Expire removes the flows of daemons that have not reported for a day.
func (m *Meter) Expire(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for by, d := range m.by {
		if now.Sub(d.heard) > kept {
			m.flows -= len(d.flows)
			delete(m.by, by)
		}
	}
}

// grown returns by how much a count grew. A count that shrank, which it must not, has not grown.
func grown(from, to uint64) uint64 { return to - min(from, to) }

// Flows returns the known flows, by pair and daemon. A flow whose last report is older than Old has
// no rate and no links.
func (m *Meter) Flows(now time.Time) []Flow {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]Flow, 0, m.flows)
	for _, d := range m.by {
		for _, f := range d.flows {
			one := f.Flow
			if one.At = d.heard; now.Sub(d.heard) > Old {
				one.Rate, one.Held, one.Links = 0, false, 0
			}
			all = append(all, one)
		}
	}
	slices.SortStableFunc(all, func(a, b Flow) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), cmp.Compare(a.By, b.By))
	})
	return all
}
