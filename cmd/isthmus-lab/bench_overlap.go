package main

import (
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/bench/overlap"
	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
)

// benchOverlapCommand is "isthmus-lab bench overlap": a send during a computation.
func benchOverlapCommand() *cli.Command {
	var part bool
	var o overlap.Options
	return &cli.Command{
		Name:  "overlap",
		Usage: "measure how much a computation slows down while a large message is sent to another site",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object per figure", Destination: &o.JSON},
			&cli.IntFlag{Name: "size", Usage: "`BYTES` of the message", Value: 16 << 20, Destination: &o.Size},
			&cli.DurationFlag{Name: "rtt", Usage: "round-trip time between the sites", Value: 10 * time.Millisecond, Destination: &o.RTT},
			&cli.IntFlag{Name: "repeat", Usage: "compute, send, and do both at once `N` times in turn", Value: 15, Destination: &o.Repeat},
			&cli.BoolFlag{Name: "part", Usage: "run one rank of the measurement", Destination: &part, Hidden: true},
		},
		Action: func(c *cli.Context) error {
			if err := o.Check(); err != nil {
				return cmdline.Usage("bench overlap: " + err.Error())
			}
			if part {
				return overlap.Part(c.Context, c.App.Writer, o.Size, o.Repeat)
			}
			if err := roundTrip(c, "bench overlap", 0); err != nil {
				return err
			}
			program, err := enter()
			if err != nil {
				return err
			}
			o.Self, o.Out = program(), c.App.Writer
			return overlap.Run(c.Context, o)
		},
	}
}
