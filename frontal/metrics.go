package frontal

import (
	"github.com/isthmus-grid/isthmus/internal/account/metrics"
	"github.com/isthmus-grid/isthmus/internal/account/traffic"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/overlay"
)

// The families of a frontal.
var (
	metricBrokerUp    = metrics.Gauge("isthmus_frontal_broker_up", "1 while there is a session with the broker.")
	metricHelpers     = metrics.Gauge("isthmus_frontal_helpers", "Helpers of the site, by whether they are connected.", "state")
	metricProcesses   = metrics.Gauge("isthmus_frontal_processes", "Registered processes of the site.")
	metricJobs        = metrics.Gauge("isthmus_frontal_jobs", "Jobs that have a registered process at the site.")
	metricAnswers     = metrics.Counter("isthmus_frontal_answers_total", "Questions of helpers where a process is, by how they were answered.", "from")
	metricCalls       = metrics.Counter("isthmus_frontal_broker_questions_total", "Calls by which the broker was asked where processes are.")
	metricDropped     = metrics.Counter("isthmus_frontal_cache_dropped_total", "Cached answers that went, by reason.", "reason")
	metricCarried     = metrics.Gauge("isthmus_frontal_carried_links", "Links that the gateway carries now.")
	metricCarriedAll  = metrics.Counter("isthmus_frontal_carried_links_total", "Links that the gateway carried.")
	metricCarriedSize = metrics.Counter("isthmus_frontal_carried_bytes_total", "Bytes that the gateway carried, both ways, live links included.")
	metricCarriedKind = metrics.Gauge("isthmus_frontal_carried_kind_links", "Links that the gateway carries now, by how they came about: carry was dialled for a node, inbound and reversed came from another site, meeting was opened by both ends at once.", "kind")
	metricPair        = metrics.Counter("isthmus_frontal_pair_bytes_total", "Bytes that the gateway carried, live links included, by the site at the other end and the direction, as seen from this site; - is a site that the link's set-up did not name. The 500 greatest are shown by name.", "site", "peer", "direction")
	metricProject     = metrics.Counter("isthmus_frontal_project_bytes_total", "Bytes that the gateway carried, both ways, live links included, by the project of the process at this site; - is none. The 500 greatest are shown by name.", "project")
	metricTurnedAway  = metrics.Counter("isthmus_frontal_refused_connections_total", "Data connections that were turned away.")
	metricMeetings    = metrics.Counter("isthmus_frontal_meetings_total", "Meetings that the gateway took part in for its nodes, by result.", "result")
	metricAttempts    = metrics.Counter("isthmus_frontal_attempts_total", "Attempts of techniques towards a site under the present plan, by result.", "to", "technique", "result")
	metricBarred      = metrics.Gauge("isthmus_frontal_barred_techniques", "Techniques that are not tried for now because they failed again and again.")
)

// metrics says what Prometheus reads of the frontal.
func (f *Frontal) metrics(creds *control.Credentials) metrics.Daemon {
	return metrics.Daemon{
		Name: "frontal", NotAfter: creds.NotAfter, Limits: f.limits,
		Sources: []metrics.Source{{
			Families: []*metrics.Family{metricBrokerUp, metricHelpers, metricProcesses, metricJobs, metricAnswers, metricCalls, metricDropped, metricCarried,
				metricCarriedAll, metricCarriedSize, metricCarriedKind, metricPair, metricProject, metricTurnedAway, metricMeetings, metricAttempts, metricBarred},
			Read: f.readMetrics,
		}, f.links.quota.Metrics(), f.audit.Metrics()},
	}
}

func (f *Frontal) limits() []metrics.Limit {
	limits, entries := f.config().Limits, f.resolver.Counters().Entries
	f.mu.Lock()
	defer f.mu.Unlock()
	all := []metrics.Limit{
		{Name: "cache", Used: entries, Max: limits.Cache},
		{Name: "meetings", Used: len(f.meetings.places), Max: cap(f.meetings.places)},
	}
	all = append(all, metrics.LimitsOf("pending_carries", "pending_carries_per_node", f.carries.count.Stats())...)
	all = append(all, metrics.LimitsOf("pending_returns", "pending_returns_per_node", f.returns.count.Stats())...)
	all = append(all, metrics.LimitsOf("pending_meetings", "pending_meetings_per_node", f.meetings.line.Stats())...)
	all = append(all, metrics.LimitsOf("links", "links_per_node", f.links.places.Stats())...)
	all = append(all, f.endpoint.Limits()...)
	all = append(all, metrics.LimitsOf("processes", "processes_per_node", f.registry.Stats())...)
	all = append(all, metrics.LimitsOf("waiting", "waiting_per_node", f.waits.Stats())...)
	all = append(all, metrics.LimitsOf("half_open_data", "half_open_data_per_source", f.half.nodes.Stats())...)
	return append(all, metrics.LimitsOf("half_open_public", "half_open_public_per_source", f.half.outside.Stats())...)
}

func (f *Frontal) readMetrics(w metrics.Writer) {
	s := f.status()
	w.Put(metricBrokerUp, metrics.Bool(s.Broker.Up))
	helpers := map[string]int{"connected": 0, "away": 0}
	for _, h := range s.Helpers {
		if h.Up {
			helpers["connected"]++
		} else {
			helpers["away"]++
		}
	}
	metrics.PutAll(w, metricHelpers, helpers)
	processes := 0
	for _, n := range s.Jobs {
		processes += n
	}
	w.Put(metricProcesses, float64(processes))
	w.Put(metricJobs, float64(len(s.Jobs)))

	r := s.Resolve
	metrics.PutAll(w, metricAnswers, map[string]uint64{"cache": r.Hits, "broker": r.Misses, "shared": r.Shared, "refused": r.Refused, "fault": r.Faults})
	w.Put(metricCalls, float64(r.Calls))
	metrics.PutAll(w, metricDropped, map[string]uint64{"report": r.Dropped, "room": r.Pushed})

	w.Put(metricCarried, float64(s.Links.Live))
	w.Put(metricCarriedAll, float64(s.Links.Total))
	w.Put(metricCarriedSize, float64(s.Links.Bytes))
	kinds, by := f.carriedNow()
	metrics.PutAll(w, metricCarriedKind, kinds)
	w.PutBounded(metricPair, by.pairs(f.site))
	w.PutBounded(metricProject, by.projects.Samples())
	w.Put(metricTurnedAway, float64(s.Links.Refused))
	metrics.PutAll(w, metricMeetings, map[string]uint64{"connected": s.Meetings.Connected, "failed": s.Meetings.Failed})

	var attempts []metrics.Sample
	barred := 0
	for _, m := range s.Memory {
		for _, t := range m.Techniques {
			pair := []string{string(m.Site), t.Technique.String()}
			attempts = append(attempts,
				metrics.Sample{Labels: append(pair[:2:2], "connected"), Value: float64(t.Successes)},
				metrics.Sample{Labels: append(pair[:2:2], "failed"), Value: float64(t.Failures)})
			if t.Barred {
				barred++
			}
		}
	}
	w.PutBounded(metricAttempts, attempts)
	w.Put(metricBarred, float64(barred))
}

// tallies sum what was carried by whom it was for.
type tallies struct {
	moved    traffic.Sums
	projects metrics.Tally // project
}

// note adds what a link moved.
func (t *tallies) note(site overlay.SiteID, l link, out, back traffic.Count) {
	peer := traffic.Unknown
	if node, err := overlay.ParseNodeID(l.peer); err == nil {
		peer = node.Site
	}
	t.moved.Add(traffic.Pair{From: site, To: peer}, out, back)
	t.projects.Add(out.Bytes+back.Bytes, metrics.Project(l.principal.Project))
}

// pairs are the samples of metricPair.
func (t *tallies) pairs(site overlay.SiteID) (all []metrics.Sample) {
	for p, c := range t.moved.Counts() {
		labels := []string{string(site), string(p.To), "out"}
		switch site {
		case p.From:
		case p.To:
			labels[1], labels[2] = string(p.From), "in"
		default: // more sites than are kept apart
			labels = []string{metrics.Other, metrics.Other, metrics.Other}
		}
		all = append(all, metrics.Sample{Labels: labels, Value: float64(c.Bytes)})
	}
	return all
}

// carriedNow counts the live links of each kind, and sums what all links moved,
// those that are over, too.
func (f *Frontal) carriedNow() (kinds map[string]int, by *tallies) {
	kinds, by = map[string]int{"carry": 0, "inbound": 0, "reversed": 0, "meeting": 0}, &tallies{}
	f.mu.Lock()
	defer f.mu.Unlock() // a link ends under it: none is missed or counted twice
	by.moved = *f.links.moved.Clone()
	by.projects.Merge(&f.links.projects)
	for m, l := range f.links.live {
		kinds[l.kind]++
		out, back := traffic.Of(m.Stats(), l.pace, true)
		by.note(f.site, l.link, out, back)
	}
	return kinds, by
}
