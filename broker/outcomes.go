package broker

import (
	"sort"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/metrics"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// outcomes counts how the techniques did between pairs of sites, as frontals
// report it. The broker decides nothing by it; an admin sees which pairs fall
// back to the relay, and why. Bounded by maxOutcomes; what is over that is not
// counted.
type outcomes struct {
	mu    sync.Mutex
	pairs map[outcomeKey]*OutcomeStatus

	setup    [overlay.Relay + 1]metrics.Distribution // of those that connected
	failures metrics.Causes                          // of those that did not
}

const maxOutcomes = 100_000

type outcomeKey struct {
	asker, target overlay.SiteID
	technique     overlay.Technique
}

// OutcomeStatus is how one technique did between two sites.
type OutcomeStatus struct {
	Asker     overlay.SiteID    `json:"asker"`
	Target    overlay.SiteID    `json:"target"`
	Technique overlay.Technique `json:"technique"`
	Connected uint64            `json:"connected"`
	Failed    uint64            `json:"failed"`
	SetupMS   float64           `json:"setup_ms,omitempty"` // of the last that connected
	Reason    string            `json:"reason,omitempty"`   // of the last that failed
}

// note counts one outcome; reason is empty for a success, and code is the class
// of a failure.
func (o *outcomes) note(asker, target overlay.SiteID, t overlay.Technique, setupMS float64, code wire.Code, reason string) {
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
		s.SetupMS = setupMS
	} else {
		s.Failed++
		s.Reason = reason
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
		return a.Technique < b.Technique
	})
	return out
}
