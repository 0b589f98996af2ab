package main

import (
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/bench/setup"
	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
)

// benchSetupCommand is "isthmus-lab bench setup": the set-up time of links.
func benchSetupCommand() *cli.Command {
	return &cli.Command{
		Name:  "setup",
		Usage: "measure how long a link takes to set up, for each technique, in round trips",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object per figure"},
			&cli.IntFlag{Name: "repeat", Value: 20, Usage: "set each link up `N` times"},
			&cli.DurationFlag{Name: "rtt", Value: 10 * time.Millisecond, Usage: "round-trip time between any two places"},
		},
		Action: func(c *cli.Context) error {
			if err := cmdline.Counts(c, "bench setup", "repeat"); err != nil {
				return err
			}
			// Results are in round trips, so the round trip must not be zero.
			if err := roundTrip(c, "bench setup", time.Microsecond); err != nil {
				return err
			}
			program, err := enter()
			if err != nil {
				return err
			}
			return setup.Run(c.Context, setup.Options{
				RTT: c.Duration("rtt"), Repeat: c.Int("repeat"), JSON: c.Bool("json"),
				Binary: suite(program),
				Out:    c.App.Writer, Err: os.Stderr,
			})
		},
	}
}
