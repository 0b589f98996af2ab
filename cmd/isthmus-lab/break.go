package main

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/faults"
)

// breakCommand is "isthmus-lab break": what links survive.
func breakCommand() *cli.Command {
	return &cli.Command{
		Name:  "break",
		Usage: "cut a busy link's carrier in every way, for every technique, and check that the stream survives",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "technique", Usage: "only `NAMES`, separated by commas, of: " + strings.Join(faults.Techniques(), ", ")},
			&cli.StringFlag{Name: "cut", Usage: "only `NAMES`, separated by commas, of: " + strings.Join(faults.Cuts(), ", ")},
			&cli.StringFlag{Name: "size", Value: "1GiB", Usage: "minimum `SIZE` of the stream; it is cut at half of it"},
			&cli.DurationFlag{Name: "rtt", Value: 10 * time.Millisecond, Usage: "round-trip time between any two places"},
			&cli.StringFlag{Name: "rate", Value: "1Gbit", Usage: "`RATE` of the network between any two places, or 0 for no limit"},
			&cli.DurationFlag{Name: "away", Value: 20 * time.Second, Usage: "how long a killed daemon or a dropped path stays down"},
			&cli.IntFlag{Name: "repeat", Value: 1, Usage: "do everything `N` times"},
			&cli.DurationFlag{Name: "soak", Usage: "cut nothing; leave a link of the first technique nearly idle for `TIME` and count its changes of carrier"},
			&cli.PathFlag{Name: "logs", Usage: "save the daemons' logs of runs that missed a target to `FOLDER`"},
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object per technique and cut"},
		},
		Action: func(c *cli.Context) error {
			o := faults.Options{
				Techniques: nameList(c.String("technique")), Cuts: nameList(c.String("cut")), RTT: c.Duration("rtt"),
				Away: c.Duration("away"), Repeat: c.Int("repeat"), Logs: c.Path("logs"), JSON: c.Bool("json"), Out: c.App.Writer, Err: os.Stderr,
			}
			var err error
			if o.Size, err = byteCount(c.String("size")); err != nil {
				return cmdline.Usage("break: " + err.Error())
			}
			if o.Rate, err = bitRate(c.String("rate")); err != nil {
				return cmdline.Usage("break: " + err.Error())
			}
			if err := o.Check(); err != nil {
				return cmdline.Usage("break: " + err.Error())
			}
			if err := lab.Enter(); err != nil {
				return err
			}
			if o.Program, err = self(); err != nil {
				return err
			}
			if d := c.Duration("soak"); d > 0 {
				return faults.RunSoak(c.Context, o, d)
			}
			return faults.Run(c.Context, o)
		},
	}
}

// breakEndCommand is one end of a link that is to be broken. It is for breakCommand only.
func breakEndCommand() *cli.Command {
	return &cli.Command{
		Name:   "break-end",
		Usage:  "run one end of a link that the test breaks",
		Hidden: true,
		Action: func(c *cli.Context) error { return faults.RunEnd(c.Context, os.Stdin, os.Stdout) },
	}
}

// nameList splits a list of names; "" is none.
func nameList(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

// byteCount parses a size such as 32MiB.
func byteCount(text string) (uint64, error) {
	n, err := scaled(text, map[string]float64{"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30})
	if err != nil {
		return 0, fmt.Errorf("size %q: %w", text, err)
	}
	return uint64(n), nil
}

// bitRate parses a rate such as 100Mbit.
func bitRate(text string) (int64, error) {
	n, err := scaled(text, map[string]float64{"": 1, "bit": 1, "kbit": 1e3, "Mbit": 1e6, "Gbit": 1e9})
	if err != nil {
		return 0, fmt.Errorf("rate %q: %w", text, err)
	}
	return int64(n), nil
}

// scaled parses a number with a unit.
func scaled(text string, units map[string]float64) (float64, error) {
	digits := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
	scale, ok := units[text[len(digits):]]
	n, err := strconv.ParseFloat(digits, 64)
	if !ok || err != nil || n < 0 || n*scale > math.MaxInt64/2 {
		return 0, fmt.Errorf("want a number and a unit, as in 1%s", someUnit(units))
	}
	return n * scale, nil
}

// someUnit returns the largest unit, as an example.
func someUnit(units map[string]float64) (unit string) {
	for u, scale := range units {
		if scale > units[unit] {
			unit = u
		}
	}
	return unit
}
