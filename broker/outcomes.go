package broker

import (
	"sort"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/account/metrics"
	"github.com/isthmus-grid/isthmus/internal/limit"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// outcomes counts the results of techniques between pairs of sites, as frontals report them. No
// decision uses them; they show an admin which pairs fall back to the relay, and why. Both sites are
// known to the registry, and maxOutcomes bounds them; outcomes beyond it are not counted.
type outcomes struct {
	mu    sync.Mutex // guards the fields below
	pairs map[outcomeKey]*OutcomeStatus

	ring []outcome // the latest of all pairs together
	next int       // index of the next write

	setup    [overlay.MaxTechniques]metrics.Distribution // of successful attempts
	failures metrics.Causes                              // of failed attempts
}

const maxOutcomes = 100_000

type outcomeKey struct {
	asker, target overlay.SiteID
	technique     overlay.Technique
}

// OutcomeStatus is the record of one technique between two sites.
type OutcomeStatus struct {
	Asker     overlay.SiteID    `json:"asker"`
	Target    overlay.SiteID    `json:"target"`
	Technique overlay.Technique `json:"technique"`
	Connected uint64            `json:"connected"`
	Failed    uint64            `json:"failed"`
	SetupMS   float64           `json:"setup_ms,omitempty"` // of the last success
	Reason    string            `json:"reason,omitempty"`   // of the last failure

	ConnectedAt time.Time `json:"connected_at,omitzero"` // time of the last success
	FailedAt    time.Time `json:"failed_at,omitzero"`
}

// outcome is the result of one attempt.
type outcome struct {
	outcomeKey
	At      time.Time
	SetupMS float64
	Reason  string // empty: success
}

// Technique returns the technique of the attempt.
func (o outcome) Technique() overlay.Technique { return o.technique }

// maxLatest bounds the individual outcomes kept, and maxReason the text of each, in bytes.
const (
	maxLatest = 1000
	maxReason = 2 << 10
)

// latest returns the kept outcomes of a pair, newest first, at most maxRows.
func (o *outcomes) latest(asker, target overlay.SiteID) []outcome {
	o.mu.Lock()
	defer o.mu.Unlock()
	var found []outcome
	for i := range o.ring {
		one := o.ring[(o.next-1-i+2*len(o.ring))%len(o.ring)]
		if one.asker == asker && one.target == target && len(found) < maxRows {
			found = append(found, one)
		}
	}
	return found
}

// keep stores an outcome in place of the oldest. The caller must hold mu.
func (o *outcomes) keep(one outcome) {
	if len(o.ring) < maxLatest {
		o.ring = append(o.ring, one)
		o.next = len(o.ring) % maxLatest
		return
	}
	o.ring[o.next] = one
	o.next = (o.next + 1) % maxLatest
}

// drop removes the outcomes of sites for which known is false.
func (o *outcomes) drop(known func(overlay.SiteID) bool) {
	o.mu.Lock()
	sites := map[overlay.SiteID]bool{}
	for key := range o.pairs {
		sites[key.asker], sites[key.target] = true, true
	}
	o.mu.Unlock()
	for site := range sites {
		sites[site] = known(site) // without the lock
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for key := range o.pairs {
		asker, listed := sites[key.asker]
		target, both := sites[key.target]
		if listed && !asker || both && !target {
			delete(o.pairs, key)
		}
	}
}

// note counts one outcome; reason is empty for a success, and code is the class of a failure.
func (o *outcomes) note(asker, target overlay.SiteID, t overlay.Technique, setupMS float64, code wire.Code, reason string, now time.Time) {
	if reason == "" {
		o.setup[t].Observe(time.Duration(setupMS * float64(time.Millisecond)))
	} else {
		o.failures.Note(code)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.pairs == nil {
		o.pairs = map[outcomeKey]*OutcomeStatus{}
	}
	key := outcomeKey{asker, target, t}
	reason = limit.Text(reason, maxReason)
	o.keep(outcome{key, now, setupMS, reason})
	s := o.pairs[key]
	if s == nil {
		if len(o.pairs) >= maxOutcomes {
			return
		}
		s = &OutcomeStatus{Asker: asker, Target: target, Technique: t}
		o.pairs[key] = s
	}
	if reason == "" {
		s.Connected++
		s.SetupMS, s.ConnectedAt = setupMS, now
	} else {
		s.Failed++
		s.Reason, s.FailedAt = reason, now
	}
}

func (o *outcomes) status() []OutcomeStatus {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := []OutcomeStatus{}
	for _, s := range o.pairs {
		out = append(out, *s)
	}
	sort.Slice(out, func(i, j int) bool {
		a, b := out[i], out[j]
		if a.Asker != b.Asker {
			return a.Asker < b.Asker
		}
		if a.Target != b.Target {
			return a.Target < b.Target
		}
		return a.Technique.PreferredTo(b.Technique)
	})
	return out
}
