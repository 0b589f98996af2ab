// Package outcomes records the outcomes of the techniques between this site and each other one:
// which connected last, and which are to be tried last for now, because they failed (barred) or are
// slow (inferior). It decides about no technique; helpers weigh its advice. It has one lock and no
// clock.
//
// A bar is there to save time while another technique works. It must not outlive a disturbance of
// the network between the sites, in which everything fails. So it is short at first and doubles, none
// is advised where nothing works, and it ends when there is news that such a disturbance is over:
// another technique works again that failed at the same time; a process of the other site connects
// to one here, for the first time since; the broker is back, or says that the other site is.
package outcomes

import (
	"fmt"
	"maps"
	"sort"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

const (
	winnerLife = time.Hour // how long a success counts

	// maxTries failures in a row bar a technique for firstBar, and each failure after a bar bars it
	// for twice as long: the failures may be a disturbance's, as many short ones are over by then. One
	// that worked under the same plan is barred for firstBar each time: it will work again, and links
	// that had to leave it wait for that.
	maxTries = 3
	firstBar = 15 * time.Second
	maxBar   = time.Hour

	// A bar ends early only if its failures began minSilence ago: what fails just before another
	// technique connects failed in the same dials, and not in a disturbance. Failures that began at
	// most overlap apart may be of one disturbance: an attempt takes up to half of that, and the other
	// half may pass until a dead session is noticed.
	minSilence = 5 * time.Second
	overlap    = 30 * time.Second

	// A technique that was measured to be much slower than another is skipped for firstInferior,
	// and for twice as long if it still is slower after that.
	firstInferior = 30 * time.Second
	maxInferior   = time.Hour

	// siteLife is how long a site without news is remembered.
	siteLife = 24 * time.Hour
)

// Memory records the outcomes of the techniques between this site and each other one. All ranks of
// the site share it, so that a path that cannot work is tried three times by the whole site and
// then ever more rarely, up to once an hour, not once per link. Its data about a site belongs to one
// plan: if either site's profile changes, so does the plan, and everything is tried again.
//
// Time is an argument.
type Memory struct {
	mu    sync.Mutex                     // guards all fields below
	sites map[overlay.SiteID]*siteMemory // bounded by the number of sites of the grid
}

type siteMemory struct {
	news   time.Time // when something was last recorded
	plan   uint64    // digest
	winner overlay.Technique
	won    time.Time
	techs  map[overlay.Technique]*techniqueMemory

	met  time.Time // when processes of the two sites last connected without a relay, from either end
	away time.Time // since when the broker says that the site's frontal has no session; zero: it does not
}

// techniqueMemory is one technique between two sites.
type techniqueMemory struct {
	successes, failures int       // total
	inARow              int       // failures since the last success, or since the bar was ended
	firstInARow         time.Time // time of the first of these
	lastReason          string
	setup               time.Duration // of the last success

	barred    time.Time     // until when it is
	barredFor time.Duration // the length of that time

	inferior       time.Time     // until when it is skipped for a faster one
	inferiorFor    time.Duration // the length of that time
	inferiorReason string
}

// New returns an empty memory.
func New() *Memory { return &Memory{sites: map[overlay.SiteID]*siteMemory{}} }

// of returns the data under that plan, to record something in it, and discards data of another plan,
// and of sites without news. The caller holds mu.
func (m *Memory) of(site overlay.SiteID, plan uint64, now time.Time) *siteMemory {
	s := m.sites[site]
	if s == nil {
		maps.DeleteFunc(m.sites, func(_ overlay.SiteID, s *siteMemory) bool { return now.Sub(s.news) > siteLife })
	}
	if s == nil || s.plan != plan {
		s = &siteMemory{plan: plan, techs: map[overlay.Technique]*techniqueMemory{}}
		m.sites[site] = s
	}
	s.news = now
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
	s := m.of(site, plan, now)
	tm := s.tech(t)
	s.worksAgain(tm, now)
	if t != overlay.Relay {
		s.met = now
	}
	s.winner, s.won = t, now
	tm.successes++
	tm.setup = setup
	tm.endBar()
}

// Called records that a process of the site connected to one of this site by t. That does not prove
// that t works from here, but that the network is there. Unknown sites are ignored: no bar is to be
// ended.
func (m *Memory) Called(site overlay.SiteID, t overlay.Technique, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sites[site]
	if s == nil {
		return
	}
	if own := s.techs[t]; own != nil {
		s.worksAgain(own, now)
	}
	if t != overlay.Relay { // which works also where the sites do not reach each other
		s.endBars(s.met, now)
		s.met = now
	}
}

// worksAgain ends the bars of techniques that failed together with tm, which works now.
func (s *siteMemory) worksAgain(tm *techniqueMemory, now time.Time) {
	if tm.inARow > 0 {
		s.endBars(tm.firstInARow.Add(-overlap), now)
	}
}

// endBars ends the bars of techniques whose failures in a row all came after since: they were those
// of a disturbance that is over.
func (s *siteMemory) endBars(since, now time.Time) {
	for _, tm := range s.techs {
		if tm.firstInARow.After(since) && now.Sub(tm.firstInARow) >= minSilence {
			tm.endBar()
		}
	}
}

// endBar forgets the failures in a row.
func (tm *techniqueMemory) endBar() {
	tm.inARow, tm.barred, tm.barredFor = 0, time.Time{}, 0
}

// Rejoined records that this site has a session with a broker again, after it had none since a time:
// it may have been cut off from every other site.
func (m *Memory) Rejoined(since, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.sites {
		s.endBars(since.Add(-overlap), now)
	}
}

// Away records that the broker said that the site's frontal has no session with it.
func (m *Memory) Away(site overlay.SiteID, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.sites[site]; s != nil && s.away.IsZero() {
		s.away = now
	}
}

// Present records that the broker called the site's frontal.
func (m *Memory) Present(site overlay.SiteID, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.sites[site]; s != nil && !s.away.IsZero() {
		s.endBars(s.away.Add(-overlap), now)
		s.away = time.Time{}
	}
}

// Failed records that t did not work, and why.
func (m *Memory) Failed(site overlay.SiteID, plan uint64, t overlay.Technique, reason string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.of(site, plan, now)
	tm := s.tech(t)
	tm.failures++
	if tm.inARow++; tm.inARow == 1 {
		tm.firstInARow = now
	}
	tm.lastReason = reason
	if s.winner == t {
		s.winner = 0
	}
	if t == overlay.Relay || tm.inARow < maxTries || now.Before(tm.barred) { // many links may report at once
		return
	}
	if tm.barredFor == 0 || tm.successes > 0 {
		tm.barredFor = firstBar
	} else {
		tm.barredFor = min(2*tm.barredFor, maxBar)
	}
	tm.barred = now.Add(tm.barredFor)
}

// Inferior records that a link by t was abandoned for another path, and why. Many links may report
// it at once: repeated reports are ignored.
func (m *Memory) Inferior(site overlay.SiteID, plan uint64, t overlay.Technique, reason string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.of(site, plan, now)
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

// Bar is a technique that is to be tried only when the others have not connected.
type Bar struct {
	Technique overlay.Technique
	Reason    string
	Inferior  bool // it connects, but carries less
}

// Winner is the technique that connected last.
type Winner struct {
	Technique overlay.Technique // 0: none did recently
	Setup     time.Duration     // the time it took
}

// Advice returns the technique that worked last, if that was recent, and those that are barred. The
// relay is never barred, and where all that was tried has failed nothing is: no time would be saved.
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
		if now.Before(tm.barred) && s.hasOther() {
			barred = append(barred, Bar{Technique: t, Reason: fmt.Sprintf("failed %d times in a row, to be tried again in %v: %s",
				tm.inARow, tm.barred.Sub(now).Round(time.Second), tm.lastReason)})
		}
	}
	sort.Slice(barred, func(i, j int) bool { return barred[i].Technique.PreferredTo(barred[j].Technique) })
	return winner, barred
}

// hasOther reports whether there is a technique to take in place of the barred ones. A relay may
// connect each time and yet carry nothing.
func (s *siteMemory) hasOther() bool {
	for _, tm := range s.techs {
		if tm.inARow < maxTries {
			return true
		}
	}
	return false
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
		sort.Slice(sm.Techniques, func(i, j int) bool { return sm.Techniques[i].Technique.PreferredTo(sm.Techniques[j].Technique) })
		out = append(out, sm)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Site < out[j].Site })
	return out
}
