package main

import (
	"os"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/lab/rawcap"
)

// unprivilegedCommand is how the lab's matrix starts daemons without
// CAP_NET_RAW: this same program with the words that follow. Nobody else needs it.
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
