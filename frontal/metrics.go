package frontal

import (
	"github.com/isthmus-grid/isthmus/internal/account/metrics"
	"github.com/isthmus-grid/isthmus/internal/account/traffic"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/overlay"
)

// The metric families of a frontal.
var (
	metricBrokerUp      = metrics.Gauge("isthmus_frontal_broker_up", "1 while there is a session with the broker.")
	metricHelpers       = metrics.Gauge("isthmus_frontal_helpers", "Helpers of the site, by whether they are connected.", "state")
	metricProcesses     = metrics.Gauge("isthmus_frontal_processes", "Registered processes of the site.")
	metricJobs          = metrics.Gauge("isthmus_frontal_jobs", "Jobs that have a registered process at the site.")
	metricAnswers       = metrics.Counter("isthmus_frontal_answers_total", "Questions of helpers where a process is, by how they were answered.", "from")
	metricCalls         = metrics.Counter("isthmus_frontal_broker_questions_total", "Calls to the broker to resolve processes.")
	metricDropped       = metrics.Counter("isthmus_frontal_cache_dropped_total", "Cached answers that went, by reason.", "reason")
	metricForwarded     = metrics.Gauge("isthmus_frontal_forwarded_links", "Links that the gateway carries now.")
	metricForwardedAll  = metrics.Counter("isthmus_frontal_forwarded_links_total", "Links that the gateway carried.")
	metricForwardedSize = metrics.Counter("isthmus_frontal_forwarded_bytes_total", "Bytes that the gateway carried, both directions, live links included.")
	metricForwardedKind = metrics.Gauge("isthmus_frontal_forwarded_kind_links", "Links that the gateway carries now, by how they came about: carry was dialled for a node, inbound and reversed came from another site, traversal was opened by both ends at once.", "kind")
	metricPair          = metrics.Counter("isthmus_frontal_pair_bytes_total", "Bytes that the gateway carried, live links included, by the site at the other end and the direction, as seen from this site; - is a site that the link's set-up did not name. The 500 greatest are shown by name.", "site", "peer", "direction")
	metricProject       = metrics.Counter("isthmus_frontal_project_bytes_total", "Bytes that the gateway carried, both directions, live links included, by the project of the process at this site; - is none. The 500 greatest are shown by name.", "project")
	metricTurnedAway    = metrics.Counter("isthmus_frontal_refused_connections_total", "Data connections refused.")
	metricTraversals    = metrics.Counter("isthmus_frontal_traversals_total", "Coordinated traversals that the gateway took part in for its nodes, by result.", "result")
	metricAttempts      = metrics.Counter("isthmus_frontal_attempts_total", "Attempts of techniques towards a site under the present plan, by result.", "to", "technique", "result")
	metricBarred        = metrics.Gauge("isthmus_frontal_barred_techniques", "Techniques that are tried last for now because they failed again and again.")
)

// metrics returns the frontal's Prometheus metrics.
func (f *Frontal) metrics(creds *control.Credentials) metrics.Daemon {
	return metrics.Daemon{
		Name: "frontal", NotAfter: creds.NotAfter, Limits: f.limits,
		Sources: []metrics.Source{{
			Families: []*metrics.Family{metricBrokerUp, metricHelpers, metricProcesses, metricJobs, metricAnswers, metricCalls, metricDropped, metricForwarded,
				metricForwardedAll, metricForwardedSize, metricForwardedKind, metricPair, metricProject, metricTurnedAway, metricTraversals, metricAttempts, metricBarred},
			Read: f.readMetrics,
		}, f.gateway.QuotaMetrics(), f.audit.Metrics()},
	}
}

func (f *Frontal) limits() []metrics.Limit {
	limits, entries := f.config().Limits, f.resolver.Counters().Entries
	all := append([]metrics.Limit{{Name: "cache", Used: entries, Max: limits.Cache}}, f.gateway.Limits()...)
	all = append(all, f.endpoint.Limits()...)
	all = append(all, metrics.LimitsOf("processes", "processes_per_node", f.registry.Stats())...)
	return append(all, metrics.LimitsOf("waiting", "waiting_per_node", f.waits.Stats())...)
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

	w.Put(metricForwarded, float64(s.Links.Live))
	w.Put(metricForwardedAll, float64(s.Links.Total))
	w.Put(metricForwardedSize, float64(s.Links.Bytes))
	kinds, by := f.gateway.Totals()
	metrics.PutAll(w, metricForwardedKind, kinds)
	w.PutBounded(metricPair, pairSamples(f.site, by.Counts()))
	w.PutBounded(metricProject, metrics.SamplesOf(by.Projects()))
	w.Put(metricTurnedAway, float64(s.Links.Refused))
	metrics.PutAll(w, metricTraversals, map[string]uint64{"connected": s.Traversals.Connected, "failed": s.Traversals.Failed})

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

// pairSamples returns the bytes by this site, the other, and the direction.
func pairSamples(site overlay.SiteID, counts map[traffic.Pair]traffic.Count) (all []metrics.Sample) {
	for p, c := range counts {
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
