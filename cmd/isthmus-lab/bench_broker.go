package main

import (
	"os"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/bench/broker"
	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
)

// benchBrokerCommand is "isthmus-lab bench broker": the throughput of a broker on one core.
func benchBrokerCommand() *cli.Command {
	var o broker.Options
	return &cli.Command{
		Name:  "broker",
		Usage: "measure requests answered on one core, and memory per registered process",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object per figure", Destination: &o.JSON},
			&cli.IntFlag{Name: "repeat", Usage: "measure each rate `N` times", Value: 5, Destination: &o.Repeat},
			&cli.IntFlag{Name: "sites", Usage: "number of sites, each with a frontal", Value: 50, Destination: &o.Sites},
			&cli.IntFlag{Name: "processes", Usage: "number of registered processes", Value: 10_000, Destination: &o.Processes},
		},
		Action: func(c *cli.Context) error {
			if err := cmdline.Counts(c, "bench broker", "repeat", "sites", "processes"); err != nil {
				return err
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			o.Broker = []string{self, suiteName, "broker"}
			return broker.Run(c.Context, c.App.Writer, o)
		},
	}
}
