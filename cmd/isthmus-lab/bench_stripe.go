package main

import (
	"fmt"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/bench/stripe"
	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
)

// benchStripeCommand is "isthmus-lab bench stripe": what a link gains from several
// carriers.
func benchStripeCommand() *cli.Command {
	return &cli.Command{
		Name:  "stripe",
		Usage: "measure what a link gains from several carriers on a long, lossy path and through two proxies (about twenty minutes)",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object per figure"},
			&cli.IntFlag{Name: "repeat", Value: 5, Usage: "measure each figure `N` times, in turn"},
			&cli.DurationFlag{Name: "rtt", Value: 50 * time.Millisecond, Usage: "round-trip time (default 200ms with --only lossy)"},
			&cli.Float64Flag{Name: "loss", Value: 0.0001, Usage: "`FRACTION` of the packets that the path loses (default 0.01 with --only lossy)"},
			&cli.StringFlag{Name: "only", Usage: "measure only a `path`, only \"proxies\", or, against TCP, a long \"lossy\" path: direct, relayed, with eight carriers and after a move"},
			&cli.IntFlag{Name: "rate", Usage: "with --only path or lossy: `MBIT` a second that the path carries (1000; lossy: 100 and 1000)"},
			&cli.StringFlag{Name: "control", Usage: "with --only lossy: only this congestion `CONTROL`, cubic or bbr"},
		},
		Action: func(c *cli.Context) error {
			if err := cmdline.Counts(c, "bench stripe", "repeat"); err != nil {
				return err
			}
			if err := roundTrip(c, "bench stripe", time.Millisecond); err != nil {
				return err
			}
			if loss := c.Float64("loss"); loss < 0 || loss >= 1 {
				return cmdline.Usage(fmt.Sprintf("bench stripe: --loss %v: want 0 or more and less than 1", loss))
			}
			only := c.String("only")
			if only != "" && only != "path" && only != "proxies" && only != "lossy" {
				return cmdline.Usage(fmt.Sprintf("bench stripe: --only %s: want path, proxies or lossy", only))
			}
			rtt, loss := c.Duration("rtt"), c.Float64("loss")
			if only == "lossy" && !c.IsSet("rtt") {
				rtt = 200 * time.Millisecond
			}
			if only == "lossy" && !c.IsSet("loss") {
				loss = 0.01
			}
			if c.Int("rate") < 0 {
				return cmdline.Usage(fmt.Sprintf("bench stripe: --rate %d: want a number of Mbit/s", c.Int("rate")))
			}
			program, err := enter()
			if err != nil {
				return err
			}
			return stripe.Run(c.Context, stripe.Options{
				Repeat: c.Int("repeat"), RTT: rtt, Loss: loss, Rate: int64(c.Int("rate")) * 1e6, Proxy: 1e8,
				Scenario: only, Control: c.String("control"), JSON: c.Bool("json"),
				Binary: suite(program),
				Out:    c.App.Writer, Err: os.Stderr,
			})
		},
	}
}
