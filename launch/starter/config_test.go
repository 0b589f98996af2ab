package starter

import (
	"testing"

	"github.com/isthmus-grid/isthmus/internal/daemon/daemontest"
)

func TestSample(t *testing.T) { daemontest.Sample[Config](t, "isthmus-starter") }

// Accounts of the system, and the account nobody, are not for jobs.
func TestRanges(t *testing.T) {
	for text, want := range map[string]bool{
		"1900000000-1900009999": true, "1000-1000": true, "999-2000": false, "0-10": false, "65000-70000": false,
		"2000-1000": false, "": false, "5000": false, "4294967295-4294967295": false, "1900000000-1910000000": false,
	} {
		if _, err := parseRange(text); (err == nil) != want {
			t.Errorf("%q: %v", text, err)
		}
	}
}
