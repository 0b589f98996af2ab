package main

import (
	"os"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/bench/relay"
	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
)

// benchRelayCommand is "isthmus-lab bench relay": the cost of a relay.
func benchRelayCommand() *cli.Command {
	var part string
	var o relay.Options
	return &cli.Command{
		Name:  "relay",
		Usage: "measure throughput and latency through a proxy against direct TCP",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object per figure", Destination: &o.JSON},
			&cli.IntFlag{Name: "repeat", Usage: "measure each comparison `N` times", Value: 7, Destination: &o.Repeat},
			&cli.StringFlag{Name: "part", Hidden: true, Destination: &part},
		},
		Action: func(c *cli.Context) error {
			if part != "" {
				return relay.Part(c.Context, part, os.Stdin, os.Stdout)
			}
			if err := cmdline.Counts(c, "bench relay", "repeat"); err != nil {
				return err
			}
			o.Self = []string{"/proc/self/exe", "bench", "relay", "--part"}
			return relay.Run(c.Context, c.App.Writer, o)
		},
	}
}
