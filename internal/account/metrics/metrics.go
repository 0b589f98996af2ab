// Package metrics exports a daemon's metrics to Prometheus. A daemon declares its families and one
// function that reads their values from its existing counters, at the moment of a scrape; nothing
// is counted twice, and without scrapes there is no cost.
//
// The package knows the exposition format, the metrics that all daemons share, and how to bound the
// number of series. The daemons define the meaning of their metrics. Its state is one registry for
// each [Open].
package metrics

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/isthmus-grid/isthmus/internal/daemon/httpserve"
	"github.com/isthmus-grid/isthmus/internal/limit"
	"github.com/isthmus-grid/isthmus/wire"
)

// A Family is one metric: its name, its description and the names of its labels.
type Family struct {
	name string
	desc *prometheus.Desc
	kind prometheus.ValueType
}

// Counter returns a family that only grows during the daemon's life. Its name ends in _total.
func Counter(name, help string, labels ...string) *Family {
	return family(prometheus.CounterValue, name, help, labels)
}

// Gauge returns a family that goes up and down.
func Gauge(name, help string, labels ...string) *Family {
	return family(prometheus.GaugeValue, name, help, labels)
}

// Histogram returns a family whose values are Distributions of seconds.
func Histogram(name, help string, labels ...string) *Family {
	return family(prometheus.UntypedValue, name, help, labels)
}

func family(kind prometheus.ValueType, name, help string, labels []string) *Family {
	return &Family{name, prometheus.NewDesc(name, help, labels, nil), kind}
}

// Name returns the metric's name.
func (f *Family) Name() string { return f.name }

// A Source provides a daemon's values at a scrape. Scrapes call Read concurrently; it must not wait
// for a peer.
type Source struct {
	Families []*Family
	Read     func(Writer)
}

// A Writer collects the values of one scrape.
type Writer struct{ ch chan<- prometheus.Metric }

// Put adds one value of a counter or gauge. The labels are in the order of the family's; text that
// is not UTF-8 is repaired.
func (w Writer) Put(f *Family, value float64, labels ...string) {
	m, err := prometheus.NewConstMetric(f.desc, f.kind, value, clean(labels)...)
	if err != nil {
		m = prometheus.NewInvalidMetric(f.desc, err)
	}
	w.ch <- m
}

// PutHistogram adds one value of a histogram.
func (w Writer) PutHistogram(f *Family, d *Distribution, labels ...string) {
	count, sum, buckets := d.read()
	m, err := prometheus.NewConstHistogram(f.desc, count, sum, buckets, clean(labels)...)
	if err != nil {
		m = prometheus.NewInvalidMetric(f.desc, err)
	}
	w.ch <- m
}

// source makes a Source a prometheus.Collector.
type source struct{ Source }

func (s source) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range s.Families {
		ch <- f.desc
	}
}

func (s source) Collect(ch chan<- prometheus.Metric) { s.Read(Writer{ch}) }

// The families that every daemon has.
var (
	buildInfo   = Gauge("isthmus_build_info", "1, with the daemon's build in its labels.", "daemon", "version", "protocol", "goversion")
	certificate = Gauge("isthmus_certificate_expiry_timestamp_seconds", "When the daemon's certificate expires, in seconds since 1970.")
	limitUsed   = Gauge("isthmus_limit_used", "Places taken under a limit of the settings; under one for each node, site, source, user or peer, by the one with the most.", "limit")
	limitMax    = Gauge("isthmus_limit_max", "Places that there are under a limit of the settings.", "limit")
	limitOver   = Counter("isthmus_limit_refused_total", "What was refused, or ended, because a limit of the settings was reached.", "limit")
)

// A Limit is a bounded resource of a daemon: its current use, and its bound.
type Limit struct {
	Name      string
	Used, Max int

	refused uint64
	counts  bool // refused is meaningful
}

// LimitsOf returns the limits of a total, and of the key that uses most of its own limit, each by
// its name; those without a name are left out.
func LimitsOf(total, perKey string, s limit.Stats) (all []Limit) {
	if total != "" {
		all = append(all, Limit{Name: total, Used: s.Used, Max: s.Max, refused: s.Refused + s.Evicted, counts: true})
	}
	if perKey != "" {
		all = append(all, Limit{Name: perKey, Used: s.Most, Max: s.PerKey, refused: s.KeyRefused, counts: true})
	}
	return all
}

// Daemon is what Open needs to know of a daemon.
type Daemon struct {
	Name     string           // "broker"
	NotAfter func() time.Time // of the certificate in use
	Limits   func() []Limit
	Sources  []Source
}

// Handler returns the page with the daemon's metrics.
func Handler(d Daemon, log *slog.Logger) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, s := range append([]Source{d.daemonSource()}, d.Sources...) {
		registry.MustRegister(source{s})
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		ErrorHandling:       promhttp.ContinueOnError, // one wrong value must not suppress the others
		MaxRequestsInFlight: 4,
		Timeout:             20 * time.Second,
	}))
	return mux
}

// Open listens on the setting metrics_listen; the Server is nil if it is not set.
func Open(ctx context.Context, at netip.AddrPort, d Daemon, log *slog.Logger) (*httpserve.Server, error) {
	if !at.IsValid() {
		return nil, nil
	}
	return httpserve.Open(ctx, "metrics_listen", at, httpserve.NamedHere(Handler(d, log)), log)
}

// daemonSource returns the metrics that all daemons have.
func (d Daemon) daemonSource() Source {
	version, goVersion := "unknown", runtime.Version()
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		version = info.Main.Version
	}
	return Source{
		Families: []*Family{buildInfo, certificate, limitUsed, limitMax, limitOver},
		Read: func(w Writer) {
			w.Put(buildInfo, 1, d.Name, version, strconv.Itoa(int(wire.Version)), goVersion)
			w.Put(certificate, float64(d.NotAfter().Unix()))
			for _, l := range d.Limits() {
				w.Put(limitUsed, float64(l.Used), l.Name)
				w.Put(limitMax, float64(l.Max), l.Name)
				if l.counts {
					w.Put(limitOver, float64(l.refused), l.Name)
				}
			}
		},
	}
}

// Start opens and starts the page in one step: it returns the daemon's facts for its ready line,
// and a function that ends the page and waits for it.
func Start(ctx context.Context, at netip.AddrPort, d Daemon, log *slog.Logger) (facts []string, stop func(), err error) {
	s, err := Open(ctx, at, d, log)
	if err != nil {
		return nil, nil, err
	}
	return s.Facts(), s.Start(ctx), nil
}

// Bool returns 1 for true.
func Bool(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// number is any count.
type number interface {
	~int | ~int64 | ~uint64 | ~uint32
}

// PutAll adds a value for each key of a map to a family with one label.
func PutAll[K ~string, N number](w Writer, f *Family, values map[K]N) {
	for k, n := range values {
		w.Put(f, float64(n), string(k))
	}
}
