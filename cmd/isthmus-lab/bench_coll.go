package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/bench/coll"
	"github.com/isthmus-grid/isthmus/collectives/operation"
	"github.com/isthmus-grid/isthmus/lab"
)

// benchCollCommand is "isthmus-lab bench coll": collective calls between sites, compared with their
// lower bound and with other MPIs.
func benchCollCommand() *cli.Command {
	return &cli.Command{
		Name:  "coll",
		Usage: "measure collective calls between sites against their lower bounds, Open MPI and MPICH (an hour or more; less with flags)",
		Description: "Without --sites, --rtt, --rate and --near it measures the standard scenarios: 2 and 4 sites, 8 and 20 ms, 136 Mbit/s and 1 Gbit/s;\n" +
			"2 sites without delay at 100 Mbit/s; and one host, and one site of two. Lists are separated by commas.",
		Flags: []cli.Flag{
			jsonFlag(nil),
			&cli.StringFlag{Name: "only", Usage: "measure the rows that match `REGEXP`, of SCENARIO/COLLECTIVE/SIZE/IMPLEMENTATION, such as 4x4/20ms/1gbit/blocked/bcast/"},
			&cli.StringFlag{Name: "sites", Usage: "`NUMBERS` of sites"},
			&cli.IntFlag{Name: "ranks", Usage: "`N` ranks at each site", Value: 4},
			&cli.IntFlag{Name: "nodes", Usage: "on `N` hosts of each site", Value: 1},
			&cli.StringFlag{Name: "rtt", Usage: "`TIMES` of a round trip between any two sites, such as 8ms,20ms, or 0s for no delay"},
			&cli.StringFlag{Name: "rate", Usage: "`RATES` of each site's link, such as 136mbit,1gbit"},
			&cli.StringFlag{Name: "order", Usage: "`ORDERS` of the ranks: blocked by site, or round-robin over the sites", Value: strings.Join(coll.Orders(), ",")},
			&cli.BoolFlag{Name: "near", Usage: "also within one host, and one site of two"},
			&cli.StringFlag{Name: "collectives", Usage: "call `NAMES`", Value: collectiveNames(coll.Standard())},
			&cli.StringFlag{Name: "sizes", Usage: "`SIZES` of a rank's data (per destination, in an alltoall)", Value: "8B,1KiB,16KiB,64KiB,256KiB,1MiB,4MiB"},
			&cli.IntFlag{Name: "root", Usage: "`RANK` of the root, for rooted collectives"},
			&cli.BoolFlag{Name: "algorithms", Usage: "also measure each of our algorithms"},
			&cli.StringFlag{Name: "flits", Usage: "also measure each of our algorithms that segments messages, with `NUMBERS` of segments"},
			&cli.BoolFlag{Name: "counts", Usage: "instead of times, print how much of our traffic crosses between sites"},
			&cli.BoolFlag{Name: "packets", Usage: "as --counts, and print also what the emulator of the wide area saw"},
			&cli.BoolFlag{Name: "explain", Usage: "measure nothing; print the predicted cost of each algorithm, and the steps of the one that would be chosen"},
			&cli.StringFlag{Name: "peers", Usage: "compare with `NAMES`, or with none", Value: strings.Join(coll.PeerNames(), ",")},
			&cli.IntFlag{Name: "repeat", Usage: "`N` rounds, in each of which all implementations make a call up to five times", Value: 3},
			&cli.DurationFlag{Name: "longest", Usage: "skip measurements whose bytes alone must take longer than `TIME`", Value: time.Second},
			&cli.BoolFlag{Name: "part", Hidden: true},
		},
		Action: func(c *cli.Context) error {
			if c.Bool("part") {
				return coll.Part(c.Context, os.Stdin, os.Stdout)
			}
			o, err := collOptions(c)
			if err != nil {
				return mistake(c, err)
			}
			if c.Bool("explain") {
				return coll.Explain(c.App.Writer, o)
			}
			program, err := enter()
			if err != nil {
				return err
			}
			o.Self, o.Err = program(), os.Stderr
			return coll.Run(c.Context, c.App.Writer, o)
		},
	}
}

// collOptions parses the flags.
func collOptions(c *cli.Context) (o coll.Options, err error) {
	o = coll.Options{
		Ranks: c.Int("ranks"), Nodes: c.Int("nodes"), Local: c.Bool("near"), Root: c.Int("root"), Algorithms: c.Bool("algorithms"),
		Counts: c.Bool("counts") || c.Bool("packets"), Packets: c.Bool("packets"), Repeat: c.Int("repeat"), Longest: c.Duration("longest"), JSON: c.Bool("json"),
		Orders: parts(c.String("order")),
	}
	if c.String("peers") != "none" && !o.Counts {
		o.Peers = parts(c.String("peers"))
	}
	if o.Collectives, err = list(c, "collectives", operation.Parse); err != nil {
		return o, err
	}
	if o.Sites, err = list(c, "sites", strconv.Atoi); err != nil {
		return o, err
	}
	if o.RTT, err = list(c, "rtt", time.ParseDuration); err != nil {
		return o, err
	}
	if o.Rate, err = list(c, "rate", lab.ParseRate); err != nil {
		return o, err
	}
	if o.Flits, err = list(c, "flits", strconv.Atoi); err != nil {
		return o, err
	}
	sizes, err := list(c, "sizes", lab.ParseBytes)
	if err != nil {
		return o, err
	}
	for _, s := range sizes {
		o.Sizes = append(o.Sizes, int(s))
	}
	if only := c.String("only"); only != "" {
		if o.Only, err = regexp.Compile(only); err != nil {
			return o, fmt.Errorf("--only: %w", err)
		}
	}
	return o, o.Check()
}

// list parses a flag with comma-separated parts.
func list[T any](c *cli.Context, flag string, parse func(string) (T, error)) (all []T, err error) {
	for _, word := range parts(c.String(flag)) {
		v, err := parse(word)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", flag, err)
		}
		all = append(all, v)
	}
	return all, nil
}

// parts splits text at commas.
func parts(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

// collectiveNames joins the names of operations, as the flag takes them.
func collectiveNames(all []operation.Operation) string {
	var words []string
	for _, o := range all {
		words = append(words, o.String())
	}
	return strings.Join(words, ",")
}
