package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/bench/p2p"
	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
)

// benchP2PCommand is "isthmus-lab bench p2p": messages between ranks, compared with those of Open
// MPI and MPICH.
func benchP2PCommand() *cli.Command {
	var part, only, peers string
	o := p2p.Options{Err: os.Stderr}
	return &cli.Command{
		Name:  "p2p",
		Usage: "measure latency, bandwidth and rate of messages against Open MPI and MPICH (about four minutes)",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object per figure", Destination: &o.JSON},
			&cli.StringFlag{Name: "only", Usage: "print the rows that match `REGEXP`, of SCENARIO/FIGURE/SIZE/IMPLEMENTATION, such as two-nodes/half_round_trip/1/", Destination: &only},
			&cli.IntFlag{Name: "repeat", Usage: "measure each figure `N` times, implementations in turn", Value: 7, Destination: &o.Repeat},
			&cli.StringFlag{Name: "peers", Usage: "compare with `NAMES`, or with none", Value: strings.Join(p2p.PeerNames(), ","), Destination: &peers},
			&cli.StringFlag{Name: "part", Hidden: true, Destination: &part},
		},
		Action: func(c *cli.Context) (err error) {
			if part != "" {
				return p2p.Part(c.Context, part, os.Stdin, os.Stdout)
			}
			if o.Repeat < 1 {
				return cmdline.Usage(fmt.Sprintf("bench p2p: --repeat %d: want 1 or more, 5 for reliable figures", o.Repeat))
			}
			if only != "" {
				if o.Only, err = regexp.Compile(only); err != nil {
					return cmdline.Usage("bench p2p: --only: " + err.Error())
				}
			}
			if o.Peers, err = p2p.ParsePeers(peers); err != nil {
				return cmdline.Usage("bench p2p: --peers: " + err.Error())
			}
			o.Self = []string{"/proc/self/exe", "bench", "p2p", "--part"}
			return p2p.Run(c.Context, c.App.Writer, o)
		},
	}
}
