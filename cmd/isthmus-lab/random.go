package main

import (
	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/lab/randomnet"
)

// randomCommand is "isthmus-lab random": randomly composed networks.
func randomCommand() *cli.Command {
	return &cli.Command{
		Name:  "random",
		Usage: "compose random networks of all kinds of site, path and fault, and run a job across each that checks every byte",
		Flags: []cli.Flag{
			&cli.Uint64Flag{Name: "seed", Value: 1, Usage: "`NUMBER` of the first network; the same number is always the same network"},
			&cli.Uint64Flag{Name: "count", Value: 10, Usage: "`HOW-MANY` networks"},
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object per network"},
		},
		Action: func(c *cli.Context) error {
			if err := cmdline.Words(c, "random", 0); err != nil {
				return err
			}
			program, err := enter()
			if err != nil {
				return err
			}
			return randomnet.Run(c.Context, randomnet.Options{
				First: c.Uint64("seed"), Count: c.Uint64("count"), JSON: c.Bool("json"), Program: program, Out: c.App.Writer,
			})
		},
	}
}
