package daemon

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
)

type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

// A line of the log has no more of a long text than its beginning, in every format and kind of value.
func TestLogLinesAreShort(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for _, format := range []string{"text", "json"} {
		var out strings.Builder
		log, _ := newLogger(Log{Level: "info", Format: format}, &out)
		log.With("before", long).Info(long, "text", long, "error", errors.New(long), slog.Group("group", "text", long), "short", "kept", "nil", (*nilError)(nil), "number", 5)
		if n := out.Len(); n > 6*maxLogged || n < 5*maxLogged {
			t.Errorf("%s: a line of %d bytes", format, n)
		}
		for _, want := range []string{"xxx...", "kept", "5"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: no %q", format, want)
			}
		}
	}
}
