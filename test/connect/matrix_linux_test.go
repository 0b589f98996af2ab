//go:build system

package connect

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// cell is one line of `isthmus-lab matrix --json`.
type cell struct {
	From, To             string
	Connected            bool
	Technique, Predicted string
	DirectPossible       bool              `json:"direct_possible"`
	SetupMS              float64           `json:"setup_ms"`
	First                string            `json:"first"`
	ProxyBytes           uint64            `json:"proxy_bytes"`
	ThirdPartyPackets    uint64            `json:"third_party_packets"`
	Reasons              map[string]string `json:"reasons"`
	Error                string            `json:"error"`
	Tries                int               `json:"tries"`
}

// sitePair is a pair of kinds of site and the technique that joins them, written by hand.
type sitePair struct{ from, to, technique string }

// pairs has each technique where nothing better works, with kinds of site that it must handle.
var pairs = []sitePair{
	{"open", "open", "direct"},
	{"nat-symmetric", "nat-1to1", "direct"},
	{"nat-symmetric", "port-range", "port-range"},
	{"port-range", "nat-symmetric", "reversed"},
	{"no-udp", "stateful", "simultaneous-open"},
	{"stateful-reject", "nat-answers", "simultaneous-open"},
	{"nat-random", "stateful-strict-new", "simultaneous-open"},
	{"egress-443", "egress-443", "simultaneous-open"},
	{"nat-symmetric-ipv6", "nat-symmetric-ipv6", "simultaneous-open"},
	{"syn-drop-no-udp", "syn-drop-no-udp", "traversing"},
	{"nat-symmetric", "syn-drop", "hole-punching"},
	{"syn-reset", "syn-reset", "hole-punching"},
	{"nat-symmetric", "nat-symmetric", "relay"},
	{"http-proxy", "open", "relay"},

	{"no-route/open", "stateful", "reversed"},
	{"nat", "no-route/port-range", "port-range"},
	{"no-route/stateful", "no-route/nat", "simultaneous-open"},
	{"no-route/egress-443", "open", "simultaneous-open"},
	{"no-route/syn-drop-no-udp", "no-route/syn-drop-no-udp", "traversing"},
	{"syn-reset", "no-route/syn-reset", "hole-punching"},
	{"no-route/http-proxy", "no-route/http-proxy", "relay"},
}

// others returns pairs in which every kind of site is asker and target.
func others() []sitePair {
	var kinds []string
	for _, p := range lab.Presets() {
		if !strings.HasPrefix(p, "no-route/") {
			kinds = append(kinds, p)
		}
	}
	var all []sitePair
	for i, from := range kinds {
		all = append(all, sitePair{from: from, to: kinds[(i+5)%len(kinds)]}) // 5: most of these are closed to each other
	}
	return all
}

// Kinds of site are paired: every kind with at least one other, and by every technique. They
// connect as the broker predicts and as the measurements say; proxies carry nothing of links that
// do not need them, and third parties see no packets.
func TestMatrix(t *testing.T) {
	labtest.NeedLab(t)
	checkMatrix(t, append(others(), pairs...))
}

// Without the right to open raw sockets, sites whose filters refuse bare SYNs still connect where
// datagrams pass, and only there.
func TestMatrixUnprivileged(t *testing.T) {
	labtest.NeedLab(t)
	checkMatrix(t, []sitePair{
		{"stateful", "nat", "simultaneous-open"},
		{"syn-drop", "syn-drop", "hole-punching"},
		{"syn-drop-no-udp", "syn-drop-no-udp", "relay"},
		{"no-route/syn-drop", "syn-drop", "hole-punching"},
		{"no-route/syn-drop-no-udp", "syn-drop", "relay"},
	}, "--unprivileged")
}

// Sites connect over IPv6 alone as they do over IPv4, by every technique, and an IPv4 NAT does not
// matter.
func TestMatrixIPv6(t *testing.T) {
	labtest.NeedLab(t)
	checkMatrix(t, []sitePair{
		{"stateful", "open", "direct"},
		{"http-proxy", "port-range", "relay"},
		{"stateful-reject", "port-range", "port-range"},
		{"open", "stateful-noloose", "reversed"},
		{"syn-drop", "stateful-strict", "simultaneous-open"},
		{"stateful-strict-new", "syn-reset", "simultaneous-open"},
		{"egress-443", "no-udp", "simultaneous-open"},
		{"nat-symmetric-ipv6", "nat-ipv6", "simultaneous-open"},
		{"mtu-1400", "udp-slow", "simultaneous-open"},
		{"syn-drop", "syn-reset", "hole-punching"},
		{"syn-drop-no-udp", "syn-drop", "traversing"},

		{"no-route/stateful", "no-route/port-range", "port-range"},
		{"no-route/nat-symmetric-ipv6", "no-route/egress-443", "simultaneous-open"},
		{"no-route/syn-drop", "no-route/syn-drop", "traversing"},
		{"no-route/http-proxy", "stateful", "relay"},
	}, "--ipv6")
}

// Unforeseen kinds of site connect to others and to their own kind, only from what they measure of
// their firewalls: directly where there is such a path.
func TestMatrixMeasured(t *testing.T) {
	t.Parallel() // most of it is waiting
	labtest.NeedLab(t)
	var pairs []string
	for i, p := range lab.Unforeseen() {
		pairs = append(pairs, p+":"+p, p+":"+[]string{"stateful", "nat", "nat-symmetric", "no-route/egress-443"}[i%4])
	}
	stdout, stderr, status := labtest.RunWithin(t, labtest.PatienceFor(t, 5*time.Minute), exec.Command(labtest.Program(t, "-lab"), "matrix", "--measured", "--json", "--pairs", strings.Join(pairs, ",")))
	d := json.NewDecoder(strings.NewReader(stdout))
	for _, pair := range pairs {
		var c cell
		if err := d.Decode(&c); err != nil {
			t.Fatalf("%s: %v; the run ended with status %d and said:\n%s", pair, err, status, stderr)
		}
		if err := c.measured(pair); err != nil {
			t.Error(err)
		}
	}
	if status != 0 {
		t.Errorf("status %d:\n%s", status, stderr)
	}
}

// measured returns the faults of a cell of a measured run.
func (c cell) measured(pair string) error {
	var faults []error
	if got := c.From + ":" + c.To; got != pair || !c.Connected || c.Error != "" || c.First == "" || len(c.Reasons) != 7 {
		faults = append(faults, fmt.Errorf("%s: %+v", pair, c))
	}
	if (c.Technique == "relay") == c.DirectPossible {
		faults = append(faults, fmt.Errorf("%s: by %s; a direct path exists: %v", pair, c.Technique, c.DirectPossible))
	}
	if c.ThirdPartyPackets != 0 {
		faults = append(faults, fmt.Errorf("%s: %d packets to third parties", pair, c.ThirdPartyPackets))
	}
	return errors.Join(faults...)
}

// A job across randomly composed networks receives all its bytes, whatever fails meanwhile.
// `isthmus-lab random --count 100` runs more of them.
func TestRandomNetworks(t *testing.T) {
	t.Parallel() // most of it is waiting
	labtest.NeedLab(t)
	for _, seed := range []string{"2", "3", "5"} {
		t.Run("seed "+seed, func(t *testing.T) {
			t.Parallel()
			stdout, stderr, status := labtest.RunWithin(t, 5*time.Minute, exec.Command(labtest.Program(t, "-lab"), "random", "--seed", seed, "--count", "1"))
			if status != 0 || strings.Count(stdout, "messages in") != 1 {
				t.Errorf("status %d:\n%s%s", status, stdout, stderr)
			}
		})
	}
}

// checkMatrix connects the pairs and judges the outcome again.
func checkMatrix(t *testing.T, pairs []sitePair, flags ...string) {
	t.Helper()
	var words []string
	for _, m := range pairs {
		words = append(words, m.from+":"+m.to)
	}
	command := append([]string{"matrix", "--json", "--pairs", strings.Join(words, ",")}, flags...)
	stdout, stderr, status := labtest.RunWithin(t, 5*time.Minute, exec.Command(labtest.Program(t, "-lab"), command...))
	if status != 0 {
		t.Errorf("status %d:\n%s", status, stderr)
	}
	d := json.NewDecoder(strings.NewReader(stdout))
	for _, m := range pairs {
		var c cell
		if err := d.Decode(&c); err != nil {
			t.Fatalf("%s to %s: %v; the run said:\n%s", m.from, m.to, err, stderr)
		}
		c.check(t, m)
	}
	if d.More() {
		t.Errorf("more than %d objects:\n%s", len(pairs), stdout)
	}
}

// check reports the faults of a cell.
func (c cell) check(t *testing.T, want sitePair) {
	t.Helper()
	pair := want.from + " to " + want.to
	if c.From != want.from || c.To != want.to {
		t.Errorf("%s to %s in place of %s", c.From, c.To, pair)
		return
	}
	switch {
	case !c.Connected || c.Error != "":
		t.Errorf("%s: %s", pair, c.Error)
	case c.Technique != c.Predicted || c.Technique == "":
		t.Errorf("%s: by %s, predicted was %s", pair, c.Technique, c.Predicted)
	case want.technique != "" && c.Technique != want.technique:
		t.Errorf("%s: by %s, want %s", pair, c.Technique, want.technique)
	}
	relayed := c.Technique == "relay"
	if relayed != (c.ProxyBytes > 0) || relayed == c.DirectPossible {
		t.Errorf("%s: by %s, and %d bytes by the proxy; a direct path exists: %v", pair, c.Technique, c.ProxyBytes, c.DirectPossible)
	}
	if c.ThirdPartyPackets != 0 {
		t.Errorf("%s: %d packets to third parties", pair, c.ThirdPartyPackets)
	}
	if len(c.Reasons) != 7 || c.SetupMS <= 0 || c.Tries < 1 {
		t.Errorf("%s: %d reasons, set-up in %v ms, %d tries", pair, len(c.Reasons), c.SetupMS, c.Tries)
	}
}

// A grid on IPv6 reports which host lacks it.
func TestGridWithoutIPv6(t *testing.T) {
	labtest.NeedLab(t)
	l, err := lab.Up(t.Context(), lab.Spec{IPv6: true, Sites: []lab.Site{
		{Name: "public", Preset: lab.Public, Nodes: []string{"broker"}},
		{Name: "old", Preset: "nat", Nodes: lab.Nodes(1)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = grid.Start(t.Context(), l, grid.Config{Broker: "public/broker", IPv6: true})
	if err == nil || !strings.Contains(err.Error(), "old/gw has no IPv6 address; its preset is nat") {
		t.Errorf("the grid starts: %v", err)
	}
}
