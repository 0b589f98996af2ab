package main

import (
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/bench/scale"
	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
)

// benchScaleCommand is "isthmus-lab bench scale": the capacity of a proxy and a frontal.
func benchScaleCommand() *cli.Command {
	o := scale.Options{Err: os.Stderr}
	var part, rate string
	return &cli.Command{
		Name:  "scale",
		Usage: "load a proxy with links that share its rate, and a frontal with helpers and processes; measure fairness, memory, descriptors",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object per figure", Destination: &o.JSON},
			&cli.IntFlag{Name: "links", Usage: "`N` links through the proxy; 0 leaves it out", Value: 2000, Destination: &o.Links},
			&cli.StringFlag{Name: "rate", Usage: "`RATE` of the proxy, which the links share", Value: "400Mbit/s", Destination: &rate},
			&cli.DurationFlag{Name: "for", Usage: "how long to count the bytes they move", Value: 10 * time.Second, Destination: &o.For},
			&cli.IntFlag{Name: "helpers", Usage: "`N` helpers of the frontal; 0 leaves it out", Value: 1000, Destination: &o.Helpers},
			&cli.IntFlag{Name: "processes", Usage: "`N` processes of all helpers together", Value: 10000, Destination: &o.Processes},
			&cli.StringFlag{Name: "part", Hidden: true, Destination: &part},
		},
		Action: func(c *cli.Context) error {
			if part != "" {
				return scale.Part(c.Context, part, os.Stdin, os.Stdout)
			}
			if err := o.Rate.UnmarshalText([]byte(rate)); err != nil {
				return cmdline.Usage("bench scale: --rate: " + err.Error())
			}
			if err := o.Check(); err != nil {
				return cmdline.Usage("bench scale: " + err.Error())
			}
			o.Self = []string{"/proc/self/exe", "bench", "scale", "--part"}
			o.Out = c.App.Writer
			return scale.Run(c.Context, o)
		},
	}
}
