package audit

import (
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/internal/account/metrics"
	"github.com/isthmus-grid/isthmus/internal/daemon"
)

// NoteChange records that a setting has changed; pass it to daemon.OnChange. Rule is the key.
func (l *Log) NoteChange(c daemon.Change) {
	effect := "now"
	if !c.Now {
		effect = "after a restart"
	}
	l.Append(Record{Event: Settings, Rule: c.Key, Reason: fmt.Sprintf("was %s, is %s, takes effect %s", c.Was, c.Is, effect)})
}

var (
	metricRecords = metrics.Counter("isthmus_audit_records_total", "Records of the audit log that were written.")
	metricLost    = metrics.Counter("isthmus_audit_lost_total", "Records of the audit log that were lost: they could not be written, or not fast enough.")
	metricWaiting = metrics.Gauge("isthmus_audit_waiting", "Records of the audit log that wait to be written.")
	metricFailing = metrics.Gauge("isthmus_audit_failing", "1 while the audit log cannot be written, else 0.")
	metricWritten = metrics.Gauge("isthmus_audit_last_write_timestamp_seconds", "When the audit log was last written, in seconds since 1970.")
)

// Metrics returns the log's Prometheus metrics; none for a nil Log.
func (l *Log) Metrics() metrics.Source {
	return metrics.Source{
		Families: []*metrics.Family{metricRecords, metricLost, metricWaiting, metricFailing, metricWritten},
		Read: func(w metrics.Writer) {
			st := l.Status()
			if st == nil {
				return
			}
			w.Put(metricRecords, float64(st.Written))
			w.Put(metricLost, float64(st.Lost))
			w.Put(metricWaiting, float64(st.Waiting))
			w.Put(metricFailing, metrics.Bool(st.Failing != ""))
			if at := l.wrote.Load(); at != 0 {
				w.Put(metricWritten, float64(at)/float64(time.Second))
			}
		},
	}
}
