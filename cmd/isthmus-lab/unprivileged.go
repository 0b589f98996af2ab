package main

import (
	"os"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/lab/rawcap"
)

// unprivilegedCommand starts daemons without CAP_NET_RAW for the lab's matrix: this same program
// with the arguments that follow. It is for the matrix only.
func unprivilegedCommand() *cli.Command {
	return &cli.Command{
		Name:            "unprivileged",
		Usage:           "run another command of this program without CAP_NET_RAW",
		ArgsUsage:       "COMMAND [ARGUMENT...]",
		Hidden:          true,
		SkipFlagParsing: true,
		Action: func(c *cli.Context) error {
			program, err := self()
			if err != nil {
				return err
			}
			return rawcap.Exec(program(c.Args().Slice()...), os.Environ())
		},
	}
}
