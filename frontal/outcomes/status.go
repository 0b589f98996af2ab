package outcomes

import (
	"slices"
	"sort"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// SiteStatus is the data about one site, for Status.
type SiteStatus struct {
	Site       overlay.SiteID    `json:"site"`
	Winner     string            `json:"winner,omitempty"`
	Techniques []TechniqueStatus `json:"techniques"`
}

// TechniqueStatus is the record of one technique between this site and another.
type TechniqueStatus struct {
	Technique overlay.Technique `json:"technique"`
	Successes int               `json:"successes"`
	Failures  int               `json:"failures"`
	SetupMS   float64           `json:"setup_ms,omitempty"` // of the last success
	Reason    string            `json:"reason,omitempty"`   // of the last failure, or why another is taken
	Barred    bool              `json:"barred,omitempty"`

	// BarredFor are the nodes for which alone it is barred: "a1", "with b1" for one of the other site,
	// "a1 with b1". Of very many it has some.
	BarredFor []string `json:"barred_for,omitempty"`
}

// maxBarredFor bounds TechniqueStatus.BarredFor.
const maxBarredFor = 64

// Status returns all data by site.
func (m *Memory) Status(now time.Time) []SiteStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := []SiteStatus{}
	for site, s := range m.sites {
		sm := SiteStatus{Site: site}
		_, barred := m.advise(site, Pair{}, s.plan, now)
		if t := s.latest(now); t != 0 {
			sm.Winner = t.String()
		}
		for t, tm := range s.techs {
			row := TechniqueStatus{Technique: t, Successes: tm.successes, Failures: tm.failures,
				SetupMS: float64(tm.setup.Microseconds()) / 1000, Reason: tm.lastReason}
			for _, b := range barred {
				if b.Technique == t {
					row.Barred = true
					if b.Inferior {
						row.Reason = b.Reason
					}
				}
			}
			for scope, r := range tm.runs {
				if scope != (Pair{}) && now.Before(r.barred) && len(row.BarredFor) < maxBarredFor {
					row.BarredFor = append(row.BarredFor, scope.String())
				}
			}
			for own, one := range tm.inferior {
				if now.Before(one.until) && len(row.BarredFor) < maxBarredFor {
					row.BarredFor = append(row.BarredFor, own)
					row.Reason = one.reason
				}
			}
			slices.Sort(row.BarredFor)
			row.BarredFor = slices.Compact(row.BarredFor)
			sm.Techniques = append(sm.Techniques, row)
		}
		sort.Slice(sm.Techniques, func(i, j int) bool { return sm.Techniques[i].Technique.PreferredTo(sm.Techniques[j].Technique) })
		out = append(out, sm)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Site < out[j].Site })
	return out
}
