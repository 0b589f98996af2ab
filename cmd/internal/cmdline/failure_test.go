package cmdline

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/internal/printable"
)

// Who waits is told for what, and what shows why, long before 5 s are over, and not if it was short.
func TestWaiting(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	stderr := os.Stderr
	os.Stderr = w
	synctest.Test(t, func(t *testing.T) {
		Waiting("nothing", "")()
		defer Waiting("the list of hosts", "isthmus doctor")()
		defer Waiting("what is tried", "")()
		time.Sleep(AnswerTime)
		synctest.Wait()
	})
	os.Stderr = stderr
	w.Close()
	said, err := io.ReadAll(r)
	lines := strings.Split(string(said), "\n")
	slices.Sort(lines)
	if want := []string{"", "isthmus: waiting for the list of hosts; next: isthmus doctor", "isthmus: waiting for what is tried"}; err != nil || !slices.Equal(lines, want) {
		t.Errorf("%q, %v", lines, err)
	}
}

func TestFailure(t *testing.T) {
	t.Setenv("COLUMNS", "100")
	chain := errors.New("session: read: reset")
	for _, tc := range []struct {
		f    Failure
		want string
	}{
		{Failure{Cause: "hosts: no helper", Next: "start it"}, "isthmus: hosts: no helper\n  next:    start it\n"},
		{Failure{Cause: "hosts: no helper", Between: "a and b", Next: "start it", Err: chain}, "isthmus: hosts: no helper\n  between: a and b\n  next:    start it\n"},
		{Failure{Cause: "hosts: no helper", Next: "start it", Err: chain, Verbose: true}, "isthmus: hosts: no helper\n  next:    start it\n  because: session: read: reset\n"},
		{Failure{Cause: strings.Repeat("cause ", 20), Next: strings.Repeat("step ", 20)},
			"isthmus: " + strings.Repeat("cause ", 14) + "cause\n    " + strings.Repeat("cause ", 4) + "cause\n" +
				"  next:    " + strings.Repeat("step ", 17) + "step\n           step step\n"},
	} {
		var out strings.Builder
		report(&out, "isthmus", fmt.Errorf("wrapped: %w", &tc.f))
		if out.String() != tc.want {
			t.Errorf("got\n%swant\n%s", &out, tc.want)
		}
		if tc.f.Err != nil && !errors.Is(&tc.f, tc.f.Err) || tc.f.Error() != tc.f.Cause {
			t.Errorf("%+v hides its cause", tc.f)
		}
	}
	var out strings.Builder
	(&Failure{Cause: strings.Repeat("cause ", 200), Between: "a and b", Next: "start it"}).Print(&out, "isthmus")
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != maxLines || lines[3] != "    ... (-v shows more)" || lines[5] != "  next:    start it" {
		t.Errorf("%q", lines)
	}

	t.Setenv("COLUMNS", "") // in a log
	out.Reset()
	(&Failure{Cause: strings.Repeat("cause ", 200), Next: "start it"}).Print(&out, "isthmus")
	if n := strings.Count(out.String(), "\n"); n != 2 {
		t.Errorf("%d lines in a log:\n%s", n, &out)
	}
}

// An error that another host worded controls no terminal, and no line of it looks like one of the program's.
func TestErrorsOfOthers(t *testing.T) {
	hostile := errors.New("node b/n1: \x1b[2J\x1b]0;t\x07\xff\r\nisthmus: all is well")
	for _, tc := range []struct {
		err  error
		want string
	}{
		{hostile, `isthmus: node b/n1: \x1b[2J\x1b]0;t\a\xff\r` + "\n    isthmus: all is well\n"},
		{&Failure{Cause: hostile.Error(), Next: "look\x1b", Err: hostile, Verbose: true},
			`isthmus: node b/n1: \x1b[2J\x1b]0;t\a\xff isthmus: all is well` + "\n" + `  next:    look\x1b` + "\n" +
				`  because: node b/n1: \x1b[2J\x1b]0;t\a\xff\r` + "\n    isthmus: all is well\n"},
	} {
		var out strings.Builder
		report(&out, "isthmus", tc.err)
		if out.String() != tc.want {
			t.Errorf("got\n%swant\n%s", &out, tc.want)
		}
	}
}

// Whatever a command writes, its output holds nothing that a terminal obeys, and JSON remains as it is.
func TestOutputOfOthers(t *testing.T) {
	var b strings.Builder
	out := &output{w: printable.Writer{W: &b}}
	fmt.Fprint(out, "a\x1b[2J\u009b2J é", "\xc3")
	fmt.Fprint(out, "\xa9\n\t{\"a\": \"\\u001b\"}\xc3")
	if err := out.end(); err != nil || b.String() != `a\x1b[2J\u009b2J é`+"é\n\t{\"a\": \"\\u001b\"}"+`\xc3` {
		t.Errorf("%q, %v", b.String(), err)
	}
}
