package main

import (
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/bench/apps"
	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
)

// bedFlags are the flags of both applications' benchmarks.
func bedFlags(b *apps.Bed, preset string) []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "json", Usage: "print one JSON object per figure", Destination: &b.JSON},
		&cli.DurationFlag{Name: "rtt", Usage: "round-trip time between the sites", Value: 20 * time.Millisecond, Destination: &b.RTT},
		&cli.StringFlag{Name: "preset", Usage: "`FIREWALL` of the sites, as for isthmus-lab up", Value: preset, Destination: &b.Preset},
	}
}

// bedAction checks the flags, enters the lab and runs a sweep.
func bedAction(name string, b *apps.Bed, check func(*cli.Context) error, run func(*cli.Context) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		if err := check(c); err != nil {
			return cmdline.Usage(name + ": " + err.Error())
		}
		if err := roundTrip(c, name, 0); err != nil {
			return err
		}
		program, err := enter()
		if err != nil {
			return err
		}
		b.Self, b.Out, b.Err = program(), c.App.Writer, os.Stderr
		return run(c)
	}
}

// benchTSQRCommand is "isthmus-lab bench tsqr".
func benchTSQRCommand() *cli.Command {
	s := new(apps.TSQR)
	return &cli.Command{
		Name:  "tsqr",
		Usage: "factor tall matrices on one to four closed sites: by a tree with one inter-site message per site, and column by column (about five minutes)",
		Flags: append(bedFlags(&s.Bed, "stateful"),
			&cli.IntSliceFlag{Name: "sites", Usage: "`NUMBERS` of sites", Value: cli.NewIntSlice(1, 2, 4)},
			&cli.IntFlag{Name: "ranks", Usage: "`NUMBER` of ranks in each site", Value: 1, Destination: &s.RanksPerSite},
			&cli.IntFlag{Name: "cols", Usage: "`NUMBER` of columns", Value: 64, Destination: &s.Cols},
			&cli.IntFlag{Name: "least", Usage: "`NUMBER` of rows of the smallest matrix", Value: 256, Destination: &s.Least},
			&cli.IntFlag{Name: "most", Usage: "`NUMBER` of rows of the largest matrix; each has twice the rows of the one before", Value: 65536, Destination: &s.Most},
			&cli.Float64Flag{Name: "mflops", Usage: "emulated `SPEED` of each rank's processor, in million operations a second", Value: 80, Destination: &s.Mflops},
			&cli.IntFlag{Name: "repeat", Usage: "factor each matrix `N` times", Value: 1, Destination: &s.Repeat},
		),
		Action: bedAction("bench tsqr", &s.Bed, func(c *cli.Context) error {
			s.Sites = c.IntSlice("sites")
			return s.Check()
		}, func(c *cli.Context) error { return s.Run(c.Context) }),
	}
}

// benchRay2meshCommand is "isthmus-lab bench ray2mesh".
func benchRay2meshCommand() *cli.Command {
	s := new(apps.Ray2mesh)
	return &cli.Command{
		Name:  "ray2mesh",
		Usage: "trace rays on three sites, distributed by one master, and by a boss in each site (about five minutes)",
		// With 51 processes there are a thousand links; if each is a race of techniques, starting
		// takes longer than the measurement.
		Flags: append(bedFlags(&s.Bed, "port-range"),
			&cli.IntFlag{Name: "sites", Usage: "`NUMBER` of sites", Value: 3, Destination: &s.Sites},
			&cli.IntSliceFlag{Name: "processes", Usage: "`NUMBERS` of processes", Value: cli.NewIntSlice(12, 18, 24, 30, 36, 48)},
			&cli.IntFlag{Name: "rays", Usage: "`NUMBER` of rays", Value: 2000, Destination: &s.Rays},
			&cli.IntFlag{Name: "chunk", Usage: "`RAYS` in one chunk of work", Value: 2, Destination: &s.Chunk},
			&cli.IntFlag{Name: "credit", Usage: "maximum number of `CHUNKS` per worker: with 2, one is in transit while the worker traces the other", Value: 1, Destination: &s.Credit},
			&cli.Float64Flag{Name: "speed", Usage: "emulated speed of each processor, in `RAYS` a second", Value: 20, Destination: &s.Speed},
			&cli.Float64Flag{Name: "handling", Usage: "`RAYS` that a processor could trace in the time it takes to hand out a chunk", Value: 0.02, Destination: &s.Handling},
			&cli.IntFlag{Name: "repeat", Usage: "run each `N` times", Value: 1, Destination: &s.Repeat},
		),
		Action: bedAction("bench ray2mesh", &s.Bed, func(c *cli.Context) error {
			s.Processes = c.IntSlice("processes")
			return s.Check()
		}, func(c *cli.Context) error { return s.Run(c.Context) }),
	}
}
