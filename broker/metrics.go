package broker

import (
	"github.com/isthmus-grid/isthmus/internal/account/metrics"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/overlay"
)

// The metric families of a broker.
var (
	metricSites              = metrics.Gauge("isthmus_broker_sites", "Sites that are known, by whether their frontal is connected.", "state")
	metricProcesses          = metrics.Gauge("isthmus_broker_processes", "Registered processes, by site.", "site")
	metricJobs               = metrics.Gauge("isthmus_broker_jobs", "Jobs that have a registered process.")
	metricNames              = metrics.Gauge("isthmus_broker_published_names", "Names that processes have published.")
	metricProxies            = metrics.Gauge("isthmus_broker_proxies", "Proxies that have a session, by whether they take links.", "state")
	metricProxyLinks         = metrics.Gauge("isthmus_broker_proxy_links", "Links of a proxy as the broker counts them.", "proxy")
	metricProxyRoom          = metrics.Gauge("isthmus_broker_proxy_capacity", "Links that a proxy takes.", "proxy")
	metricSessions           = metrics.Counter("isthmus_broker_sessions_total", "Sessions that began.")
	metricQuestions          = metrics.Counter("isthmus_broker_questions_total", "Requests of frontals to resolve a process.")
	metricExpired            = metrics.Counter("isthmus_broker_expired_processes_total", "Processes dropped because their frontal did not reconnect in time.")
	metricSignalled          = metrics.Counter("isthmus_broker_signalling_total", "Signalling requests, by technique.", "technique")
	metricSignalledConnected = metrics.Counter("isthmus_broker_signalling_connected_total", "Signalling requests that ended with a connection, by technique.", "technique")
	metricAttempts           = metrics.Counter("isthmus_attempts_total", "Attempts of techniques between two sites that gave new information: the first that connected, and all that failed.", "from", "to", "technique", "result")
	metricFailures           = metrics.Counter("isthmus_attempt_failures_total", "Attempts of techniques that failed, by the class of the error.", "cause")
	metricAttemptSetup       = metrics.Histogram("isthmus_attempt_setup_seconds", "Duration of attempts that connected and gave new information, by technique.", "technique")
	metricStore              = metrics.Gauge("isthmus_broker_store_writable", "Whether the store is writable: 1, or 0 if requests that need it are refused. Absent without a store.", "kind")
	metricFaults             = metrics.Counter("isthmus_broker_faults_total", "Calls and questions that were answered with an error, by its class.", "cause")
)

// metrics returns the broker's Prometheus metrics.
func (b *Broker) metrics(creds *control.Credentials) metrics.Daemon {
	return metrics.Daemon{
		Name: "broker", NotAfter: creds.NotAfter, Limits: b.limits,
		Sources: []metrics.Source{{
			Families: []*metrics.Family{metricSites, metricProcesses, metricJobs, metricNames, metricProxies, metricProxyLinks, metricProxyRoom,
				metricSessions, metricQuestions, metricExpired, metricSignalled, metricSignalledConnected, metricAttempts, metricFailures, metricAttemptSetup, metricStore, metricFaults},
			Read: b.readMetrics,
		}, b.audit.Metrics()},
	}
}

func (b *Broker) limits() []metrics.Limit {
	inv, limits := b.registry.Inventory(), b.config().Limits
	processes := 0
	for _, s := range inv.Sites {
		processes += s.Processes
	}
	all := []metrics.Limit{
		{Name: "sessions", Used: b.sessions.count(), Max: limits.Sessions},
		{Name: "sites", Used: len(inv.Sites), Max: limits.Sites},
		{Name: "proxies", Used: len(b.proxies.List()), Max: limits.Proxies},
		{Name: "processes", Used: processes, Max: limits.Processes},
		{Name: "hosts", Used: b.hosts.countAll(), Max: limits.Hosts},
		{Name: "waiting", Used: inv.Waiting, Max: limits.Waiting},
	}
	all = append(all, metrics.LimitsOf("signalling", "signalling_per_site", b.signalling.Stats())...)
	all = append(all, b.endpoint.Limits()...)
	if b.enrolment != nil {
		all = append(all, metrics.LimitsOf("enrolments", "enrolments_per_source", b.enrolment.Limits())...)
	}
	all = append(all, metrics.LimitsOf("names", "names_per_site", inv.NameLimits)...)
	all = append(all, metrics.LimitsOf("", "waiting_per_site", b.waits.Stats())...)
	return append(all, metrics.LimitsOf("observers", "observers_per_source", b.observed.Stats())...)
}

func (b *Broker) readMetrics(w metrics.Writer) {
	inv := b.registry.Inventory()
	states := map[string]int{"connected": 0, "away": 0}
	var processes []metrics.Sample
	for _, s := range inv.Sites {
		if s.Holder != 0 {
			states["connected"]++
		} else {
			states["away"]++
		}
		processes = append(processes, metrics.Sample{Labels: []string{string(s.Profile.Site)}, Value: float64(s.Processes)})
	}
	metrics.PutAll(w, metricSites, states)
	w.PutBounded(metricProcesses, processes)
	w.Put(metricJobs, float64(len(inv.Jobs)))
	w.Put(metricNames, float64(inv.Names))

	states = map[string]int{"open": 0, "full": 0, "draining": 0}
	var live, room []metrics.Sample
	for _, p := range b.proxies.Inventory() {
		switch {
		case p.Draining:
			states["draining"]++
		case p.Live >= p.Capacity:
			states["full"]++
		default:
			states["open"]++
		}
		live = append(live, metrics.Sample{Labels: []string{p.Name}, Value: float64(p.Live)})
		room = append(room, metrics.Sample{Labels: []string{p.Name}, Value: float64(p.Capacity)})
	}
	metrics.PutAll(w, metricProxies, states)
	w.PutBounded(metricProxyLinks, live)
	w.PutBounded(metricProxyRoom, room)

	if s := b.store.status(); s != nil {
		fine := 0.0
		if s.Error == "" {
			fine = 1
		}
		w.Put(metricStore, fine, s.Kind)
	}

	c := &b.counters
	w.Put(metricSessions, float64(b.sessions.begun()))
	w.Put(metricQuestions, float64(c.questions.Load()))
	w.Put(metricExpired, float64(c.expired.Load()))
	for _, t := range overlay.Techniques() {
		w.Put(metricSignalled, float64(c.byTech[t].asked.Load()), t.String())
		w.Put(metricSignalledConnected, float64(c.byTech[t].connected.Load()), t.String())
		w.PutHistogram(metricAttemptSetup, &b.outcomes.setup[t], t.String())
	}
	w.PutCauses(metricFaults, c.faults[:])
	b.outcomes.failures.Put(w, metricFailures)
	var attempts []metrics.Sample
	for _, o := range b.outcomes.status() {
		pair := []string{string(o.Asker), string(o.Target), o.Technique.String()}
		attempts = append(attempts,
			metrics.Sample{Labels: append(pair[:3:3], "connected"), Value: float64(o.Connected)},
			metrics.Sample{Labels: append(pair[:3:3], "failed"), Value: float64(o.Failed)})
	}
	w.PutBounded(metricAttempts, attempts)
}
