package main

import (
	"fmt"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/cmd/internal/stripebench"
	"github.com/isthmus-grid/isthmus/internal/lab"
)

// benchStripeCommand is "isthmus bench stripe": what a link gains from several
// carriers.
func benchStripeCommand() *cli.Command {
	return &cli.Command{
		Name:  "stripe",
		Usage: "measure what a link over several carriers gains on a long, lossy path and by two proxies (about twenty minutes)",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object per figure"},
			&cli.IntFlag{Name: "repeat", Value: 5, Usage: "measure each figure `N` times, in turn"},
			&cli.DurationFlag{Name: "rtt", Value: 50 * time.Millisecond, Usage: "round-trip time"},
			&cli.Float64Flag{Name: "loss", Value: 0.0001, Usage: "`PART` of the packets that the path loses"},
			&cli.StringFlag{Name: "only", Usage: "measure only over a `path`, or only by proxies"},
		},
		Action: func(c *cli.Context) error {
			if err := counts(c, "bench stripe", "repeat"); err != nil {
				return err
			}
			if err := roundTrip(c, "bench stripe", time.Millisecond); err != nil {
				return err
			}
			if loss := c.Float64("loss"); loss < 0 || loss >= 1 {
				return usage(fmt.Sprintf("bench stripe: --loss %v: want 0 or more and less than 1", loss))
			}
			if only := c.String("only"); only != "" && only != "path" && only != "proxies" {
				return usage(fmt.Sprintf("bench stripe: --only %s: want path or proxies", only))
			}
			if err := lab.Enter(); err != nil {
				return err
			}
			program, err := self()
			if err != nil {
				return err
			}
			return stripebench.Run(c.Context, stripebench.Options{
				Repeat: c.Int("repeat"), RTT: c.Duration("rtt"), Loss: c.Float64("loss"), Rate: 1e9, Proxy: 1e8,
				Scene: c.String("only"), JSON: c.Bool("json"),
				Binary: func(daemon string) []string { return program(daemon) },
				Out:    c.App.Writer, Err: os.Stderr,
			})
		},
	}
}
