package test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// cell is one line of `isthmus lab matrix --json`.
type cell struct {
	From, To             string
	Connected            bool
	Technique, Predicted string
	DirectPossible       bool              `json:"direct_possible"`
	SetupMS              float64           `json:"setup_ms"`
	ProxyBytes           uint64            `json:"proxy_bytes"`
	ThirdPartyPackets    uint64            `json:"third_party_packets"`
	Reasons              map[string]string `json:"reasons"`
	Error                string            `json:"error"`
}

// run runs a program to its end and returns what it wrote. The test fails when
// that takes longer than the patience.
func run(t *testing.T, cmd *exec.Cmd) (stdout, stderr string, status int) {
	t.Helper()
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	cmd.WaitDelay = 2 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	over := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	err := cmd.Wait()
	if !over.Stop() {
		t.Fatalf("%v did not end within %v; it wrote:\n%s%s", cmd.Args, patience, out.Bytes(), complaint.Bytes())
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %v", cmd.Args, err)
	}
	return out.String(), complaint.String(), cmd.ProcessState.ExitCode()
}

// Every ordered pair of the kinds of site connects, by what the broker
// predicts; proxies see nothing of links that need none, and nobody else sees
// anything of any.
func TestMatrix(t *testing.T) {
	needLab(t)
	presets := []string{"open", "port-range", "stateful", "syn-drop", "egress-443", "http-proxy", "no-route/stateful"}
	stdout, stderr, status := run(t, exec.Command(isthmus(t, ""), "lab", "matrix", "--json", "--presets", strings.Join(presets, ",")))
	if status != 0 {
		t.Errorf("status %d:\n%s", status, stderr)
	}
	cells := map[[2]string]cell{}
	for d := json.NewDecoder(strings.NewReader(stdout)); ; {
		var c cell
		if err := d.Decode(&c); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in:\n%s", err, stdout)
		}
		cells[[2]string{c.From, c.To}] = c
	}
	for _, from := range presets {
		for _, to := range presets {
			c, ok := cells[[2]string{from, to}]
			switch {
			case !ok:
				t.Errorf("%s to %s is missing", from, to)
				continue
			case !c.Connected || c.Error != "":
				t.Errorf("%s to %s: %s", from, to, c.Error)
			case c.Technique != c.Predicted || c.Technique == "":
				t.Errorf("%s to %s: by %s, predicted was %s", from, to, c.Technique, c.Predicted)
			}
			if want := technique(from, to); want != "" && c.Technique != want {
				t.Errorf("%s to %s: by %s, want %s", from, to, c.Technique, want)
			}
			if relayed := c.Technique == "relay"; relayed != (c.ProxyBytes > 0) {
				t.Errorf("%s to %s: by %s, and %d bytes by the proxy", from, to, c.Technique, c.ProxyBytes)
			}
			if c.ThirdPartyPackets != 0 {
				t.Errorf("%s to %s: %d packets to third parties", from, to, c.ThirdPartyPackets)
			}
			if len(c.Reasons) != 7 || c.SetupMS <= 0 {
				t.Errorf("%s to %s: %d reasons, set-up in %v ms", from, to, len(c.Reasons), c.SetupMS)
			}
		}
	}
	if len(cells) != len(presets)*len(presets) {
		t.Errorf("%d cells for %d kinds of site", len(cells), len(presets))
	}
}

// technique says by hand what joins two of the kinds above where a listener can
// be reached, and where nothing but a proxy can; "" for the rest, which techniques
// for closed sites may join.
func technique(from, to string) string {
	narrow := func(s string) bool { return s == "egress-443" || s == "http-proxy" }
	switch {
	case from == "http-proxy" || to == "http-proxy" && narrow(from):
		return "relay"
	case to == "open" && !narrow(from):
		return "direct"
	case to == "port-range" && !narrow(from):
		return "port-range"
	case (from == "open" || from == "port-range") && !narrow(to):
		return "reversed"
	case to == "http-proxy":
		return "relay"
	case strings.HasPrefix(from, "no-route/") || strings.HasPrefix(to, "no-route/"):
		return "relay"
	case from == "syn-drop" && to == "syn-drop":
		return "hole-punching"
	case !narrow(from) && !narrow(to):
		return "simultaneous-open"
	}
	return ""
}
