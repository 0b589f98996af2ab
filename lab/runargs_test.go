package lab

import (
	"strings"
	"testing"
)

func TestRunArgs(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"f -- ls -l", "f||ls -l"},
		{"f ls -l", "f||ls -l"},
		{"f --at a/b -- ls", "f|a/b|ls"},
		{"f --at=a/b ls", "f|a/b|ls"},
		{"f --at", "error"},
		{"f --", "error"},
		{"f --att a/b -- ls", "error"},
		{"f", "error"},
		{"", "error"},
	} {
		file, at, argv, err := RunArgs("", strings.Fields(c.in))
		got := file + "|" + at + "|" + strings.Join(argv, " ")
		if err != nil {
			got = "error"
		}
		if got != c.want {
			t.Errorf("%q: %q, want %q", c.in, got, c.want)
		}
	}
}
