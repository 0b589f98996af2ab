package cmdline

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/internal/printable"
)

// AnswerTime is how long a command waits until a daemon answers at all. What a daemon that answers
// is asked for may take longer.
const AnswerTime = 4 * time.Second

// quietTime is how long a command waits for something without saying so.
const quietTime = 2 * time.Second

// The form of what commands report.
const (
	maxColumns = 100
	maxLines   = 6
)

// A Failure is an error as commands report it: a line for the cause, one for the two that it lies
// between, and one for what to do.
type Failure struct {
	Cause   string // begins with the command's name
	Between string // "" if it is not between two
	Next    string // a command, or who is to change what
	Err     error  // the chain of causes, which is shown only with -v; may be nil
	Verbose bool   // -v was given
}

// Error implements error; it is the cause.
func (f *Failure) Error() string { return f.Cause }

// Unwrap returns the chain of causes.
func (f *Failure) Unwrap() error { return f.Err }

// Print writes the failure. For people it has at most 6 lines of 100 columns without the chain of
// causes; for a log or another program three lines, however long.
func (f *Failure) Print(w io.Writer, program string) {
	width := columns()
	lines := wrap(program+": ", f.Cause, width)
	rest := wrap("  next:    ", f.Next, width)
	if f.Between != "" {
		rest = append(wrap("  between: ", f.Between, width), rest...)
	}
	if room := maxLines - len(rest); len(lines) > room {
		lines = append(lines[:room-1], "    ... (-v shows more)")
	}
	for _, line := range append(lines, rest...) {
		fmt.Fprintln(w, printable.Line(line))
	}
	if f.Verbose && f.Err != nil {
		fmt.Fprintf(w, "  because: %s\n", indented(f.Err.Error()))
	}
}

// wrap breaks a text between its words. Lines after the first are indented, those of an indented
// prefix by its length.
func wrap(prefix, text string, width int) (lines []string) {
	line := prefix
	indent := "    "
	if strings.HasPrefix(prefix, "  ") {
		indent = strings.Repeat(" ", len(prefix))
	}
	empty := true
	for word := range strings.FieldsSeq(text) {
		if !empty && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line, empty = indent, true
		}
		if !empty {
			line += " "
		}
		line += word
		empty = false
	}
	return append(lines, line)
}

// columns returns how wide lines may be: as COLUMNS says, or as people read them on a terminal.
func columns() int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return min(n, maxColumns)
	}
	if info, err := os.Stderr.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		return maxColumns
	}
	return math.MaxInt
}

// report prints an error that ends a program.
func report(w io.Writer, program string, err error) {
	if f, ok := errors.AsType[*Failure](err); ok {
		f.Print(w, program)
		return
	}
	if text := err.Error(); text != "" {
		fmt.Fprintf(w, "%s: %s\n", program, indented(text))
	}
}

// indented returns a text of which no line but the first looks as if it were the program's: parts of it
// may come from other hosts.
func indented(text string) string {
	return strings.ReplaceAll(printable.Lines(strings.TrimSuffix(text, "\n")), "\n", "\n    ")
}

// VerboseFlag is for commands that report Failures.
func VerboseFlag() cli.Flag {
	return &cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "if the command fails, print the chain of causes, too"}
}

// noWaiting is set by NoWaiting.
var noWaiting atomic.Bool

// NoWaiting makes Waiting say nothing from now on, for a command that draws the terminal itself.
func NoWaiting() { noWaiting.Store(true) }

// Waiting has SayWaiting say what the command waits for, unless stop is called soon.
func Waiting(what, next string) (stop func()) {
	t := time.AfterFunc(quietTime, func() { SayWaiting(what, next) })
	return func() { t.Stop() }
}

// SayWaiting says in a line on standard error what the command waits for, and what shows why that takes
// long: no command leaves whoever waits without a cause and a next step for 5 s. next may be empty.
func SayWaiting(what, next string) {
	if noWaiting.Load() {
		return
	}
	if next != "" {
		next = "; next: " + next
	}
	fmt.Fprintf(os.Stderr, "isthmus: waiting for %s\n", printable.Line(what+next))
}
