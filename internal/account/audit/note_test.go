package audit

import (
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/account/metrics"
	"github.com/isthmus-grid/isthmus/internal/daemon"
)

func TestChangedSettingsAreRecorded(t *testing.T) {
	var none *Log
	none.NoteChange(daemon.Change{Key: "x"})
	folder := t.TempDir()
	l := open(t, config(folder))
	l.while(func() error {
		l.NoteChange(daemon.Change{Key: "quota.rate", Was: "none", Is: "1Gbit/s", Now: true})
		l.NoteChange(daemon.Change{Key: "listen", Was: "a", Is: "b\nc"})
		return nil
	})
	records, _ := all(t, folder)
	var got []string
	for _, r := range records {
		if r.Event == Settings {
			got = append(got, r.Rule+": "+r.Reason)
		}
	}
	want := `quota.rate: was none, is 1Gbit/s, takes effect now; listen: was a, is b\nc, takes effect after a restart`
	if text := strings.Join(got, "; "); text != want {
		t.Errorf("%s, want %s", text, want)
	}
}

func TestMetrics(t *testing.T) {
	scrape := func(l *Log) string {
		rec := httptest.NewRecorder()
		metrics.Handler(metrics.Daemon{Name: "proxy", NotAfter: func() time.Time { return time.Now() }, Sources: []metrics.Source{l.Metrics()}}, quiet).
			ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
		return rec.Body.String()
	}
	if text := scrape(nil); strings.Contains(text, "isthmus_audit") {
		t.Errorf("without a log:\n%s", text)
	}
	l := open(t, config(t.TempDir()))
	l.while(func() error { l.Append(Record{Event: LinkEnd}); return nil })
	text := scrape(l)
	for _, want := range []string{
		`(?m)^isthmus_audit_records_total(\{.*\})? 4$`, // file, start, the link's end, stop
		`(?m)^isthmus_audit_lost_total(\{.*\})? 0$`, `(?m)^isthmus_audit_failing(\{.*\})? 0$`, `(?m)^isthmus_audit_last_write_timestamp_seconds(\{.*\})? 1\.`,
	} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}
