package outcomes

import (
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

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

// Advice returns the technique that worked last, if that was recent, and those that are barred, for a
// pair of nodes. The relay is never barred, and where all that was tried has failed nothing is: no time
// would be saved.
func (m *Memory) Advice(site overlay.SiteID, pair Pair, plan uint64, now time.Time) (winner Winner, barred []Bar) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.advise(site, pair, plan, now)
}

// advise is Advice; the caller holds mu.
func (m *Memory) advise(site overlay.SiteID, pair Pair, plan uint64, now time.Time) (winner Winner, barred []Bar) {
	s := m.sites[site]
	if s == nil || s.plan != plan {
		return Winner{}, nil
	}
	winner = s.winner(pair.Own, now)
	if w := s.techs[winner.Technique]; w != nil {
		_, slow := w.inferiorTo(pair.Own, now)
		if slow || w.any(pair, func(scope Pair, r *run) bool { return r.shows(scope, 1, 1) && !w.overcome(scope, r, pair.Own, now) }) {
			winner = Winner{}
		}
	}
	for t, tm := range s.techs {
		if slow, is := tm.inferiorTo(pair.Own, now); is {
			barred = append(barred, Bar{t, fmt.Sprintf("%s; to be tried again in %v", slow.reason, slow.until.Sub(now).Round(time.Second)), true})
			continue
		}
		if !s.hasOther(pair) {
			continue
		}
		tm.any(pair, func(scope Pair, r *run) bool {
			if !now.Before(r.barred) || tm.overcome(scope, r, pair.Own, now) {
				return false
			}
			where := ""
			if scope != pair && scope != (Pair{}) {
				where = " (" + scope.String() + ")"
			}
			barred = append(barred, Bar{Technique: t, Reason: fmt.Sprintf("failed %d times in a row%s, to be tried again in %v: %s",
				r.inARow, where, r.barred.Sub(now).Round(time.Second), r.reason)})
			return true
		})
	}
	sort.Slice(barred, func(i, j int) bool { return barred[i].Technique.PreferredTo(barred[j].Technique) })
	return winner, barred
}

// winner returns what connected last for a node of this site: by itself, or else by two others.
func (s *siteMemory) winner(own string, now time.Time) (best Winner) {
	var latest, second time.Time
	for t, tm := range s.techs {
		if w := tm.won[own]; w.at.After(latest) && now.Sub(w.at) < winnerLife {
			latest, best = w.at, Winner{t, w.setup}
		}
	}
	if best.Technique != 0 {
		return best
	}
	for t, tm := range s.techs {
		var times []time.Time
		for _, w := range tm.won {
			times = append(times, w.at)
		}
		slices.SortFunc(times, func(a, b time.Time) int { return b.Compare(a) })
		if len(times) >= minOthers && times[minOthers-1].After(second) && now.Sub(times[minOthers-1]) < winnerLife {
			second, best = times[minOthers-1], Winner{t, tm.setup}
		}
	}
	return best
}

// latest returns what connected last for any node.
func (s *siteMemory) latest(now time.Time) (t overlay.Technique) {
	var last time.Time
	for one, tm := range s.techs {
		for _, w := range tm.won {
			if w.at.After(last) && now.Sub(w.at) < winnerLife {
				last, t = w.at, one
			}
		}
	}
	return t
}

// overcome reports whether the failures of all nodes of this site are none of a node: it has connected since, or the
// gateway has lately.
func (tm *techniqueMemory) overcome(scope Pair, r *run, own string, now time.Time) bool {
	return scope.Own == "" && tm.won[own].at.After(r.first) || tm.isSeen(scope, now)
}

// any reports whether is holds in one of a pair's scopes; it is called for them up to that one.
func (tm *techniqueMemory) any(pair Pair, is func(Pair, *run) bool) bool {
	for _, scope := range pair.scopes() {
		if r := tm.runs[scope]; r != nil && is(scope, r) {
			return true
		}
	}
	return false
}

// hasOther reports whether a pair has a technique to take in place of the barred ones. A relay may
// connect each time and yet carry nothing.
func (s *siteMemory) hasOther(pair Pair) bool {
	for _, tm := range s.techs {
		if !tm.any(pair, func(scope Pair, r *run) bool { return r.fails(scope) }) {
			return true
		}
	}
	return false
}
