// Package cmdline is what the command lines of isthmus and isthmus-lab have in common:
// every mistake is reported in one line and ends the process with status 2, every failure says
// in a few what to do next, shells complete
// their words, and each prints a manual page of itself. It knows no other command and
// keeps no state.
package cmdline

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/printable"
)

// Usage is a mistake on the command line: exit status 2.
func Usage(text string) error { return cli.Exit(text, 2) }

// Words returns Usage unless the command was given exactly the words that its
// ArgsUsage names.
func Words(c *cli.Context, what string, n int) error {
	if c.NArg() == n {
		return nil
	}
	for _, word := range c.Args().Slice() {
		if len(word) > 1 && word[0] == '-' {
			return Usage(fmt.Sprintf("%s: flags come before other words: put %s in front of %s", what, word, c.Args().First()))
		}
	}
	if n == 0 {
		return Usage(fmt.Sprintf("%s: %q is not expected here; see --help", what, c.Args().First()))
	}
	return Usage(fmt.Sprintf("%s: want %s", what, c.Command.ArgsUsage))
}

// Counts returns Usage unless each of the flags is a number of 1 or more.
func Counts(c *cli.Context, what string, flags ...string) error {
	for _, name := range flags {
		if n := c.Int(name); n < 1 {
			return Usage(fmt.Sprintf("%s: --%s %d: want 1 or more", what, name, n))
		}
	}
	return nil
}

// Strict sees to it that every mistake on the command line is reported in one
// line and ends with status 2, for commands and those below them. The library
// would print a page of help first, and end unknown commands with status 3.
func Strict(path string, commands []*cli.Command) {
	for _, c := range commands {
		name := strings.TrimSpace(path + " " + c.Name)
		c.HideHelpCommand = true // or the program of "run -n 1 help" would be a page of help
		for _, f := range c.Flags {
			if f, ok := f.(*cli.StringSliceFlag); ok {
				f.KeepSpace = true // else spaces around a value would be dropped
			}
		}
		if c.OnUsageError == nil {
			c.OnUsageError = badFlags(name)
		}
		switch action := c.Action; {
		case len(c.Subcommands) > 0:
			c.Action = wantCommand(name)
			Strict(name, c.Subcommands)
		case c.ArgsUsage == "" && c.Category == "" && !c.SkipFlagParsing:
			c.Action = func(ctx *cli.Context) error {
				if err := Words(ctx, name, 0); err != nil {
					return err
				}
				return action(ctx)
			}
		}
	}
}

func badFlags(name string) cli.OnUsageErrorFunc {
	return func(c *cli.Context, err error, _ bool) error {
		text, unknown := daemon.UnknownFlag(err, c.Command.VisibleFlags())
		if !unknown {
			text = err.Error()
		}
		return Usage(strings.TrimPrefix(name+": "+text+" (--help lists the flags)", ": "))
	}
}

// wantCommand is the action of a command that only groups others.
func wantCommand(name string) cli.ActionFunc {
	return func(c *cli.Context) error {
		if c.NArg() == 0 {
			return cli.ShowSubcommandHelp(c)
		}
		word := c.Args().First()
		var known []string
		for _, other := range c.Command.VisibleCommands() {
			known = append(known, other.Name)
		}
		text := fmt.Sprintf("unknown command %q%s (--help lists them)", word, daemon.DidYouMean(word, "", known))
		return Usage(strings.TrimPrefix(name+": "+text, ": "))
	}
}

// Run runs a program by the words that it was started with, and returns its exit
// status.
func Run(app *cli.App) int {
	if asksForEnd(os.Args) {
		return 0
	}
	app.EnableBashCompletion = os.Getenv(completeKey) != ""
	app.Commands = append(app.Commands, completionCommand(app.Name), manCommand(app.Name), versionCommand())
	app.Version, app.HideHelpCommand = daemon.Version(app.Name), true
	cli.VersionFlag = &cli.BoolFlag{Name: "version", Usage: "print the version", DisableDefaultText: true}
	cli.VersionPrinter = func(c *cli.Context) { fmt.Fprintln(c.App.Writer, c.App.Version) }
	cli.HelpPrinter = printHelp
	app.Action, app.OnUsageError = wantCommand(""), badFlags("")
	app.ExitErrHandler = func(*cli.Context, error) {} // exit reports it, once
	Strict("", app.Commands)
	out := &output{w: printable.Writer{W: os.Stdout}}
	app.Writer = out
	err := app.Run(os.Args)
	if lost := out.end(); err == nil && lost != nil {
		err = &Failure{Cause: "standard output: " + lost.Error(), Next: "df -h shows which disk is full; the output is not complete"}
	}
	return exit(app.Name, err)
}

// output is standard output of a terminal that obeys no text of others, and keeps its first error: few
// commands look at it, and none may lose a key, a token or a table in silence.
type output struct {
	mu  sync.Mutex // guards the fields below
	w   printable.Writer
	err error
}

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, err := o.w.Write(b)
	o.err = cmp.Or(o.err, err)
	return n, err
}

// writeAsIs writes text of this program, whose escape sequences are meant.
func (o *output) writeAsIs(text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	flushed := o.w.Flush()
	_, err := io.WriteString(o.w.W, text)
	o.err = cmp.Or(o.err, flushed, err)
}

// end writes what is left, and returns the first error.
func (o *output) end() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return cmp.Or(o.err, o.w.Flush())
}

// exit reports an error once, if it has anything to say, and returns the
// process's status.
func exit(program string, err error) int {
	text, status := Outcome(err)
	if text != "" {
		report(os.Stderr, program, err)
	}
	return status
}

// Outcome returns what a process has to say of the error of its command, and
// its exit status: that of the error, or 1.
func Outcome(err error) (text string, status int) {
	if err == nil {
		return "", 0
	}
	text = err.Error()
	if f, ok := errors.AsType[*Failure](err); ok {
		text += "; next: " + f.Next
	}
	var coder cli.ExitCoder
	if errors.As(err, &coder) {
		return text, coder.ExitCode()
	}
	return text, 1
}
