package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
)

// usage is a mistake on the command line: exit status 2.
func usage(text string) error { return cli.Exit(text, 2) }

// words returns usage unless the command was given exactly the words that its
// ArgsUsage names.
func words(c *cli.Context, what string, n int) error {
	if c.NArg() == n {
		return nil
	}
	for _, word := range c.Args().Slice() {
		if len(word) > 1 && word[0] == '-' {
			return usage(fmt.Sprintf("%s: flags come before other words: put %s in front of %s", what, word, c.Args().First()))
		}
	}
	if n == 0 {
		return usage(fmt.Sprintf("%s: %q is not expected here; see --help", what, c.Args().First()))
	}
	return usage(fmt.Sprintf("%s: want %s", what, c.Command.ArgsUsage))
}

// counts returns usage unless each of the flags is a number of 1 or more.
func counts(c *cli.Context, what string, flags ...string) error {
	for _, name := range flags {
		if n := c.Int(name); n < 1 {
			return usage(fmt.Sprintf("%s: --%s %d: want 1 or more", what, name, n))
		}
	}
	return nil
}

// roundTrip returns usage unless --rtt is least or more.
func roundTrip(c *cli.Context, what string, least time.Duration) error {
	if rtt := c.Duration("rtt"); rtt < least {
		return usage(fmt.Sprintf("%s: --rtt %v: want %v or more", what, rtt, least))
	}
	return nil
}

// strict sees to it that every mistake on the command line is told in one
// line and ends with status 2, for commands and those below them. The library
// would print a page of help first, and end unknown commands with status 3.
func strict(path string, commands []*cli.Command) {
	for _, c := range commands {
		name := strings.TrimSpace(path + " " + c.Name)
		c.HideHelpCommand = true // or the program of "run -n 1 help" would be a page of help
		if c.OnUsageError == nil {
			c.OnUsageError = badFlags(name)
		}
		switch action := c.Action; {
		case len(c.Subcommands) > 0:
			c.Action = wantCommand(name)
			strict(name, c.Subcommands)
		case c.ArgsUsage == "" && c.Category == "" && !c.SkipFlagParsing:
			c.Action = func(ctx *cli.Context) error {
				if err := words(ctx, name, 0); err != nil {
					return err
				}
				return action(ctx)
			}
		}
	}
}

func badFlags(name string) cli.OnUsageErrorFunc {
	return func(_ *cli.Context, err error, _ bool) error {
		text := strings.Replace(err.Error(), "flag provided but not defined: -", "unknown flag --", 1)
		return usage(strings.TrimPrefix(name+": "+text+" (--help lists the flags)", ": "))
	}
}

// wantCommand is the action of a command that only groups others.
func wantCommand(name string) cli.ActionFunc {
	return func(c *cli.Context) error {
		if c.NArg() == 0 {
			return cli.ShowSubcommandHelp(c)
		}
		text := fmt.Sprintf("unknown command %q (--help lists them)", c.Args().First())
		return usage(strings.TrimPrefix(name+": "+text, ": "))
	}
}

// exit reports an error once, if it has anything to say, and returns the
// process's status: that of the error, or 1.
func exit(err error) int {
	if err == nil {
		return 0
	}
	if text := err.Error(); text != "" {
		fmt.Fprintln(os.Stderr, "isthmus:", text)
	}
	var coder cli.ExitCoder
	if errors.As(err, &coder) {
		return coder.ExitCode()
	}
	return 1
}
