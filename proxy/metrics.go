package proxy

import (
	"github.com/isthmus-grid/isthmus/internal/account/metrics"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/pki/ticket"
)

// Metric families of a proxy.
var (
	metricLinks    = metrics.Gauge("isthmus_proxy_links", "Links that are joined now.")
	metricWaiting  = metrics.Gauge("isthmus_proxy_waiting_ends", "Ends of links that wait for their partner.")
	metricAccepted = metrics.Counter("isthmus_proxy_connections_total", "Connections that were accepted.")
	metricJoined   = metrics.Counter("isthmus_proxy_links_total", "Links that were joined.")
	metricBroken   = metrics.Counter("isthmus_proxy_broken_links_total", "Links that did not end properly.")
	metricBytes    = metrics.Counter("isthmus_proxy_bytes_total", "Bytes that were relayed, live links included, by whether they stayed in the kernel.", "way")
	metricProject  = metrics.Counter("isthmus_proxy_project_bytes_total", "Bytes that were relayed, both directions, live links included, by the asker's project; - is none. The 500 greatest are shown by name.", "project")
	metricPair     = metrics.Counter("isthmus_proxy_pair_bytes_total", "Bytes that were relayed from one site to another, live links included; - is a site that no broker has reported yet. The 500 greatest are shown by name.", "from", "to")
	metricRefused  = metrics.Counter("isthmus_proxy_refused_total", "Connections that were refused, by reason.", "reason")
)

// reasons always have a series, so that the first refusal shows as an increase.
var reasons = []Reason{
	NoTicket, NotATicket, TooManyHandshakes, TooManyWaiting, TooManyLinks, NoPartner, Mismatch, OverQuota, OverPolicy, Stopping,
	Reason(ticket.Foreign), Reason(ticket.Forged), Reason(ticket.Expired), Reason(ticket.TooLong), Reason(ticket.Used), Reason(ticket.Full),
}

// metrics returns what Prometheus reads of the proxy.
func (s *Server) metrics(creds *control.Credentials) metrics.Daemon {
	return metrics.Daemon{
		Name: "proxy", NotAfter: creds.NotAfter, Limits: s.places,
		Sources: []metrics.Source{{
			Families: []*metrics.Family{metricLinks, metricWaiting, metricAccepted, metricJoined, metricBroken, metricBytes, metricProject, metricPair, metricRefused},
			Read:     s.readMetrics,
		}, s.set.Quota.Metrics(), s.set.Audit.Metrics()},
	}
}

func (s *Server) places() []metrics.Limit {
	remembered := s.checker.Remembered()
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.limits
	all := []metrics.Limit{
		{Name: "links", Used: len(s.links) + len(s.waiting), Max: l.Links},
		{Name: "waiting", Used: len(s.waiting), Max: l.Waiting},
		{Name: "tickets", Used: remembered, Max: l.Tickets},
	}
	all = append(all, metrics.LimitsOf("handshakes", "handshakes_per_source", s.half.Stats())...)
	return append(all, metrics.LimitsOf("observers", "observers_per_source", s.observer.Limits())...)
}

func (s *Server) readMetrics(w metrics.Writer) {
	st := s.Status()
	w.Put(metricLinks, float64(st.Links))
	w.Put(metricWaiting, float64(st.Waiting))
	w.Put(metricAccepted, float64(st.Accepted))
	w.Put(metricJoined, float64(st.Joined))
	w.Put(metricBroken, float64(st.Broken))
	metrics.PutAll(w, metricBytes, map[string]uint64{"spliced": st.Spliced, "copied": st.Copied})
	w.PutBounded(metricProject, metrics.SamplesOf(s.byProject()))
	var pairs []metrics.Sample
	for p, c := range s.trafficReport().Counts {
		pairs = append(pairs, metrics.Sample{Labels: []string{string(p.From), string(p.To)}, Value: float64(c.Bytes)})
	}
	w.PutBounded(metricPair, pairs)
	for _, r := range reasons {
		st.Refused[r] += 0
	}
	metrics.PutAll(w, metricRefused, st.Refused)
}

// byProject returns the bytes relayed for each project, including live links.
func (s *Server) byProject() map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock() // links end under mu: none is missed or counted twice
	all := s.siteTraffic.sums.Clone()
	for l := range s.links {
		all.AddProject(l.asker.ticket.Principal.Project, l.meter.Stats().Total())
	}
	return all.Projects()
}
