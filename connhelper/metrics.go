package connhelper

import (
	"sync/atomic"
	"time"

	"github.com/isthmus-grid/isthmus/internal/account/metrics"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// Metric families of a helper.
var (
	metricFrontalUp = metrics.Gauge("isthmus_helper_frontal_up", "1 while there is a session with the site's frontal.")
	metricProcesses = metrics.Gauge("isthmus_helper_processes", "Processes of jobs that are registered at this node.")
	metricJobs      = metrics.Gauge("isthmus_helper_jobs", "Jobs that have a process at this node.")
	metricDials     = metrics.Counter("isthmus_dials_total", "Connections that processes of this node requested and got, by technique; same-node needs none.", "technique")
	metricFailures  = metrics.Counter("isthmus_dial_failures_total", "Connections that processes of this node requested and did not get, by the class of the error.", "cause")
	metricSetup     = metrics.Histogram("isthmus_dial_setup_seconds", "Time from a process's request to its connected socket, by technique.", "technique")
	metricDirect    = metrics.Gauge("isthmus_helper_direct_links", "Links of processes of this node that no daemon carries, as the processes report.")
	metricReserves  = metrics.Gauge("isthmus_helper_reserves", "Relays that are kept ready for links of this node's processes, in case all their paths die at once.")
	metricReserved  = metrics.Counter("isthmus_helper_reserves_total", "Relays that were kept ready since the helper's start, and those of them that were dialled.", "event")
	metricAccepted  = metrics.Counter("isthmus_accepted_connections_total", "Connections that other processes opened and processes of this node were handed, by technique.", "technique")
)

// dials counts the processes' dials. The zero value is ready; it is safe for concurrent use.
type dials struct {
	setup     [overlay.MaxTechniques]metrics.Distribution // by technique; 0 is within the node
	connected [overlay.MaxTechniques]atomic.Uint64
	accepted  [overlay.MaxTechniques]atomic.Uint64
	failures  metrics.Causes
}

// dialled counts one answered dial.
func (d *dials) dialled(t overlay.Technique, took time.Duration, err error) {
	if err != nil {
		d.failures.Note(wire.CodeOf(err))
		return
	}
	d.connected[t].Add(1)
	d.setup[t].Observe(took)
}

// accept counts one connection that another process opened; t is what its helper reports, which may
// be of a later version.
func (d *dials) accept(t overlay.Technique) {
	if int(t) < len(d.accepted) {
		d.accepted[t].Add(1)
	}
}

// metrics returns what Prometheus reads of the helper.
func (h *Helper) metrics(creds *control.Credentials) metrics.Daemon {
	return metrics.Daemon{
		Name: "helper", NotAfter: creds.NotAfter, Limits: h.limits,
		Sources: []metrics.Source{{
			Families: []*metrics.Family{metricFrontalUp, metricProcesses, metricJobs, metricDials, metricFailures, metricSetup, metricAccepted, metricDirect, metricReserves, metricReserved},
			Read:     h.readMetrics,
		}, h.audit.log.Metrics()},
	}
}

func (h *Helper) limits() []metrics.Limit {
	b := h.budgets
	all := metrics.LimitsOf("open", "open_per_user", b.open.Stats())
	all = append(all, metrics.LimitsOf("", "names_per_user", b.names.Stats())...)
	if g := h.callers.Load(); g != nil {
		all = append(all, g.Limits()...)
	}
	all = append(all, metrics.LimitsOf("processes", "processes_per_user", b.processes.Stats())...)
	all = append(all, metrics.LimitsOf("silent_processes", "silent_processes_per_user", b.silent.Stats())...)
	return append(all, metrics.LimitsOf("half_open_data", "half_open_data_per_source", b.half.Stats())...)
}

func (h *Helper) readMetrics(w metrics.Writer) {
	f, _ := h.uplink.currentFrontal()
	w.Put(metricFrontalUp, metrics.Bool(f != nil))
	processes, jobs := h.here.size()
	w.Put(metricProcesses, float64(processes))
	w.Put(metricJobs, float64(jobs))
	w.Put(metricDirect, float64(h.processes.traffic.ownLinks.Load()))
	w.Put(metricReserves, float64(h.reserves.kept.Held(time.Now())))
	w.Put(metricReserved, float64(h.reserves.kept.Got.Load()), "kept")
	w.Put(metricReserved, float64(h.reserves.kept.Used.Load()), "dialled")
	d := &h.delivery.dials
	for _, t := range append([]overlay.Technique{0}, overlay.Techniques()...) {
		name := t.String()
		if t == 0 {
			name = "same-node"
		}
		w.Put(metricDials, float64(d.connected[t].Load()), name)
		w.Put(metricAccepted, float64(d.accepted[t].Load()), name)
		w.PutHistogram(metricSetup, &d.setup[t], name)
	}
	d.failures.Put(w, metricFailures)
}
