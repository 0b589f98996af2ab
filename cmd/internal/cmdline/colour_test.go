package cmdline

import "testing"

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
