package runjob

import (
	"testing"
	"time"
)

func TestParseTime(t *testing.T) {
	for text, want := range map[string]time.Duration{"30d": 720 * time.Hour, "0.5d": 12 * time.Hour, "90m": 90 * time.Minute, "24h": 24 * time.Hour} {
		if got, err := parseTime("mtbf", text); err != nil || got != want {
			t.Errorf("%s is read as %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "d", "30", "0d", "-1d", "NaNd", "1e300d", "0s", "-5m", "soon"} {
		if got, err := parseTime("mtbf", text); err == nil {
			t.Errorf("%q is read as %v, want an error", text, got)
		}
	}
}
