package frontal

import (
	"fmt"
	"sort"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// How long an outcome counts, how many failures in a row bar a technique, and
// how long it is barred before it gets one more try: one that worked under the
// same plan will work again once a disturbance has passed, and links that had
// to leave it wait for that.
const (
	winnerLife  = time.Hour
	maxTries    = 3
	barredFor   = time.Hour
	disturbance = 15 * time.Second

	// A technique that was measured to carry far less than another is left out for
	// firstInferior, and for twice as long if it still does when that is over.
	firstInferior = 30 * time.Second
	maxInferior   = time.Hour
)

// memory is how the techniques did between this site and each other one. It is
// shared by all ranks of the site, so that a path which cannot work is tried
// three times by the whole site and then once an hour, not once a link. What it
// holds about a site belongs to one plan: when either site's profile changes
// the plan does, and everything is tried anew.
//
// Time is an argument.
type memory struct {
	mu    sync.Mutex                     // guards all below
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
	successes, failures int // in all
	inARow              int // failures since the last success
	lastFailure         time.Time
	lastReason          string
	setup               time.Duration // of the last success

	inferior       time.Time     // until when it is left out for another that carries more
	inferiorFor    time.Duration // how long that is
	inferiorReason string
}

func newMemory() *memory { return &memory{sites: map[overlay.SiteID]*siteMemory{}} }

// of returns what is known under that plan, forgetting what belongs to another. The
// caller holds mu.
func (m *memory) of(site overlay.SiteID, plan uint64) *siteMemory {
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

// connected notes that t worked.
func (m *memory) connected(site overlay.SiteID, plan uint64, t overlay.Technique, setup time.Duration, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.of(site, plan)
	s.winner, s.won = t, now
	tm := s.tech(t)
	tm.successes++
	tm.inARow, tm.setup = 0, setup
}

// failed notes that t did not work, and why.
func (m *memory) failed(site overlay.SiteID, plan uint64, t overlay.Technique, reason string, now time.Time) {
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

// inferior notes that a link by t was given up for another path, and why. Many links may
// say so at once: once it is known it is no news.
func (m *memory) inferior(site overlay.SiteID, plan uint64, t overlay.Technique, reason string, now time.Time) {
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

// bar is a technique that is not to be tried now.
type bar struct {
	technique overlay.Technique
	reason    string
	inferior  bool // it connects, and is to be taken where nothing else does
}

// won is the technique that connected last.
type won struct {
	technique overlay.Technique // 0: none did lately
	setup     time.Duration     // how long it took
}

// advice returns the technique that worked last, if that is not long ago, and
// those that are barred. The relay is never barred: it is what remains.
func (m *memory) advice(site overlay.SiteID, plan uint64, now time.Time) (winner won, barred []bar) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.advise(site, plan, now)
}

// advise is advice while the caller holds mu.
func (m *memory) advise(site overlay.SiteID, plan uint64, now time.Time) (winner won, barred []bar) {
	s := m.sites[site]
	if s == nil || s.plan != plan {
		return won{}, nil
	}
	if s.winner != 0 && now.Sub(s.won) < winnerLife {
		winner = won{s.winner, s.tech(s.winner).setup}
	}
	for t, tm := range s.techs {
		if now.Before(tm.inferior) {
			barred = append(barred, bar{t, fmt.Sprintf("%s; to be tried again in %v", tm.inferiorReason, tm.inferior.Sub(now).Round(time.Second)), true})
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
			barred = append(barred, bar{technique: t, reason: fmt.Sprintf("failed %d times in a row, to be tried again in %v: %s",
				tm.inARow, again.Sub(now).Round(round), tm.lastReason)})
		}
	}
	sort.Slice(barred, func(i, j int) bool { return barred[i].technique < barred[j].technique })
	return winner, barred
}

// SiteMemory is the memory about one site, for Status.
type SiteMemory struct {
	Site       overlay.SiteID    `json:"site"`
	Winner     string            `json:"winner,omitempty"`
	Techniques []TechniqueMemory `json:"techniques"`
}

// TechniqueMemory is how one technique did between this site and another.
type TechniqueMemory struct {
	Technique overlay.Technique `json:"technique"`
	Successes int               `json:"successes"`
	Failures  int               `json:"failures"`
	SetupMS   float64           `json:"setup_ms,omitempty"` // of the last success
	Reason    string            `json:"reason,omitempty"`   // of the last failure, or why another is taken
	Barred    bool              `json:"barred,omitempty"`
}

// status lists everything by site.
func (m *memory) status(now time.Time) []SiteMemory {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := []SiteMemory{}
	for site, s := range m.sites {
		sm := SiteMemory{Site: site}
		winner, barred := m.advise(site, s.plan, now)
		if winner.technique != 0 {
			sm.Winner = winner.technique.String()
		}
		for t, tm := range s.techs {
			row := TechniqueMemory{Technique: t, Successes: tm.successes, Failures: tm.failures,
				SetupMS: float64(tm.setup.Microseconds()) / 1000, Reason: tm.lastReason}
			for _, b := range barred {
				if b.technique == t {
					row.Barred = true
					if b.inferior {
						row.Reason = b.reason
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
