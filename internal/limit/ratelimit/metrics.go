package ratelimit

import "github.com/isthmus-grid/isthmus/internal/account/metrics"

var (
	metricRate     = metrics.Gauge("isthmus_quota_rate_bits_per_second", "Rate that all links together are held to; 0 is none.")
	metricWaiting  = metrics.Gauge("isthmus_quota_waiting", "Directions of links that wait for their turn.")
	metricWaits    = metrics.Counter("isthmus_quota_waits_total", "How often a direction of a link had to wait for its turn.")
	metricRefused  = metrics.Counter("isthmus_quota_refused_total", "Links that were refused for a quota or a policy's limit.")
	metricUserLink = metrics.Gauge("isthmus_quota_links", "Live links by what they count for: of a project, or under a rule of a site's policy.", "kind", "name")
	metricMonth    = metrics.Gauge("isthmus_quota_month_bytes", "Bytes of this month by what they count for, of those that have links now.", "kind", "name")
)

// Metrics returns the limiter's Prometheus metrics. Users are not distinguished: a scraper need not
// know who they are.
func (lim *Limiter) Metrics() metrics.Source {
	return metrics.Source{
		Families: []*metrics.Family{metricRate, metricWaiting, metricWaits, metricRefused, metricUserLink, metricMonth},
		Read: func(w metrics.Writer) {
			st := lim.Status()
			w.Put(metricRate, float64(st.Rate))
			w.Put(metricWaiting, float64(st.Waiting))
			w.Put(metricWaits, float64(st.Waits))
			w.Put(metricRefused, float64(st.Refused))
			var links, month []metrics.Sample
			for name, u := range st.Projects {
				links = append(links, metrics.Sample{Labels: []string{"project", name}, Value: float64(u.Links)})
				month = append(month, metrics.Sample{Labels: []string{"project", name}, Value: float64(u.Month)})
			}
			for name, u := range st.Allowed {
				links = append(links, metrics.Sample{Labels: []string{"policy", name}, Value: float64(u.Links)})
				month = append(month, metrics.Sample{Labels: []string{"policy", name}, Value: float64(u.Month)})
			}
			w.PutBounded(metricUserLink, links)
			w.PutBounded(metricMonth, month)
		},
	}
}
