package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/bench/coll"
	"github.com/isthmus-grid/isthmus/bench/plot"
	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
)

// benchLearnCommand is "isthmus-lab bench learn": corrections of predictions from measurements.
func benchLearnCommand() *cli.Command {
	return &cli.Command{
		Name:      "learn",
		Usage:     "print the prediction errors found by bench coll --algorithms --json: a file for ISTHMUS_COLL_LEARNED",
		ArgsUsage: "FILE...",
		Action: func(c *cli.Context) error {
			if c.NArg() == 0 {
				return cmdline.Usage("bench learn: name an output file of bench coll --algorithms --json")
			}
			rows, err := plot.ReadFiles(c.Args().Slice())
			if err == nil {
				err = coll.Learn(rows, c.App.Writer)
			}
			if err != nil {
				return fmt.Errorf("bench learn: %w", err)
			}
			return nil
		},
	}
}
