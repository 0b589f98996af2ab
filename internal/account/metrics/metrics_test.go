package metrics

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/limit"
)

func TestBound(t *testing.T) {
	samples := []Sample{{[]string{"b", "x"}, 5}, {[]string{"a", "x"}, 5}, {[]string{"c", "x"}, 9}, {[]string{"d", "x"}, 1}}
	got := Bound(slices.Clone(samples), 2)
	want := []Sample{{[]string{"c", "x"}, 9}, {[]string{"a", "x"}, 5}, {[]string{Other, Other}, 6}}
	if !slices.EqualFunc(got, want, func(a, b Sample) bool { return a.Value == b.Value && slices.Equal(a.Labels, b.Labels) }) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := Bound(samples, 4); len(got) != 4 {
		t.Errorf("four of four: %v", got)
	}
	// Prometheus refuses a series that is there twice.
	got = Bound(append(samples, Sample{[]string{Other, Other}, 7}), 2)
	want[2].Value = 13
	if !slices.EqualFunc(got, want, func(a, b Sample) bool { return a.Value == b.Value && slices.Equal(a.Labels, b.Labels) }) {
		t.Errorf("with a rest among them: got %v, want %v", got, want)
	}
}

func TestDistribution(t *testing.T) {
	var d Distribution
	for _, took := range []time.Duration{time.Millisecond, 2 * time.Millisecond, 40 * time.Millisecond, time.Minute, -time.Second} {
		d.Observe(took)
	}
	count, sum, buckets := d.read()
	if count != 5 || sum < 60.04 || sum > 60.05 {
		t.Errorf("count %d, sum %v", count, sum)
	}
	for bound, want := range map[float64]uint64{0.001: 2, 0.0025: 3, 0.025: 3, 0.05: 4, 15: 4} {
		if buckets[bound] != want {
			t.Errorf("up to %v s: %d, want %d", bound, buckets[bound], want)
		}
	}
}

func TestScrape(t *testing.T) {
	things := Counter("isthmus_things_total", "Things.", "name")
	took := Histogram("isthmus_thing_seconds", "How long.")
	var d Distribution
	d.Observe(time.Second)
	facts, stop, err := Start(context.Background(), netip.MustParseAddrPort("127.0.0.1:0"), Daemon{
		Name: "test", NotAfter: func() time.Time { return time.Unix(4711, 0) },
		Limits: func() []Limit {
			return append(LimitsOf("places", "places_per_node", limit.Stats{Used: 5, Max: 9, Most: 4, PerKey: 6, Refused: 1, KeyRefused: 2, Evicted: 1}), Limit{Name: "seats", Used: 3, Max: 8})
		},
		Sources: []Source{{[]*Family{things, took}, func(w Writer) {
			PutAll(w, things, map[string]int{"a\"\n<b>": 2, "bad\xff": 1})
			w.PutHistogram(took, &d)
		}}},
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	resp, err := http.Get("http://" + strings.TrimPrefix(facts[0], "metrics_listen=") + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	rebound, _ := http.NewRequest("GET", resp.Request.URL.String(), nil)
	rebound.Host = "evil.example.com"
	if r, err := http.DefaultClient.Do(rebound); err != nil || r.StatusCode != http.StatusForbidden {
		t.Errorf("a page of evil.example.com may read it: %v, %v", r, err)
	} else {
		r.Body.Close()
	}
	text, _ := io.ReadAll(resp.Body)
	for _, want := range []string{
		`isthmus_build_info{daemon="test",`, "isthmus_certificate_expiry_timestamp_seconds 4711\n",
		`isthmus_limit_used{limit="seats"} 3`, `isthmus_limit_max{limit="seats"} 8`,
		`isthmus_limit_refused_total{limit="places"} 2`, `isthmus_limit_refused_total{limit="places_per_node"} 2`, `isthmus_limit_used{limit="places_per_node"} 4`,
		`isthmus_things_total{name="a\"\n<b>"} 2`, "isthmus_things_total{name=\"bad\uFFFD\"} 1",
		`isthmus_thing_seconds_bucket{le="0.5"} 0`, `isthmus_thing_seconds_bucket{le="1"} 1`, "isthmus_thing_seconds_count 1",
		"process_open_fds", "go_goroutines",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}
