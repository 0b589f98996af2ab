//go:build system

package launch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// The broker lists the hosts of three sites, detects helpers and frontals that join and leave, and
// gets all hosts again when it has lost its state.
func TestHostsComeAndGo(t *testing.T) {
	t.Parallel() // most of it is waiting
	w := newWorld(t, labtest.SiteOpen+labtest.SiteClosed+labtest.SiteHidden, grid.Config{
		Settings: map[string]map[string]any{"broker": {"lease": "1s"}},
	})
	listed := func(what, open, closed, hidden string) {
		t.Helper()
		want := fmt.Sprintf("open %s, closed %s, hidden %s", open, closed, hidden)
		var got string
		w.Until(what+": "+want, func() bool {
			at := map[string]string{}
			for _, s := range w.Figure("broker", "sites").([]any) {
				site := s.(map[string]any)
				h := site["hosts"].(map[string]any)
				at[site["profile"].(map[string]any)["site"].(string)] = fmt.Sprintf("%v/%v/%v", h["up"], h["away"], h["unknown"])
			}
			got = fmt.Sprintf("open %s, closed %s, hidden %s", at["open"], at["closed"], at["hidden"])
			// The lease also expires for the site: soon after its hosts are unknown the status has
			// no line for it, and only `isthmus hosts` lists them.
			return got == want || got == strings.Replace(want, "0/0/2", "", 1)
		}, func() string { return got })
	}
	start := func(daemon string) {
		t.Helper()
		if err := w.Daemon(daemon).Start(w.Ctx); err != nil {
			t.Fatal(err)
		}
	}
	listed("all are up (up/away/unknown)", "2/0/0", "2/0/0", "1/0/0")

	w.Daemon("helper closed/n2").Kill()
	listed("a helper was killed", "2/0/0", "1/1/0", "1/0/0")
	start("helper closed/n2")
	listed("it is back", "2/0/0", "2/0/0", "1/0/0")

	w.Daemon("frontal open").Kill()
	listed("a frontal was killed", "0/0/2", "2/0/0", "1/0/0")
	start("frontal open")
	listed("it is back", "2/0/0", "2/0/0", "1/0/0")

	w.Daemon("broker").Kill()
	start("broker")
	listed("the broker began anew", "2/0/0", "2/0/0", "1/0/0")
}

// Every helper returns all hosts, their distances, and which are absent; a host that offers nothing
// is listed, too.
func TestHostsFromEverywhere(t *testing.T) {
	t.Parallel() // most of it is waiting
	w := newWorld(t, labtest.SiteOpen+labtest.SiteClosed+labtest.SiteHidden, grid.Config{Profile: labtest.NoTraversalProfile, Settings: map[string]map[string]any{
		"broker":           {"lease": "1s"},
		"helper closed/n1": {"offer": map[string]any{"jobs": 3, "processes": 7, "memory": "1GiB", "cpu": 1.5}},
		"helper open/n2":   {"offer": map[string]any{"jobs": 0}},
	}})
	all := []string{"closed/n1 up", "closed/n2 up", "hidden/n1 up", "open/n1 up", "open/n2 up"}
	for _, from := range []string{"closed/n1", "hidden/n1", "open/n2"} {
		// The list is some seconds old, and a node is measured on request.
		w.Until(fmt.Sprintf("%s to know all of %v, and how far", from, all), func() bool {
			hosts := w.hosts(from)
			return slices.Equal(hostStates(hosts), all) && !slices.ContainsFunc(hosts, func(h host) bool { return h.Jobs > 0 && h.LatencyMS == 0 })
		}, func() string { return fmt.Sprint(w.hosts(from)) })
		for _, h := range w.hosts(from) {
			far := h.Jobs > 0 && !strings.HasPrefix(h.Host, strings.Split(from, "/")[0])
			if far && h.LatencyMS < 4 { // the lab's round trip between sites
				t.Errorf("from %s, %s is %v ms away, in a lab of 4 ms", from, h.Host, h.LatencyMS)
			}
		}
	}
	hosts := w.hosts("hidden/n1")
	if h := hosts[0]; h.Jobs != 3 || h.Processes != 7 || h.Memory != 1<<30 || h.Cores != 1.5 {
		t.Errorf("closed/n1 offers %+v", h)
	}
	if h := hosts[4]; h.Jobs != 0 || h.LatencyMS != 0 {
		t.Errorf("open/n2 offers %+v", h)
	}

	w.Daemon("helper closed/n2").Kill()
	w.Daemon("frontal open").Kill()
	gone := []string{"closed/n1 up", "closed/n2 away", "hidden/n1 up", "open/n1 unknown", "open/n2 unknown"}
	w.Until(fmt.Sprintf("hidden/n1 to know %v", gone), func() bool { return slices.Equal(hostStates(w.hosts("hidden/n1")), gone) },
		func() string { return fmt.Sprint(w.hosts("hidden/n1")) })
}

// host is a line of isthmus hosts --json.
type host struct {
	Host, State string
	LatencyMS   float64 `json:"latency_ms"`
	Jobs        int
	Processes   int
	Memory      int64
	Cores       float64
}

func hostStates(hosts []host) (all []string) {
	for _, h := range hosts {
		all = append(all, h.Host+" "+h.State)
	}
	return all
}

// hosts queries a node's helper as a user would.
func (w *world) hosts(node string) (all []host) {
	w.T.Helper()
	cmd := w.Lab.Host(node).Command(w.Ctx, labtest.Program(w.T, ""), "hosts", "--json", "--wait", "0s", "--helper", w.Socket(node))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		w.T.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		w.T.Fatalf("isthmus hosts at %s: %v\n%s", node, err, stderr.String())
	}
	for dec := json.NewDecoder(&stdout); dec.More(); {
		var h host
		if err := dec.Decode(&h); err != nil {
			w.T.Fatal(err)
		}
		all = append(all, h)
	}
	slices.SortFunc(all, func(a, b host) int { return strings.Compare(a.Host, b.Host) })
	return all
}
