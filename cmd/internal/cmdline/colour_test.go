package cmdline

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
)

func TestColour(t *testing.T) {
	for line, want := range map[string]string{
		"a/n1  up     -":       "a/n1  " + Green + "up" + Reset + "     -",
		"b/n1  away   1m1s  -": "b/n1  " + Red + "away" + Reset + "   1m1s  -",
		"job  held":            "job  " + Yellow + "held" + Reset,
		"upload  up and away":  "upload  up and away",
		"broker b: up for 3 h": "broker b: up for 3 h",
		"a  b  no path  x":     "a  b  " + Red + "no path" + Reset + "  x",
	} {
		if got := Colour(line); got != want {
			t.Errorf("%q", got)
		}
	}
}

// Colours are for terminals only; what else reads gets the plain table.
func TestColoured(t *testing.T) {
	table := func(w io.Writer) error {
		_, err := fmt.Fprint(w, "host  state\nn1  up\n")
		return err
	}
	var plain strings.Builder
	if err := Coloured(&plain, table); err != nil || plain.String() != "host  state\nn1  up\n" {
		t.Errorf("%q, %v", plain.String(), err)
	}
	terminal, err := os.OpenFile("/dev/null", os.O_WRONLY, 0) // a character device, as a terminal is
	if err != nil {
		t.Skip("no /dev/null")
	}
	defer terminal.Close()
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	if !wantsColour(terminal) {
		t.Error("a terminal gets no colours")
	}
	t.Setenv("NO_COLOR", "1")
	if wantsColour(terminal) {
		t.Error("colours in spite of NO_COLOR")
	}
}
