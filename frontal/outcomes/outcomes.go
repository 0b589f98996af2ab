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
//
// Nor must it outgrow what fails. A node may fail for reasons of its own: it has no route, or the wrong
// address. So failures count for the two nodes between which they were, for each of these with all
// nodes of the other site once it fails with several, and for the sites once several nodes of both fail.
// What is slow is so for the node that says it, and for the site once another one does: no node can
// by itself take a technique from all. Nor can one bring others to a technique: what connected is news for the
// node that says so, and for the others once a second one does. What the site's own gateway has made and seen to carry
// outweighs for some minutes what nodes say of it, however many they are; each node's failures then count for that node.
package outcomes

import (
	"maps"
	"slices"
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

	// A failure is another node's if none of them is that node's; minOthers of them show that the
	// cause is not one node's.
	minOthers  = 2
	maxCounted = 64   // nodes that are counted apart in a row of failures; further ones are others
	maxRuns    = 1024 // of a technique with a site, and nodes by which it connected; failures of further nodes count for the sites alone

	// A technique that was measured to be much slower than another is skipped for firstInferior,
	// and for twice as long if it still is slower after that.
	firstInferior = 30 * time.Second
	maxInferior   = time.Hour

	// SeenLife is how long a link counts that the site's gateway made.
	SeenLife = 5 * time.Minute

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
	news  time.Time // when something was last recorded
	plan  uint64    // digest
	techs map[overlay.Technique]*techniqueMemory

	connected map[string]time.Time // when a node of this site last connected with the other without a relay, from either end; at most maxRuns
	away      time.Time            // since when the broker says that the site's frontal has no session; zero: it does not
}

// techniqueMemory is one technique between two sites.
type techniqueMemory struct {
	successes, failures int // total
	lastReason          string
	setup               time.Duration     // of the last success
	won                 map[string]winner // the last success of each node of this site; at most maxRuns
	runs                map[Pair]*run     // by scope

	seen map[string]time.Time // when the gateway made the last link with each node of the other site that it saw carry; at most maxRuns

	inferior map[string]inferior // by the node of this site that says so
}

// winner is a technique that connected.
type winner struct {
	at    time.Time
	setup time.Duration
}

// inferior is a technique that is skipped for a faster one.
type inferior struct {
	until  time.Time
	length time.Duration // of that time
	reason string
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
		s = &siteMemory{plan: plan, techs: map[overlay.Technique]*techniqueMemory{}, connected: map[string]time.Time{}}
		m.sites[site] = s
	}
	s.news = now
	return s
}

func (s *siteMemory) tech(t overlay.Technique) *techniqueMemory {
	if s.techs[t] == nil {
		s.techs[t] = &techniqueMemory{runs: map[Pair]*run{}, won: map[string]winner{}, seen: map[string]time.Time{}}
	}
	return s.techs[t]
}

// Pair is a node of this site and one of the other between which a technique was tried. Both names are
// needed. As a scope, an empty name stands for all nodes of its site.
type Pair struct{ Own, Far string }

// scopes returns what an outcome between the pair may say something of, the widest first.
func (p Pair) scopes() [4]Pair { return [...]Pair{{}, {Far: p.Far}, {Own: p.Own}, p} }

func (p Pair) String() string {
	switch {
	case p.Far == "":
		return p.Own
	case p.Own == "":
		return "with " + p.Far
	}
	return p.Own + " with " + p.Far
}

// run is a technique in one scope: its failures since the last success, or since the bar was ended.
type run struct {
	worked   bool // under the plan
	inARow   int
	first    time.Time      // of these
	own, far map[string]int // how many of them were of each node that the scope stands for
	reason   string         // of the last one

	barred    time.Time     // until when it is
	barredFor time.Duration // the length of that time
}

// run returns the technique's state in a scope; nil without any, unless it is to be created.
func (tm *techniqueMemory) run(scope Pair, create bool) *run {
	r := tm.runs[scope]
	if r == nil && create && len(tm.runs) < maxRuns {
		r = &run{}
		tm.runs[scope] = r
	}
	return r
}

// fail records a failure in a scope.
func (r *run) fail(scope, p Pair, reason string, now time.Time) {
	if r.inARow++; r.inARow == 1 {
		r.first = now
	}
	count := func(nodes *map[string]int, scope, node string) {
		if scope != "" {
			return
		}
		if *nodes == nil {
			*nodes = map[string]int{}
		}
		if (*nodes)[node] > 0 || len(*nodes) < maxCounted {
			(*nodes)[node]++
		}
	}
	count(&r.own, scope.Own, p.Own)
	count(&r.far, scope.Far, p.Far)
	r.reason = reason
}

// shows reports whether there are that many failures in a row, and, of each site for all of whose nodes
// the scope stands, that many of others than the node that has the most.
func (r *run) shows(scope Pair, failures, others int) bool {
	spread := func(name string, nodes map[string]int) bool {
		most := 0
		for _, n := range nodes {
			most = max(most, n)
		}
		return name != "" || r.inARow-most >= others
	}
	return r.inARow >= failures && spread(scope.Own, r.own) && spread(scope.Far, r.far)
}

// fails reports whether the technique is taken not to work in a scope.
func (r *run) fails(scope Pair) bool { return r.shows(scope, maxTries, minOthers) }

// end forgets the failures in a row.
func (r *run) end() { *r = run{worked: r.worked} }

// Connected records that t worked between a pair of nodes, as the own one says.
func (m *Memory) Connected(site overlay.SiteID, pair Pair, plan uint64, t overlay.Technique, setup time.Duration, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.of(site, plan, now)
	tm := s.tech(t)
	tm.successes++
	tm.setup = setup
	if _, listed := tm.won[pair.Own]; listed || len(tm.won) < maxRuns {
		tm.won[pair.Own] = winner{now, setup}
	}
	for _, scope := range pair.scopes() {
		if r := tm.runs[scope]; r != nil && r.inARow > 0 && tm.worksFor(scope, r, pair.Own) {
			s.worksAgain(scope, r, pair, now)
		}
	}
	if t != overlay.Relay {
		s.contact(pair.Own, now)
	}
	for _, scope := range pair.scopes() {
		if r := tm.run(scope, scope != pair); r != nil {
			r.worked = true
			if tm.worksFor(scope, r, pair.Own) {
				r.end()
			}
		}
	}
}

// wonByOthers reports whether another node than own has connected since.
func (tm *techniqueMemory) wonByOthers(own string, since time.Time) bool {
	for node, w := range tm.won {
		if node != own && w.at.After(since) {
			return true
		}
	}
	return false
}

// worksFor reports whether the success of a node ends the failures in a scope: its own ones, and those of others once
// another node has connected since they began.
func (tm *techniqueMemory) worksFor(scope Pair, r *run, own string) bool {
	return scope.Own != "" || r.inARow == r.own[own] || tm.wonByOthers(own, r.first)
}

// contact records that a node connected with the site without a relay, from either end.
func (s *siteMemory) contact(own string, now time.Time) {
	if _, listed := s.connected[own]; listed || len(s.connected) < maxRuns {
		s.connected[own] = now
	}
}

// Called records that a process of the site connected by t to one of a node of this site, as the node says. That
// does not prove that t works from here, but that the network is there. Unknown sites are ignored: no bar is to be
// ended.
func (m *Memory) Called(site overlay.SiteID, own string, t overlay.Technique, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sites[site]
	if s == nil {
		return
	}
	before := s.connected[own]
	if t != overlay.Relay { // which works also where the sites do not reach each other
		s.contact(own, now)
	}
	in := func(scope Pair, r *run) bool { return s.mayEnd(scope, r, own) }
	if failed := s.techs[t]; failed != nil && failed.runs[Pair{}] != nil && failed.runs[Pair{}].inARow > 0 {
		s.endBars(failed.runs[Pair{}].first.Add(-overlap), now, in)
	}
	if t != overlay.Relay {
		s.endBars(before, now, in)
	}
}

// mayEnd reports whether news from a node ends the failures in a scope: they are its own, or another node has had
// such news since they began.
func (s *siteMemory) mayEnd(scope Pair, r *run, own string) bool {
	return scope.Own == own || r.inARow == r.own[own] || s.reachedByOthers(own, r.first)
}

// reachedByOthers reports whether another node than own has connected with the site since, or been called.
func (s *siteMemory) reachedByOthers(own string, since time.Time) bool {
	for node, at := range s.connected {
		if node != own && at.After(since) {
			return true
		}
	}
	return false
}

// worksAgain ends the bars of techniques that failed together with that of r, which works now between a
// pair: those of the pair's own node, and those of others if another node has connected since, too: of the pair's nodes,
// and all if r is the sites' and of several nodes of both.
func (s *siteMemory) worksAgain(scope Pair, r *run, pair Pair, now time.Time) {
	scopes := pair.scopes()
	wide := scope == Pair{} && r.shows(scope, 1, 1)
	s.endBars(r.first.Add(-overlap), now, func(in Pair, failed *run) bool {
		return (wide || slices.Contains(scopes[:], in)) && s.mayEnd(in, failed, pair.Own)
	})
}

func everyScope(Pair, *run) bool { return true }

// endBars ends the bars in some scopes of techniques whose failures in a row all came after since: they
// were those of a disturbance that is over.
func (s *siteMemory) endBars(since, now time.Time, in func(scope Pair, r *run) bool) {
	for _, tm := range s.techs {
		for scope, r := range tm.runs {
			if r.first.After(since) && now.Sub(r.first) >= minSilence && in(scope, r) {
				r.end()
			}
		}
	}
}

// Rejoined records that this site has a session with a broker again, after it had none since a time:
// it may have been cut off from every other site.
func (m *Memory) Rejoined(since, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.sites {
		s.endBars(since.Add(-overlap), now, everyScope)
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
		s.endBars(s.away.Add(-overlap), now, everyScope)
		s.away = time.Time{}
	}
}

// Seen records that the site's gateway made a link by t with a node of the other site, and that it carries. Where
// nothing is known of t that changes nothing.
func (m *Memory) Seen(site overlay.SiteID, far string, t overlay.Technique, made time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sites[site]
	if s == nil || s.techs[t] == nil {
		return
	}
	seen := s.techs[t].seen
	if was, listed := seen[far]; made.After(was) && (listed || len(seen) < maxRuns) {
		seen[far] = made
	}
}

// isSeen reports whether the gateway made a link lately, in a scope that stands for all nodes of this site, that carries.
func (tm *techniqueMemory) isSeen(scope Pair, now time.Time) bool {
	if scope.Own != "" {
		return false
	}
	for far, made := range tm.seen {
		if (scope.Far == "" || scope.Far == far) && now.Sub(made) < SeenLife {
			return true
		}
	}
	return false
}

// Failed records that t did not work between a pair of nodes, and why.
func (m *Memory) Failed(site overlay.SiteID, pair Pair, plan uint64, t overlay.Technique, reason string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	tm := m.of(site, plan, now).tech(t)
	tm.failures++
	tm.lastReason = reason
	for _, scope := range pair.scopes() {
		r := tm.run(scope, true)
		if r == nil {
			continue
		}
		r.fail(scope, pair, reason, now)
		if t == overlay.Relay || !r.fails(scope) || tm.isSeen(scope, now) {
			continue
		}
		if !now.Before(r.barred) { // many links may report at once
			if r.barredFor == 0 || tm.hasWorked(scope) {
				r.barredFor = firstBar
			} else {
				r.barredFor = min(2*r.barredFor, maxBar)
			}
			r.barred = now.Add(r.barredFor)
		}
		return // the narrower scopes are in it
	}
}

// hasWorked reports whether the technique has connected in a scope, which for all nodes of this site two must have
// said; between a pair of which both nodes have connected by it, it may.
func (tm *techniqueMemory) hasWorked(scope Pair) bool {
	worked := func(scope Pair) bool { r := tm.runs[scope]; return r != nil && r.worked }
	if scope.Own != "" && scope.Far != "" {
		return worked(Pair{Own: scope.Own}) && worked(Pair{Far: scope.Far})
	}
	return worked(scope) && (scope.Own != "" || len(tm.won) >= minOthers)
}

// isForgotten reports whether the time for which the technique is skipped next is short again.
func (i inferior) isForgotten(now time.Time) bool { return now.Sub(i.until) > 10*i.length }

// Inferior records that a link of a node of this site by t was abandoned for another path, and why. Many links
// may report it at once: repeated reports are ignored.
func (m *Memory) Inferior(site overlay.SiteID, own string, plan uint64, t overlay.Technique, reason string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.of(site, plan, now)
	tm := s.tech(t)
	was, listed := tm.inferior[own]
	if t == overlay.Relay || now.Before(was.until) {
		return
	}
	maps.DeleteFunc(tm.inferior, func(_ string, one inferior) bool { return one.isForgotten(now) })
	if !listed && len(tm.inferior) >= maxCounted {
		return
	}
	length := firstInferior
	if listed && !was.isForgotten(now) {
		length = min(2*was.length, maxInferior)
	}
	if tm.inferior == nil {
		tm.inferior = map[string]inferior{}
	}
	tm.inferior[own] = inferior{now.Add(length), length, reason}
}

// inferiorTo returns whether the technique is skipped by a node of this site: it has said so, or two others have.
func (tm *techniqueMemory) inferiorTo(own string, now time.Time) (why inferior, is bool) {
	if one := tm.inferior[own]; now.Before(one.until) {
		return one, true
	}
	said := 0
	for _, one := range tm.inferior {
		if now.Before(one.until) {
			if said++; said == 1 || one.until.Before(why.until) {
				why = one
			}
		}
	}
	return why, said >= minOthers
}
