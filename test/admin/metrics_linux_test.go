//go:build system

package admin

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// All daemons export their figures, and the board queries only existing ones: an empty panel would
// go unnoticed.
func TestMetrics(t *testing.T) {
	t.Parallel() // most of it is waiting
	ports := map[string]string{"broker": "9441", "frontal": "9442", "proxy": "9443", "helper": "9444"}
	settings := map[string]map[string]any{}
	for kind, port := range ports {
		settings[kind] = map[string]any{"metrics_listen": "127.0.0.1:" + port}
	}
	settings["broker"]["audit"] = map[string]any{"folder": t.TempDir()}   // without a log there are no figures of it
	settings["broker"]["store"] = filepath.Join(t.TempDir(), "broker.db") // nor without a store
	w := labtest.NewWorld(t, labtest.SiteClosed+labtest.SiteShut+labtest.SiteHidden, grid.Config{Settings: settings})
	j := w.LinkPair("closed/n1", "shut/n1")
	if j.Near.Path.Technique != overlay.Relay {
		t.Fatalf("linked by %v", j.Near.Path)
	}
	defer j.End(t)
	carried := w.LinkPair("hidden/n1", "shut/n1")
	defer carried.End(t)
	w.Until("the broker was told of both relayed links", func() bool {
		n, err := strconv.ParseFloat(w.Scrape("broker", ports["broker"])[`isthmus_broker_signalling_connected_total{technique="relay"}`], 64)
		return err == nil && n >= 2
	})
	exported := map[string]bool{"up": true} // up is Prometheus's own
	all := map[string]string{}
	for kind, daemon := range map[string]string{"broker": "broker", "frontal": "frontal closed", "proxy": "proxy p1", "helper": "helper closed/n1"} {
		for s, v := range w.Scrape(daemon, ports[kind]) {
			name, _, _ := strings.Cut(s, "{")
			exported[name], all[s] = true, v
		}
	}
	for series, want := range map[string]string{
		`isthmus_broker_sites{state="connected"}`:             "3",
		`isthmus_broker_processes{site="closed"}`:             "3", // one of the job, and the node services of two nodes
		`isthmus_broker_proxies{state="open"}`:                "1",
		`isthmus_frontal_broker_up`:                           "1",
		`isthmus_frontal_helpers{state="away"}`:               "0",
		`isthmus_proxy_links`:                                 "2",
		`isthmus_quota_refused_total`:                         "0",
		`isthmus_dials_total{technique="relay"}`:              "1",
		`isthmus_dial_setup_seconds_count{technique="relay"}`: "1",
		`isthmus_dial_failures_total{cause="timed out"}`:      "0",
	} {
		if all[series] != want {
			t.Errorf("%s is %q, want %s", series, all[series], want)
		}
	}
	gateway := w.Scrape("frontal hidden", ports["frontal"])
	for s := range gateway {
		name, _, _ := strings.Cut(s, "{")
		exported[name] = true
	}
	// Each end sent more than 100,000 bytes; the links live.
	for series, least := range map[string]float64{
		`isthmus_proxy_project_bytes_total{project="-"}`:                              400_000,
		`isthmus_frontal_project_bytes_total{project="-"}`:                            200_000,
		`isthmus_frontal_pair_bytes_total{direction="out",peer="shut",site="hidden"}`: 100_000,
		`isthmus_frontal_pair_bytes_total{direction="in",peer="shut",site="hidden"}`:  100_000,
		`isthmus_frontal_forwarded_kind_links{kind="carry"}`:                          1,
	} {
		text := gateway[series]
		if strings.HasPrefix(series, "isthmus_proxy") {
			text = all[series]
		}
		if v, err := strconv.ParseFloat(text, 64); err != nil || v < least {
			t.Errorf("%s is %q, want %v or more", series, text, least)
		}
	}

	for file, exprs := range map[string][]string{"deploy/grafana/isthmus.json": boardExprs(t), "deploy/prometheus/alerts.yaml": alertExprs(t)} {
		named := 0
		for _, expr := range exprs {
			for _, name := range metricNames(expr) {
				named++
				if !exported[name] {
					t.Errorf("%s: no daemon exports %s, which %q asks for", file, name, expr)
				}
			}
		}
		if named < 10 {
			t.Errorf("%s: only %d metrics are named: this test reads it wrongly", file, named)
		}
	}
}

// metricNames returns the metrics that an expression names: ours and those of the process.
func metricNames(expr string) []string {
	return regexp.MustCompile(`\b(?:isthmus|process|go)_[a-z0-9_]+|\bup\b`).FindAllString(expr, -1)
}

func boardExprs(t *testing.T) (all []string) {
	var board struct {
		Panels []struct {
			Title, Type string
			Targets     []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(labtest.ReadFile(t, "deploy/grafana/isthmus.json")), &board); err != nil {
		t.Fatal(err)
	}
	for _, p := range board.Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q asks for nothing", p.Title)
		}
		for _, q := range p.Targets {
			all = append(all, q.Expr)
		}
	}
	return all
}

func alertExprs(t *testing.T) (all []string) {
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	d := yaml.NewDecoder(strings.NewReader(labtest.ReadFile(t, "deploy/prometheus/alerts.yaml")))
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if r.Labels["severity"] == "" || r.Annotations["summary"] == "" {
				t.Errorf("alert %s has no severity, or says nothing", r.Alert)
			}
			all = append(all, r.Expr)
		}
	}
	return all
}
