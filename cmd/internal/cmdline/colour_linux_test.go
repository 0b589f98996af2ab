package cmdline

import (
	"fmt"
	"io"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/printable"
	"github.com/isthmus-grid/isthmus/internal/testkit"
)

// Colours are for terminals, of users who want them; what else reads gets the plain table. What others have named is escaped
// in both.
func TestColoured(t *testing.T) {
	table := func(w io.Writer) error {
		_, err := fmt.Fprint(w, "host  state\nn1  up  \x1b[2J\n")
		return err
	}
	const plain = "host  state\r\nn1  up  \\x1b[2J\r\n"
	for _, tc := range []struct{ term, noColour, want string }{
		{"xterm", "", "host  state\r\nn1  " + Green + "up" + Reset + "  \\x1b[2J\r\n"},
		{"xterm", "1", plain},
		{"dumb", "", plain},
	} {
		t.Setenv("TERM", tc.term)
		t.Setenv("NO_COLOR", tc.noColour)
		keyboard, terminal := testkit.Terminal(t)
		out := &output{w: printable.Writer{W: terminal}}
		if err := Coloured(out, table); err != nil || out.end() != nil {
			t.Error(err, out.end())
		}
		if got := testkit.Shown(t, keyboard, terminal); got != tc.want {
			t.Errorf("TERM=%s NO_COLOR=%s: %q", tc.term, tc.noColour, got)
		}
	}
	t.Setenv("TERM", "xterm")
	keyboard, terminal := testkit.Terminal(t)
	if err := Coloured(struct{ io.Writer }{terminal}, table); err != nil {
		t.Error(err)
	}
	if got := testkit.Shown(t, keyboard, terminal); got != "host  state\r\nn1  up  \x1b[2J\r\n" {
		t.Errorf("to another writer: %q", got)
	}
}
