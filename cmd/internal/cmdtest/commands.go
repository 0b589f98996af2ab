package cmdtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/testkit"
)

// commandsFile has the commands and flags of a program, for tests that cannot import its definitions.
var commandsFile = filepath.Join("testdata", "commands.txt")

// Commands compares the commands and flags of the program's manual page with testdata/commands.txt.
// With -update it writes the file.
func Commands(t *testing.T) {
	t.Helper()
	page, complaints, status := Run(t, t.TempDir(), "man")
	if status != 0 {
		t.Fatalf("man: status %d\n%s", status, complaints)
	}
	want := commandsOf(page)
	if testkit.Updating() {
		if err := os.WriteFile(commandsFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(commandsFile); err != nil || string(got) != want {
		t.Errorf("%s has other commands or flags than the program (%v); renew it with: go test -run '^%s$' -update", commandsFile, err, t.Name())
	}
}

var (
	section = regexp.MustCompile(`^\.S([HS]) (.*)$`)
	flag    = regexp.MustCompile(`^\\fB(-[^\\]*)\\fP(=?)`)
)

// commandsOf returns a line for each command of a manual page, and below it one for each flag, with =
// where it takes a value. A command of a command is below that one.
func commandsOf(page string) string {
	_, page, _ = strings.Cut(page, "\n.SH COMMANDS\n")
	var all strings.Builder
	indent := ""
	for line := range strings.Lines(page) {
		line = strings.ReplaceAll(strings.TrimSpace(line), `\-`, "-")
		if m := section.FindStringSubmatch(line); m != nil {
			indent = ""
			if m[1] == "S" {
				indent = "\t"
			}
			all.WriteString(indent + m[2] + "\n")
		} else if m := flag.FindStringSubmatch(line); m != nil {
			all.WriteString(indent + "\t" + m[1] + m[2] + "\n")
		}
	}
	return all.String()
}
