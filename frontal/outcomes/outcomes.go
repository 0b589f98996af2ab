// Package outcomes records the outcomes of the techniques between this site and each other one:
// which connected last, and which are not worth an attempt for now. It decides about no technique;
// helpers weigh its advice. It has one lock and no clock.
package outcomes

import (
	"fmt"
	"sort"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// How long an outcome counts, how many failures in a row bar a technique, and how long it is barred
// before one more attempt: one that worked under the same plan will work again after a disturbance,
// and links that had to leave it wait for that.
const (
	winnerLife  = time.Hour
	maxTries    = 3
	barredFor   = time.Hour
	disturbance = 15 * time.Second

	// A technique that was measured to be much slower than another is skipped for firstInferior,
	// and for twice as long if it still is slower after that.
	firstInferior = 30 * time.Second
	maxInferior   = time.Hour
)

// Memory records the outcomes of the techniques between this site and each other one. All ranks of
// the site share it, so that a path that cannot work is tried three times by the whole site and
// then once an hour, not once per link. Its data about a site belongs to one plan: if either site's
// profile changes, so does the plan, and everything is tried again.
//
// Time is an argument.
type Memory struct {
	mu    sync.Mutex                     // guards all fields below
	sites map[overlay.SiteID]*siteMemory // bounded by the number of sites of the grid
}

type siteMemory struct {
	plan   uint64 // digest
	winner overlay.Technique
	won    time.Time
	techs  map[overlay.Technique]*techniqueMemory
}

// techniqueMemory is one technique between two sites.
type techniqueMemory struct {
	successes, failures int // total
	inARow              int // failures since the last success
	lastFailure         time.Time
	lastReason          string
	setup               time.Duration // of the last success

	inferior       time.Time     // until when it is skipped for a faster one
	inferiorFor    time.Duration // the length of that time
	inferiorReason string
}

// New returns an empty memory.
func New() *Memory { return &Memory{sites: map[overlay.SiteID]*siteMemory{}} }

// of returns the data under that plan, and discards data of another plan. The caller holds mu.
func (m *Memory) of(site overlay.SiteID, plan uint64) *siteMemory {
	s := m.sites[site]
	if s == nil || s.plan != plan {
		s = &siteMemory{plan: plan, techs: map[overlay.Technique]*techniqueMemory{}}
		m.sites[site] = s
	}
	return s
}

func (s *siteMemory) tech(t overlay.Technique) *techniqueMemory {
	if s.techs[t] == nil {
		s.techs[t] = &techniqueMemory{}
	}
	return s.techs[t]
}

// Connected records that t worked.
func (m *Memory) Connected(site overlay.SiteID, plan uint64, t overlay.Technique, setup time.Duration, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.of(site, plan)
	s.winner, s.won = t, now
	tm := s.tech(t)
	tm.successes++
	tm.inARow, tm.setup = 0, setup
}

// Failed records that t did not work, and why.
func (m *Memory) Failed(site overlay.SiteID, plan uint64, t overlay.Technique, reason string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.of(site, plan)
	tm := s.tech(t)
	tm.failures++
	tm.inARow++
	tm.lastFailure, tm.lastReason = now, reason
	if s.winner == t {
		s.winner = 0
	}
}

// Inferior records that a link by t was abandoned for another path, and why. Many links may report
// it at once: repeated reports are ignored.
func (m *Memory) Inferior(site overlay.SiteID, plan uint64, t overlay.Technique, reason string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.of(site, plan)
	tm := s.tech(t)
	if s.winner == t {
		s.winner = 0
	}
	if t == overlay.Relay || now.Before(tm.inferior) {
		return
	}
	if tm.inferiorFor == 0 || now.Sub(tm.inferior) > 10*tm.inferiorFor {
		tm.inferiorFor = firstInferior
	} else {
		tm.inferiorFor = min(2*tm.inferiorFor, maxInferior)
	}
	tm.inferior, tm.inferiorReason = now.Add(tm.inferiorFor), reason
}

// Bar is a technique that is not to be tried for now.
type Bar struct {
	Technique overlay.Technique
	Reason    string
	Inferior  bool // it connects, and is used only if nothing else does
}

// Winner is the technique that connected last.
type Winner struct {
	Technique overlay.Technique // 0: none did recently
	Setup     time.Duration     // the time it took
}

// Advice returns the technique that worked last, if that was recent, and those that are barred. The
// relay is never barred: it is the last resort.
func (m *Memory) Advice(site overlay.SiteID, plan uint64, now time.Time) (winner Winner, barred []Bar) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.advise(site, plan, now)
}

// advise is Advice; the caller holds mu.
func (m *Memory) advise(site overlay.SiteID, plan uint64, now time.Time) (winner Winner, barred []Bar) {
	s := m.sites[site]
	if s == nil || s.plan != plan {
		return Winner{}, nil
	}
	if s.winner != 0 && now.Sub(s.won) < winnerLife {
		winner = Winner{s.winner, s.tech(s.winner).setup}
	}
	for t, tm := range s.techs {
		if now.Before(tm.inferior) {
			barred = append(barred, Bar{t, fmt.Sprintf("%s; to be tried again in %v", tm.inferiorReason, tm.inferior.Sub(now).Round(time.Second)), true})
			continue
		}
		if t == overlay.Relay || tm.inARow < maxTries {
			continue
		}
		rest, round := barredFor, time.Minute
		if tm.successes > 0 {
			rest, round = disturbance, time.Second
		}
		if again := tm.lastFailure.Add(rest); now.Before(again) {
			barred = append(barred, Bar{Technique: t, Reason: fmt.Sprintf("failed %d times in a row, to be tried again in %v: %s",
				tm.inARow, again.Sub(now).Round(round), tm.lastReason)})
		}
	}
	sort.Slice(barred, func(i, j int) bool { return barred[i].Technique < barred[j].Technique })
	return winner, barred
}

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
}

// Status returns all data by site.
func (m *Memory) Status(now time.Time) []SiteStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := []SiteStatus{}
	for site, s := range m.sites {
		sm := SiteStatus{Site: site}
		winner, barred := m.advise(site, s.plan, now)
		if winner.Technique != 0 {
			sm.Winner = winner.Technique.String()
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
			sm.Techniques = append(sm.Techniques, row)
		}
		sort.Slice(sm.Techniques, func(i, j int) bool { return sm.Techniques[i].Technique < sm.Techniques[j].Technique })
		out = append(out, sm)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Site < out[j].Site })
	return out
}
