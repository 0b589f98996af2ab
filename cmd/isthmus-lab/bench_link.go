package main

import (
	"fmt"
	"os"
	"regexp"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/bench/link"
	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
)

// benchLinkCommand is "isthmus-lab bench link": the transport of messages between two processes,
// compared with raw TCP.
func benchLinkCommand() *cli.Command {
	var part, only string
	o := link.Options{Err: os.Stderr}
	return &cli.Command{
		Name:  "link",
		Usage: "measure latency, message rate and bandwidth of links against raw TCP in C and in Go (about five minutes)",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object per figure", Destination: &o.JSON},
			&cli.StringFlag{Name: "only", Usage: "print the rows that match `REGEXP`, of SCENARIO/FIGURE/SIZE/IMPLEMENTATION, such as unlimited/half_round_trip/1/", Destination: &only},
			&cli.IntFlag{Name: "repeat", Usage: "measure each figure `N` times, implementations in turn", Value: 7, Destination: &o.Repeat},
			&cli.StringFlag{Name: "part", Hidden: true, Destination: &part},
		},
		Action: func(c *cli.Context) error {
			if part != "" {
				return link.Part(c.Context, part, os.Stdin, os.Stdout)
			}
			if o.Repeat < 1 {
				return cmdline.Usage(fmt.Sprintf("bench link: --repeat %d: want 1 or more, 5 for reliable figures", o.Repeat))
			}
			if only != "" {
				var err error
				if o.Only, err = regexp.Compile(only); err != nil {
					return cmdline.Usage("bench link: --only: " + err.Error())
				}
			}
			o.Self = []string{"/proc/self/exe", "bench", "link", "--part"}
			return link.Run(c.Context, c.App.Writer, o)
		},
	}
}
