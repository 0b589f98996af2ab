package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
)

// killCommand is "isthmus kill": the end of a job.
func killCommand() *cli.Command {
	return &cli.Command{
		Name:        "kill",
		Usage:       "end a job on all its hosts",
		Description: "JOB is its id, as isthmus ps shows it, or a prefix of it. The user who submitted a job may end it; on a node, root and the helper's user may too.",
		ArgsUsage:   "JOB",
		Flags:       []cli.Flag{helperFlag()},
		Action: func(c *cli.Context) error {
			if err := cmdline.Words(c, "kill", 1); err != nil {
				return err
			}
			grid, err := gridOf(c)
			if err != nil {
				return err
			}
			defer grid.Close()
			id, ended, err := grid.Kill(c.Context, c.Args().First())
			if id != "" {
				fmt.Fprintf(c.App.Writer, "%s was ended on %d hosts\n", id, ended)
			}
			if err != nil {
				return fmt.Errorf("kill: %w", err)
			}
			return nil
		},
	}
}
