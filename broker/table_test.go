package broker

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// The table is made from the JSON that an admin gets, and untrusted text cannot control the
// terminal.
func TestWriteTable(t *testing.T) {
	s := statusOf(siteOf("a", true, 1), siteOf("b\x1b[2J\tc", false, 2))
	s.Jobs = []JobStatus{{Job: overlay.ServiceJob(overlay.NodeID{Site: "a", Name: "n1"}), Processes: map[overlay.SiteID]int{"a": 1}}} // is not shown
	s.Outcomes = []OutcomeStatus{{Asker: "a", Target: s.Sites[1].Profile.Site, Technique: overlay.Relay, Failed: 2, Reason: "no\nanswer\x07", FailedAt: time.Unix(90, 0)}}
	s.Counters.Signalling = map[overlay.Technique]SignallingByResult{overlay.Relay: {1, 1}}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var read Status
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := read.WriteTable(&out, time.Unix(200, 0)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"broker b1: up for 2 min, 1 of 2 sites connected, 2 processes, 0 jobs, 0 proxies\n",
		`b\x1b[2J\tc`, `now failing: relay: no\nanswer\a`, "connected",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if strings.ContainsAny(out.String(), "\x1b\x07\t") || strings.Contains(out.String(), "node:") {
		t.Errorf("%q", out.String())
	}
}
