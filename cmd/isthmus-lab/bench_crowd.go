package main

import (
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/bench/crowd"
	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
)

// benchCrowdCommand is "isthmus-lab bench crowd": many ranks that dial at once.
func benchCrowdCommand() *cli.Command {
	o := crowd.Options{Err: os.Stderr}
	return &cli.Command{
		Name:  "crowd",
		Usage: "have all ranks of one site dial those of another at once; measure the time and count the requests to the broker",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object per figure", Destination: &o.JSON},
			&cli.StringFlag{Name: "from", Usage: "`KIND` of the site that dials", Value: "stateful", Destination: &o.From},
			&cli.StringFlag{Name: "to", Usage: "`KIND` of the site that is dialled", Value: "nat", Destination: &o.To},
			&cli.IntFlag{Name: "ranks", Usage: "`N` ranks at each site", Value: 100, Destination: &o.Ranks},
			&cli.IntFlag{Name: "nodes", Usage: "on `N` nodes of each site", Value: 4, Destination: &o.Nodes},
			&cli.DurationFlag{Name: "rtt", Usage: "round-trip time between any two places", Value: 10 * time.Millisecond, Destination: &o.RTT},
		},
		Action: func(c *cli.Context) error {
			if err := o.Check(); err != nil {
				return cmdline.Usage("bench crowd: " + err.Error())
			}
			if err := roundTrip(c, "bench crowd", 0); err != nil {
				return err
			}
			program, err := enter()
			if err != nil {
				return err
			}
			o.Binary = suite(program)
			o.Out = c.App.Writer
			return crowd.Run(c.Context, o)
		},
	}
}
