package control

import (
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
)

func TestHeldTo(t *testing.T) {
	if m := RateLimitToPB(0, "quota.rate"); m != nil {
		t.Errorf("no rate is %v", m)
	}
	if text := HeldTo(nil, "proxy p1"); text != "" {
		t.Errorf("no limit is %q", text)
	}
	m := RateLimitToPB(16e6, "quota.per_job.rate")
	if text := HeldTo(m, "proxy p1"); text != "held to 16Mbit/s by quota.per_job.rate of proxy p1" {
		t.Error(text)
	}
	m = &controlpb.RateLimit{Rate: 1 << 63, Rule: "a;b\x1b[2J" + strings.Repeat("x", 300)}
	if text := HeldTo(m, "p"); strings.ContainsAny(text, ";\x1b") || len(text) > 300 {
		t.Errorf("%q", text)
	}
}
