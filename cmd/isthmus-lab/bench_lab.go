package main

import (
	"github.com/isthmus-grid/isthmus/bench/emulator"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/urfave/cli/v2"
)

// benchLabCommand is "isthmus-lab bench lab": the accuracy and capacity of the lab's WAN emulator
// on this machine.
func benchLabCommand() *cli.Command {
	return &cli.Command{
		Name:  "lab",
		Usage: "measure how precisely the lab's WAN emulator keeps delay, jitter, loss and rate, and its capacity (about two minutes)",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object per figure"},
		},
		Action: func(c *cli.Context) error {
			if err := lab.Enter(); err != nil {
				return err
			}
			return emulator.Run(c.Context, c.App.Writer, c.Bool("json"))
		},
	}
}
