package demo

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestOutcome(t *testing.T) {
	for output, want := range map[string]string{
		"isthmus: grid: starting 8 processes\n[alpha/n1:0] ranks 0 and 7, first round trip (sets up the link) 243206.8 us\n" +
			"[alpha/n1:0]      bytes           median            least         MB/s\n" +
			"[alpha/n1:0]          0       11089.5 us       10574.1 us         0.00\n" +
			"[alpha/n1:0]    1048576       19484.1 us       18706.8 us       107.63\n": "11.1 ms round trip, 107.63 MB/s with 1048576 bytes",
		"[alpha/n1:0]  Time in seconds  =                     0.41\n[alpha/n1:0]  Verification     =               SUCCESSFUL\n": "verification successful, 0.41 s",
	} {
		if got := outcome(output); got != want {
			t.Errorf("%q: %q", output, got)
		}
	}
}

// cross are links of every kind.
var cross = []report{
	{Rank: 0, Peer: 1, Dialled: true, Technique: "local", Via: "shared memory"},
	{Rank: 1, Peer: 0, Technique: "local", Via: "shared memory"},
	{Rank: 0, Peer: 2, Dialled: true, Technique: "direct"},
	{Rank: 4, Peer: 6, Dialled: true, Technique: "direct"},
	{Rank: 0, Peer: 7, Dialled: true, Technique: "simultaneous-open", Via: "target's gateway", Cipher: "x", RTTMS: 10.9, Reason: "both let SYNs out"},
	{Rank: 5, Peer: 0, Dialled: true, Technique: "simultaneous-open", Via: "target's gateway", Cipher: "x", RTTMS: 11.2, Reason: "both let SYNs out"},
	{Rank: 6, Peer: 0, Dialled: true, Technique: "relay", Proxy: "p1", Cipher: "x", RTTMS: 21, Reason: "a relay is left"},
}

func TestDraw(t *testing.T) {
	got := strings.Join(draw(cross), "\n")
	want := `  ┌ alpha ──┐                                                                                              ┌ beta ───┐
  │ n1      │═══ 2 links: simultaneous-open via target's gateway, encrypted, 11.2 ms ═══│ n1      │
  │ n2      │════════════ 1 link: relay through p1, encrypted, 21.0 ms ════════════════│ n2      │
  └─────────┘                                                                                              └─────────┘
  inside alpha: 1 link direct, 1 link local via shared memory
  inside beta: 1 link direct
  because both let SYNs out
  because a relay is left
  (ms is the longest round trip of these links)`
	lines := strings.Split(got, "\n")
	for _, line := range lines[1:4] {
		if utf8.RuneCountInString(line) != utf8.RuneCountInString(lines[0]) {
			t.Errorf("%q is not as wide as %q", line, lines[0])
		}
	}
	squeezed := func(s string) string { return strings.Join(strings.Fields(strings.ReplaceAll(s, "═", "")), " ") }
	if squeezed(got) != squeezed(want) {
		t.Error(got)
	}
}

// The demo fits a screen; a program that fails shows what it printed.
func TestScreen(t *testing.T) {
	var out bytes.Buffer
	p := &printer{w: &out}
	p.programs(8)
	p.title("ping-pong", 8)
	p.output().Write([]byte("[a/n1:0]  0  11000.0 us  1.0 us  0.00\n[a/n1:0]  8  11000.0 us  1.0 us  5.00\n"))
	p.links("ping-pong", cross)
	p.traffic("ping-pong", totals{}, totals{}, 1500*time.Millisecond)
	p.picture()
	text := out.String()
	for _, want := range []string{"each of 8 ranks", "ping-pong   ", "11.0 ms round trip, 5.00 MB/s with 8 bytes; 1.5 s with its start\n", "inside alpha: "} {
		if !strings.Contains(text, want) {
			t.Errorf("%q lacks %q", text, want)
		}
	}
	if n := strings.Count(text, "\n"); n > 18 {
		t.Errorf("%d lines", n)
	}
	out.Reset()
	p.title("is", 8)
	p.output().Write([]byte("it broke\n"))
	p.failed(errors.New("exit status 1"))
	if !strings.Contains(out.String(), "FAILED: exit status 1\nit broke\n") {
		t.Errorf("%q", out.String())
	}
}
