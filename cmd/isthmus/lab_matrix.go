package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/cmd/internal/matrix"
	"github.com/isthmus-grid/isthmus/internal/lab"
)

// labMatrixCommand is "isthmus lab matrix": every kind of site to every other.
func labMatrixCommand() *cli.Command {
	return &cli.Command{
		Name:  "matrix",
		Usage: "connect every ordered pair of kinds of site, and compare with what the broker predicts",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "presets", Value: "open,port-range,stateful,egress-443,http-proxy,no-route/stateful", Usage: "kinds of site, separated by commas"},
			&cli.DurationFlag{Name: "rtt", Value: 10 * time.Millisecond, Usage: "round-trip time between any two places"},
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object per pair"},
		},
		Action: func(c *cli.Context) error {
			presets := strings.Split(c.String("presets"), ",")
			for _, p := range presets {
				if !slices.Contains(lab.Presets(), p) {
					return usage(fmt.Sprintf("lab matrix: unknown preset %q; known are %s", p, strings.Join(lab.Presets(), ", ")))
				}
			}
			if err := lab.Enter(); err != nil {
				return err
			}
			program, err := self()
			if err != nil {
				return err
			}
			return matrix.Run(c.Context, matrix.Options{
				Presets: presets, RTT: c.Duration("rtt"), JSON: c.Bool("json"),
				Binary: func(daemon string) []string { return program(daemon) },
				Out:    c.App.Writer, Err: os.Stderr,
			})
		},
	}
}
