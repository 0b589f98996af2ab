package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/bench/broker"
	"github.com/isthmus-grid/isthmus/bench/coll"
	"github.com/isthmus-grid/isthmus/bench/link"
	"github.com/isthmus-grid/isthmus/bench/p2p"
	"github.com/isthmus-grid/isthmus/bench/plot"
	"github.com/isthmus-grid/isthmus/bench/relay"
	"github.com/isthmus-grid/isthmus/bench/scale"
	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
)

// benchCommand is "isthmus-lab bench".
func benchCommand() *cli.Command {
	return &cli.Command{
		Name:  "bench",
		Usage: "measure performance against a baseline",
		Subcommands: []*cli.Command{
			benchSetupCommand(), benchCrowdCommand(), benchRelayCommand(), benchScaleCommand(), benchLinkCommand(), benchP2PCommand(), benchABICommand(), benchOverlapCommand(),
			benchTSQRCommand(), benchRay2meshCommand(), benchAIACCommand(), benchCollCommand(), benchStripeCommand(), benchBrokerCommand(), benchLabCommand(), benchPlotCommand(), benchLearnCommand(), benchLaunchCommand(), benchReplicasCommand(), benchPaperCommand(),
		},
	}
}

// jsonFlag is the flag of every benchmark that prints rows.
func jsonFlag(to *bool) cli.Flag {
	return &cli.BoolFlag{Name: "json", Usage: "print one JSON object per figure", Destination: to}
}

// partFlag is the flag that makes this program another process of a benchmark.
func partFlag(to *string) cli.Flag {
	return &cli.StringFlag{Name: "part", Hidden: true, Destination: to}
}

// selfPart is the command line of this program as a part, less the part's name.
func selfPart(c *cli.Context) []string {
	return []string{"/proc/self/exe", "bench", c.Command.Name, "--part"}
}

// mistake is Usage of a benchmark.
func mistake(c *cli.Context, err error) error {
	return cmdline.Usage("bench " + c.Command.Name + ": " + err.Error())
}

// enterFor enters the lab if a benchmark's round-trip time is least or more.
func enterFor(c *cli.Context, least time.Duration) (program func(words ...string) []string, err error) {
	if err := roundTrip(c, "bench "+c.Command.Name, least); err != nil {
		return nil, err
	}
	return enter()
}

// repeatAndOnly checks the flags of those that measure implementations in turn.
func repeatAndOnly(c *cli.Context, repeat int, text string) (only *regexp.Regexp, err error) {
	if repeat < 1 {
		return nil, mistake(c, fmt.Errorf("--repeat %d: want 1 or more, 5 for reliable figures", repeat))
	}
	if text == "" {
		return nil, nil
	}
	if only, err = regexp.Compile(text); err != nil {
		return nil, mistake(c, fmt.Errorf("--only: %w", err))
	}
	return only, nil
}

// benchLinkCommand is "isthmus-lab bench link": the transport of messages between two processes,
// compared with raw TCP.
func benchLinkCommand() *cli.Command {
	var part, only string
	o := link.Options{Err: os.Stderr}
	return &cli.Command{
		Name:  "link",
		Usage: "measure latency, message rate and bandwidth of links against raw TCP in C and in Go (about five minutes)",
		Flags: []cli.Flag{
			jsonFlag(&o.JSON),
			&cli.StringFlag{Name: "only", Usage: "print the rows that match `REGEXP`, of SCENARIO/FIGURE/SIZE/IMPLEMENTATION, such as unlimited/half_round_trip/1/", Destination: &only},
			&cli.IntFlag{Name: "repeat", Usage: "measure each figure `N` times, implementations in turn", Value: 7, Destination: &o.Repeat},
			partFlag(&part),
		},
		Action: func(c *cli.Context) (err error) {
			if part != "" {
				return link.Part(c.Context, part, os.Stdin, os.Stdout)
			}
			if o.Only, err = repeatAndOnly(c, o.Repeat, only); err != nil {
				return err
			}
			o.Self = selfPart(c)
			return link.Run(c.Context, c.App.Writer, o)
		},
	}
}

// benchP2PCommand is "isthmus-lab bench p2p": messages between ranks, compared with those of Open
// MPI and MPICH.
func benchP2PCommand() *cli.Command {
	return messagesCommand("p2p", "measure latency, bandwidth and rate of messages against Open MPI and MPICH (about four minutes)")
}

// benchABICommand is "isthmus-lab bench abi": the same of programs in C, and more.
func benchABICommand() *cli.Command {
	return messagesCommand("abi", "measure a program in C with our library, Open MPI and MPICH: messages, threads, start (about six minutes)")
}

// messagesCommand is a command of package p2p.
func messagesCommand(name, usage string) *cli.Command {
	var part, only, peers string
	o := p2p.Options{Err: os.Stderr}
	return &cli.Command{
		Name:  name,
		Usage: usage,
		Flags: []cli.Flag{
			jsonFlag(&o.JSON),
			&cli.StringFlag{Name: "only", Usage: "print the rows that match `REGEXP`, of SCENARIO/FIGURE/SIZE/IMPLEMENTATION, such as two-nodes/half_round_trip/1/", Destination: &only},
			&cli.IntFlag{Name: "repeat", Usage: "measure each figure `N` times, implementations in turn", Value: 7, Destination: &o.Repeat},
			&cli.StringFlag{Name: "peers", Usage: "compare with `NAMES`, or with none", Value: strings.Join(p2p.PeerNames(), ","), Destination: &peers},
			partFlag(&part),
		},
		Action: func(c *cli.Context) (err error) {
			if part != "" {
				return p2p.Part(c.Context, os.Stdin, os.Stdout)
			}
			if o.Only, err = repeatAndOnly(c, o.Repeat, only); err != nil {
				return err
			}
			if o.Peers, err = p2p.ParsePeers(peers); err != nil {
				return mistake(c, fmt.Errorf("--peers: %w", err))
			}
			o.Self = append(selfPart(c), "rank")
			if name == "abi" {
				self, err := os.Executable()
				if err != nil {
					return err
				}
				o.Compiler = []string{self, suiteName, "cc"}
			}
			return p2p.Run(c.Context, c.App.Writer, o)
		},
	}
}

// benchRelayCommand is "isthmus-lab bench relay": the cost of a relay.
func benchRelayCommand() *cli.Command {
	var part string
	var o relay.Options
	return &cli.Command{
		Name:  "relay",
		Usage: "measure throughput and latency through a proxy against direct TCP",
		Flags: []cli.Flag{
			jsonFlag(&o.JSON),
			&cli.IntFlag{Name: "repeat", Usage: "measure each comparison `N` times", Value: 7, Destination: &o.Repeat},
			partFlag(&part),
		},
		Action: func(c *cli.Context) error {
			if part != "" {
				return relay.Part(c.Context, part, os.Stdin, os.Stdout)
			}
			if err := cmdline.Counts(c, "bench relay", "repeat"); err != nil {
				return err
			}
			o.Self = selfPart(c)
			return relay.Run(c.Context, c.App.Writer, o)
		},
	}
}

// benchScaleCommand is "isthmus-lab bench scale": the capacity of a proxy and a frontal.
func benchScaleCommand() *cli.Command {
	o := scale.Options{Err: os.Stderr}
	var part, rate string
	return &cli.Command{
		Name:  "scale",
		Usage: "load a proxy with links that share its rate, and a frontal with helpers and processes; measure fairness, memory, descriptors",
		Flags: []cli.Flag{
			jsonFlag(&o.JSON),
			&cli.IntFlag{Name: "links", Usage: "`N` links through the proxy; 0 leaves it out", Value: 2000, Destination: &o.Links},
			&cli.StringFlag{Name: "rate", Usage: "`RATE` of the proxy, which the links share", Value: "400Mbit/s", Destination: &rate},
			&cli.DurationFlag{Name: "for", Usage: "how long to count the bytes they move", Value: 10 * time.Second, Destination: &o.For},
			&cli.IntFlag{Name: "helpers", Usage: "`N` helpers of the frontal; 0 leaves it out", Value: 1000, Destination: &o.Helpers},
			&cli.IntFlag{Name: "processes", Usage: "`N` processes of all helpers together", Value: 10000, Destination: &o.Processes},
			partFlag(&part),
		},
		Action: func(c *cli.Context) error {
			if part != "" {
				return scale.Part(c.Context, part, os.Stdin, os.Stdout)
			}
			if err := o.Rate.UnmarshalText([]byte(rate)); err != nil {
				return mistake(c, fmt.Errorf("--rate: %w", err))
			}
			if err := o.Check(); err != nil {
				return mistake(c, err)
			}
			o.Self = selfPart(c)
			o.Out = c.App.Writer
			return scale.Run(c.Context, o)
		},
	}
}

// benchBrokerCommand is "isthmus-lab bench broker": the throughput of a broker on one core.
func benchBrokerCommand() *cli.Command {
	var o broker.Options
	return &cli.Command{
		Name:  "broker",
		Usage: "measure requests answered on one core, and memory per registered process",
		Flags: []cli.Flag{
			jsonFlag(&o.JSON),
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

// benchPlotCommand is "isthmus-lab bench plot": figures of measurements.
func benchPlotCommand() *cli.Command {
	return &cli.Command{
		Name:      "plot",
		Usage:     "plot the --json output of other benchmarks: a PNG file per figure, with a line for each implementation and algorithm",
		ArgsUsage: "FILE...",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "o", Usage: "`FOLDER` for the pictures, created if missing", Value: "."},
		},
		Action: func(c *cli.Context) error {
			if c.NArg() == 0 {
				return cmdline.Usage("bench plot: name an output file of a benchmark's --json")
			}
			return plot.Run(c.Args().Slice(), c.String("o"), c.App.Writer)
		},
	}
}

// benchLearnCommand is "isthmus-lab bench learn": corrections of predictions from measurements.
func benchLearnCommand() *cli.Command {
	return &cli.Command{
		Name:      "learn",
		Usage:     "print the prediction errors found by bench coll --algorithms --json: a file for ISTHMUS_COLL_LEARNED",
		ArgsUsage: "FILE...",
		Action: func(c *cli.Context) error {
			if c.NArg() == 0 {
				return cmdline.Usage("bench learn: name an output file of bench coll --algorithms --json")
			}
			rows, err := bench.ReadFiles(c.Args().Slice())
			if err == nil {
				err = coll.Learn(rows, c.App.Writer)
			}
			if err != nil {
				return fmt.Errorf("bench learn: %w", err)
			}
			return nil
		},
	}
}
