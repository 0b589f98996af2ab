package main

import (
	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/bench/plot"
	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
)

// benchPlotCommand is "isthmus-lab bench plot": figures of measurements.
func benchPlotCommand() *cli.Command {
	return &cli.Command{
		Name:      "plot",
		Usage:     "plot the --json output of other benchmarks: a PNG file per figure, with a line for each implementation and algorithm",
		ArgsUsage: "FILE...",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "o", Usage: "`FOLDER` for the pictures, created if missing", Value: "."},
		},
		Action: func(c *cli.Context) error {
			if c.NArg() == 0 {
				return cmdline.Usage("bench plot: name an output file of a benchmark's --json")
			}
			return plot.Run(c.Args().Slice(), c.String("o"), c.App.Writer)
		},
	}
}
