package main

import (
	"fmt"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/bench/launch"
	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/lab"
)

// benchLaunchCommand is "isthmus-lab bench launch": jobs launched over many nodes.
func benchLaunchCommand() *cli.Command {
	return &cli.Command{
		Name:  "launch",
		Usage: "time jobs from the command until all ranks run, and count messages; or run the allocation experiment of P2P-MPI's paper on 350 live peers",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object per figure"},
			&cli.IntSliceFlag{Name: "n", Usage: "`N` ranks of a job; may be repeated", Value: cli.NewIntSlice(16, 64, 128)},
			&cli.IntFlag{Name: "repeat", Usage: "start each job `N` times", Value: 5},
			&cli.IntFlag{Name: "sites", Usage: "`N` closed sites", Value: 4},
			&cli.IntFlag{Name: "nodes", Usage: "`N` nodes of each", Value: 4},
			&cli.DurationFlag{Name: "rtt", Usage: "round-trip time between sites", Value: 10 * time.Millisecond},
			&cli.BoolFlag{Name: "grid5000", Usage: "instead of all that, run the paper's experiment: jobs of 100 to 600 processes at six sites, by both strategies, against the paper's algorithms"},
			&cli.IntFlag{Name: "scale", Usage: "with --grid5000: only every `K`-th peer, and jobs smaller by the same factor", Value: 1},
			&cli.IntSliceFlag{Name: "r", Usage: "with --grid5000: `N` copies of each rank; may be repeated", Value: cli.NewIntSlice(1)},
			&cli.StringFlag{Name: "o", Usage: "with --grid5000: `FOLDER` for two PNG files like the paper's Fig. 2 and 3"},
		},
		Action: func(c *cli.Context) error {
			program, err := self()
			if err != nil {
				return err
			}
			binary := func(daemon string) []string {
				if daemon == "helpers" {
					return program("helpers")
				}
				return suite(program)(daemon)
			}
			if c.Bool("grid5000") {
				return benchTable(c, binary)
			}
			o := launch.StartOptions{
				Ranks: c.IntSlice("n"), Repeat: c.Int("repeat"), Sites: c.Int("sites"), Nodes: c.Int("nodes"), RTT: c.Duration("rtt"),
				Binary: binary, JSON: c.Bool("json"), Out: c.App.Writer, Err: os.Stderr,
			}
			if err := o.Check(); err != nil {
				return cmdline.Usage("bench launch: " + err.Error())
			}
			if err := roundTrip(c, "bench launch", 0); err != nil {
				return err
			}
			if err := lab.Enter(); err != nil {
				return err
			}
			return launch.Start(c.Context, o)
		},
	}
}

func benchTable(c *cli.Context, binary func(string) []string) error {
	if k := c.Int("scale"); k < 1 || k > 10 {
		return cmdline.Usage(fmt.Sprintf("bench launch: --scale %d: want 1 to 10", k))
	}
	sizes := launch.TableSizes
	if c.IsSet("n") {
		sizes = c.IntSlice("n")
	}
	for _, r := range c.IntSlice("r") {
		if r < 1 || r > 10 {
			return cmdline.Usage(fmt.Sprintf("bench launch: -r %d: want 1 to 10", r))
		}
	}
	if err := lab.Enter(); err != nil {
		return err
	}
	return launch.Table(c.Context, launch.TableOptions{
		Sizes: sizes, Copies: c.IntSlice("r"), Scale: c.Int("scale"), Figures: c.String("o"), Binary: binary,
		JSON: c.Bool("json"), Out: c.App.Writer, Err: os.Stderr,
	})
}
