package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/bench/apps"
	"github.com/isthmus-grid/isthmus/bench/crowd"
	"github.com/isthmus-grid/isthmus/bench/emulator"
	"github.com/isthmus-grid/isthmus/bench/launch"
	"github.com/isthmus-grid/isthmus/bench/overlap"
	"github.com/isthmus-grid/isthmus/bench/setup"
	"github.com/isthmus-grid/isthmus/bench/stripe"
	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/lab"
)

// benchSetupCommand is "isthmus-lab bench setup": the set-up time of links.
func benchSetupCommand() *cli.Command {
	return &cli.Command{
		Name:  "setup",
		Usage: "measure how long a link takes to set up, for each technique, in round trips",
		Flags: []cli.Flag{
			jsonFlag(nil),
			&cli.IntFlag{Name: "repeat", Value: 20, Usage: "set each link up `N` times"},
			&cli.DurationFlag{Name: "rtt", Value: 10 * time.Millisecond, Usage: "round-trip time between any two places"},
		},
		Action: func(c *cli.Context) error {
			if err := cmdline.Counts(c, "bench setup", "repeat"); err != nil {
				return err
			}
			// Results are in round trips, so the round trip must not be zero.
			program, err := enterFor(c, time.Microsecond)
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

// benchCrowdCommand is "isthmus-lab bench crowd": many ranks that dial at once.
func benchCrowdCommand() *cli.Command {
	o := crowd.Options{Err: os.Stderr}
	return &cli.Command{
		Name:  "crowd",
		Usage: "have all ranks of one site dial those of another at once; measure the time and count the requests to the broker",
		Flags: []cli.Flag{
			jsonFlag(&o.JSON),
			&cli.StringFlag{Name: "from", Usage: "`KIND` of the site that dials", Value: "stateful", Destination: &o.From},
			&cli.StringFlag{Name: "to", Usage: "`KIND` of the site that is dialled", Value: "nat", Destination: &o.To},
			&cli.IntFlag{Name: "ranks", Usage: "`N` ranks at each site", Value: 100, Destination: &o.Ranks},
			&cli.IntFlag{Name: "nodes", Usage: "on `N` nodes of each site", Value: 4, Destination: &o.Nodes},
			&cli.DurationFlag{Name: "rtt", Usage: "round-trip time between any two places", Value: 10 * time.Millisecond, Destination: &o.RTT},
		},
		Action: func(c *cli.Context) error {
			if err := o.Check(); err != nil {
				return mistake(c, err)
			}
			program, err := enterFor(c, 0)
			if err != nil {
				return err
			}
			o.Binary = suite(program)
			o.Out = c.App.Writer
			return crowd.Run(c.Context, o)
		},
	}
}

// benchOverlapCommand is "isthmus-lab bench overlap": a send during a computation.
func benchOverlapCommand() *cli.Command {
	var part bool
	var o overlap.Options
	return &cli.Command{
		Name:  "overlap",
		Usage: "measure how much a computation slows down while a large message is sent to another site",
		Flags: []cli.Flag{
			jsonFlag(&o.JSON),
			&cli.IntFlag{Name: "size", Usage: "`BYTES` of the message", Value: 16 << 20, Destination: &o.Size},
			&cli.DurationFlag{Name: "rtt", Usage: "round-trip time between the sites", Value: 10 * time.Millisecond, Destination: &o.RTT},
			&cli.IntFlag{Name: "repeat", Usage: "compute, send, and do both at once `N` times in turn", Value: 15, Destination: &o.Repeat},
			&cli.BoolFlag{Name: "part", Usage: "run one rank of the measurement", Destination: &part, Hidden: true},
		},
		Action: func(c *cli.Context) error {
			if err := o.Check(); err != nil {
				return mistake(c, err)
			}
			if part {
				return overlap.Part(c.Context, c.App.Writer, o.Size, o.Repeat)
			}
			program, err := enterFor(c, 0)
			if err != nil {
				return err
			}
			o.Self, o.Out = program(), c.App.Writer
			return overlap.Run(c.Context, o)
		},
	}
}

// bedFlags are the flags of both applications' benchmarks.
func bedFlags(b *apps.Bed, preset string) []cli.Flag {
	return []cli.Flag{
		jsonFlag(&b.JSON),
		&cli.DurationFlag{Name: "rtt", Usage: "round-trip time between the sites", Value: 20 * time.Millisecond, Destination: &b.RTT},
		&cli.StringFlag{Name: "preset", Usage: "`FIREWALL` of the sites, as for isthmus-lab up", Value: preset, Destination: &b.Preset},
	}
}

// bedAction checks the flags, enters the lab and runs a sweep.
func bedAction(b *apps.Bed, check func(*cli.Context) error, run func(*cli.Context) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		if err := check(c); err != nil {
			return mistake(c, err)
		}
		program, err := enterFor(c, 0)
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
			&cli.Float64Flag{Name: "cpu", Usage: "`CORES` of each site's node, with --mflops 0: processors are then limited, and not emulated (needs root)", Destination: &s.CPU},
			&cli.IntFlag{Name: "repeat", Usage: "factor each matrix `N` times", Value: 1, Destination: &s.Repeat},
		),
		Action: bedAction(&s.Bed, func(c *cli.Context) error {
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
			&cli.BoolFlag{Name: "profile", Usage: "submit each job with a job profile of one group for each site, in place of choosing the nodes", Destination: &s.Profile},
			&cli.IntFlag{Name: "repeat", Usage: "run each `N` times", Value: 1, Destination: &s.Repeat},
		),
		Action: bedAction(&s.Bed, func(c *cli.Context) error {
			s.Processes = c.IntSlice("processes")
			return s.Check()
		}, func(c *cli.Context) error { return s.Run(c.Context) }),
	}
}

// benchAIACCommand is "isthmus-lab bench aiac".
func benchAIACCommand() *cli.Command {
	s := new(apps.AIAC)
	return &cli.Command{
		Name:  "aiac",
		Usage: "solve a sparse system by synchronous and asynchronous iterations on closed sites, at several distances (about five minutes)",
		Flags: []cli.Flag{
			jsonFlag(&s.JSON),
			&cli.StringFlag{Name: "rtt", Usage: "round-trip `TIMES` between the sites, separated by commas", Value: "10ms,20ms,50ms"},
			&cli.StringFlag{Name: "preset", Usage: "`FIREWALL` of the sites, as for isthmus-lab up", Value: "stateful", Destination: &s.Preset},
			&cli.IntFlag{Name: "sites", Usage: "`NUMBER` of sites", Value: 4, Destination: &s.Sites},
			&cli.IntFlag{Name: "nodes", Usage: "`NUMBER` of nodes in each site", Value: 1, Destination: &s.NodesPerSite},
			&cli.IntFlag{Name: "ranks", Usage: "`NUMBER` of ranks in each site, the same on all nodes", Value: 4, Destination: &s.RanksPerSite},
			&cli.IntFlag{Name: "rows", Usage: "`NUMBER` of rows", Value: 4000, Destination: &s.Rows},
			&cli.IntFlag{Name: "band", Usage: "half the `BANDWIDTH` of the matrix", Value: 50, Destination: &s.Band},
			&cli.Float64Flag{Name: "shift", Usage: "row sums, as a `PART` of the elements beside the diagonal: the less, the more iterations", Value: 0.01, Destination: &s.Shift},
			&cli.Float64Flag{Name: "tolerance", Usage: "greatest `RESIDUAL` of a row", Value: 1e-6, Destination: &s.Tolerance},
			&cli.DurationFlag{Name: "step-time", Usage: "how long an iteration takes at least, to emulate processors", Value: 3 * time.Millisecond, Destination: &s.StepTime},
			&cli.Float64SliceFlag{Name: "loss", Usage: "`FRACTIONS` of the packets between sites that are lost, separated by commas; each with all --rtt", Value: cli.NewFloat64Slice(0)},
			&cli.Float64SliceFlag{Name: "cpu", Usage: "`CORES` of each node of a site; the last is that of all further ones (default: not limited)"},
			&cli.BoolFlag{Name: "petsc", Usage: "solve the system by Krylov methods of PETSc, too, as fast as this machine can; with --preset open", Destination: &s.PETSc},
			&cli.IntFlag{Name: "repeat", Usage: "run each mode `N` times, in turn", Value: 1, Destination: &s.Repeat},
		},
		Action: bedAction(&s.Bed, func(c *cli.Context) error {
			s.CPU, s.Losses = c.Float64Slice("cpu"), c.Float64Slice("loss")
			for word := range strings.SplitSeq(c.String("rtt"), ",") {
				rtt, err := time.ParseDuration(word)
				if err != nil || rtt < 0 {
					return fmt.Errorf("--rtt %s: want times, separated by commas", word)
				}
				s.RTTs = append(s.RTTs, rtt)
			}
			return s.Check()
		}, func(c *cli.Context) error { return s.Run(c.Context) }),
	}
}

// benchStripeCommand is "isthmus-lab bench stripe": what a link gains from several
// carriers.
func benchStripeCommand() *cli.Command {
	return &cli.Command{
		Name:  "stripe",
		Usage: "measure what a link gains from several carriers on a long, lossy path and through two proxies (about twenty minutes)",
		Flags: []cli.Flag{
			jsonFlag(nil),
			&cli.IntFlag{Name: "repeat", Value: 5, Usage: "measure each figure `N` times, in turn"},
			&cli.DurationFlag{Name: "rtt", Value: 50 * time.Millisecond, Usage: "round-trip time (default 200ms with --only lossy)"},
			&cli.Float64Flag{Name: "loss", Value: 0.0001, Usage: "`FRACTION` of the packets that the path loses (default 0.01 with --only lossy)"},
			&cli.StringFlag{Name: "only", Usage: "measure only a `path`, only \"proxies\", or, against TCP, a long \"lossy\" path: direct, relayed, with eight carriers and after a move"},
			&cli.IntFlag{Name: "rate", Usage: "with --only path or lossy: `MBIT` a second that the path carries (1000; lossy: 100 and 1000)"},
			&cli.StringFlag{Name: "control", Usage: "with --only lossy: only this congestion `CONTROL`, cubic or bbr"},
			&cli.StringFlag{Name: "figure", Usage: "with --only lossy: only this `FIGURE` beside TCP's, such as eight"},
		},
		Action: func(c *cli.Context) error {
			if err := cmdline.Counts(c, "bench stripe", "repeat"); err != nil {
				return err
			}
			if err := roundTrip(c, "bench stripe", time.Millisecond); err != nil {
				return err
			}
			if loss := c.Float64("loss"); loss < 0 || loss >= 1 {
				return mistake(c, fmt.Errorf("--loss %v: want 0 or more and less than 1", loss))
			}
			only := c.String("only")
			if only != "" && only != "path" && only != "proxies" && only != "lossy" {
				return mistake(c, fmt.Errorf("--only %s: want path, proxies or lossy", only))
			}
			rtt, loss := c.Duration("rtt"), c.Float64("loss")
			if only == "lossy" && !c.IsSet("rtt") {
				rtt = 200 * time.Millisecond
			}
			if only == "lossy" && !c.IsSet("loss") {
				loss = 0.01
			}
			if c.Int("rate") < 0 {
				return mistake(c, fmt.Errorf("--rate %d: want a number of Mbit/s", c.Int("rate")))
			}
			program, err := enter()
			if err != nil {
				return err
			}
			return stripe.Run(c.Context, stripe.Options{
				Repeat: c.Int("repeat"), RTT: rtt, Loss: loss, Rate: int64(c.Int("rate")) * 1e6, Proxy: 1e8,
				Scenario: only, Control: c.String("control"), Figure: c.String("figure"), JSON: c.Bool("json"),
				Binary: suite(program),
				Out:    c.App.Writer, Err: os.Stderr,
			})
		},
	}
}

// benchLaunchCommand is "isthmus-lab bench launch": jobs launched over many nodes.
func benchLaunchCommand() *cli.Command {
	return &cli.Command{
		Name:  "launch",
		Usage: "time jobs from the command until all ranks run, and count messages; or run the allocation experiment of P2P-MPI's paper on 350 live peers",
		Flags: []cli.Flag{
			jsonFlag(nil),
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
				return mistake(c, err)
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
		return mistake(c, fmt.Errorf("--scale %d: want 1 to 10", k))
	}
	sizes := launch.TableSizes
	if c.IsSet("n") {
		sizes = c.IntSlice("n")
	}
	for _, r := range c.IntSlice("r") {
		if r < 1 || r > 10 {
			return mistake(c, fmt.Errorf("-r %d: want 1 to 10", r))
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

// benchLabCommand is "isthmus-lab bench lab": the accuracy and capacity of the lab's WAN emulator
// on this machine.
func benchLabCommand() *cli.Command {
	return &cli.Command{
		Name:  "lab",
		Usage: "measure how precisely the lab's WAN emulator keeps delay, jitter, loss and rate, and its capacity (about two minutes)",
		Flags: []cli.Flag{
			jsonFlag(nil),
		},
		Action: func(c *cli.Context) error {
			if err := lab.Enter(); err != nil {
				return err
			}
			return emulator.Run(c.Context, c.App.Writer, c.Bool("json"))
		},
	}
}
