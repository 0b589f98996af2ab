package main

import (
	"slices"
	"strings"

	"github.com/isthmus-grid/isthmus/lab"
	"github.com/urfave/cli/v2"
)

// labCommand is "isthmus lab": sites with firewalls on this machine, from a file.
func labCommand() *cli.Command {
	return &cli.Command{
		Name:  "lab",
		Usage: "build sites with their firewalls on this machine, to rehearse with",
		Description: "FILE is YAML:\n\n" + `  wan: {rtt: 10ms, loss: 0.1%, rate: 1Gbit}
  sites:
    - {name: alpha, preset: stateful, nodes: 2}
    - {name: beta, preset: no-route/egress-443, nodes: [login, c1]}
    - {name: pub, preset: public, nodes: [broker, proxy]}

A preset is the kind of firewall: ` + presets() + `. With
no-route/ in front, nodes have no route out but their gateway has. Public hosts have no firewall: public.`,
		Subcommands: []*cli.Command{labUpCommand(), labRunCommand(), labMatrixCommand(), labBreakCommand(), labBreakEndCommand(), labRandomCommand(), labUnprivilegedCommand(), labHelpersCommand()},
	}
}

// presets lists the kinds of firewall, a few to a line.
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

func labUpCommand() *cli.Command {
	return &cli.Command{
		Name:      "up",
		Usage:     "build the sites of FILE and stay until Ctrl-C",
		ArgsUsage: "FILE",
		Action: func(c *cli.Context) error {
			if err := words(c, "lab up", 1); err != nil {
				return err
			}
			return lab.Stay(c.Context, c.Args().First(), c.App.Writer)
		},
	}
}

func labRunCommand() *cli.Command {
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
				return usage(err.Error())
			}
			status, err := lab.RunAt(c.Context, file, at, argv)
			if err != nil {
				return cli.Exit("lab run: "+err.Error(), status)
			}
			return cli.Exit("", status)
		},
	}
}
