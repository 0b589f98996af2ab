package main

import (
	"slices"
	"strings"

	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/urfave/cli/v2"
)

// presets lists the kinds of firewall, a few per line.
func presets() string {
	var text strings.Builder
	plain := slices.DeleteFunc(lab.Presets(), func(name string) bool { return strings.HasPrefix(name, "no-route/") })
	for i, name := range slices.Concat(plain, lab.Unforeseen()) {
		switch {
		case i%8 == 7:
			text.WriteString(",\n")
		case i > 0:
			text.WriteString(", ")
		}
		text.WriteString(name)
	}
	return text.String()
}

// upCommand is "isthmus-lab up": sites with firewalls on this machine, from a file.
func upCommand() *cli.Command {
	return &cli.Command{
		Name:      "up",
		Usage:     "build the sites of FILE and stay until Ctrl-C",
		ArgsUsage: "FILE",
		Action: func(c *cli.Context) error {
			if err := cmdline.Words(c, "up", 1); err != nil {
				return err
			}
			return lab.Stay(c.Context, c.Args().First(), c.App.Writer)
		},
	}
}

// runCommand is "isthmus-lab run": one command on such sites.
func runCommand() *cli.Command {
	return &cli.Command{
		Name:      "run",
		Usage:     "build the sites of FILE, run a command on one host, and exit with its status",
		ArgsUsage: "FILE [--at SITE/HOST] -- COMMAND [ARGUMENT...]",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "at", Usage: "the `SITE/HOST` to run on (default: the first node of the first site)"},
		},
		Action: func(c *cli.Context) error {
			file, at, argv, err := lab.RunArgs(c.String("at"), c.Args().Slice())
			if err != nil {
				return cmdline.Usage(err.Error())
			}
			status, err := lab.RunAt(c.Context, file, at, argv)
			if err != nil {
				return cli.Exit("run: "+err.Error(), status)
			}
			return cli.Exit("", status)
		},
	}
}
