package main

import (
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/bench/replicas"
	"github.com/isthmus-grid/isthmus/lab"
)

// benchReplicasCommand is "isthmus-lab bench replicas": what replicas of ranks cost.
func benchReplicasCommand() *cli.Command {
	var part, only string
	o := replicas.Options{For: time.Second, Err: os.Stderr}
	return &cli.Command{
		Name:  "replicas",
		Usage: "measure what replicas of ranks cost, against as many jobs without replicas at once (about twenty minutes)",
		Flags: []cli.Flag{
			jsonFlag(&o.JSON),
			&cli.StringFlag{Name: "only", Usage: "measure what matches `REGEXP`, of SCENARIO/WHAT, such as site/trips or growth/is", Destination: &only},
			&cli.StringFlag{Name: "class", Usage: "`CLASS` of the NAS kernels: S, W, A or B", Value: "A", Destination: &o.Class},
			&cli.IntSliceFlag{Name: "ranks", Usage: "run IS at 100 Mb/s on `N` ranks; may be repeated", Value: cli.NewIntSlice(4, 8)},
			&cli.IntFlag{Name: "replicas", Usage: "and on 1 to `N` replicas of each", Value: 4, Destination: &o.Most},
			&cli.IntFlag{Name: "repeat", Usage: "measure each `N` times, in turn", Value: 5, Destination: &o.Repeat},
			partFlag(&part),
		},
		Action: func(c *cli.Context) (err error) {
			if part != "" {
				return replicas.Part(c.Context, part, os.Stdin, os.Stdout)
			}
			if o.Only, err = repeatAndOnly(c, o.Repeat, only); err != nil {
				return err
			}
			o.Ranks = c.IntSlice("ranks")
			if err := o.Check(); err != nil {
				return mistake(c, err)
			}
			if err := lab.Enter(); err != nil {
				return err
			}
			o.Self, o.Out = selfPart(c), c.App.Writer
			return replicas.Run(c.Context, o)
		},
	}
}
