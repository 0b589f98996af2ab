package main

import (
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/examples/choices/choose"
	"github.com/isthmus-grid/isthmus/examples/multisplit/split"
	"github.com/isthmus-grid/isthmus/examples/npb"
	"github.com/isthmus-grid/isthmus/examples/npb/cg"
	"github.com/isthmus-grid/isthmus/examples/npb/ep"
	"github.com/isthmus-grid/isthmus/examples/npb/ft"
	"github.com/isthmus-grid/isthmus/examples/npb/is"
	"github.com/isthmus-grid/isthmus/examples/npb/kernel"
	"github.com/isthmus-grid/isthmus/examples/npb/mg"
	"github.com/isthmus-grid/isthmus/examples/pingpong/measure"
	"github.com/isthmus-grid/isthmus/examples/ray2mesh/farm"
	"github.com/isthmus-grid/isthmus/examples/rendezvous/meet"
	"github.com/isthmus-grid/isthmus/examples/traffic/storm"
	"github.com/isthmus-grid/isthmus/examples/tsqr/factor"
)

// exampleCommand is "isthmus-lab example": the programs of examples/ under one command, so that one
// executable is enough to try a grid.
func exampleCommand() *cli.Command {
	run := func(main func(args []string) int) cli.ActionFunc {
		return func(c *cli.Context) error {
			if status := main(c.Args().Slice()); status != 0 {
				return cli.Exit("", status) // the program has reported the error
			}
			return nil
		}
	}
	example := func(name, usage string, main func(args []string) int) *cli.Command {
		return &cli.Command{Name: name, Usage: usage, SkipFlagParsing: true, Action: run(main)}
	}
	nas := func(name, usage string, classes []npb.Class, run kernel.Runner) *cli.Command {
		return example(name, "NAS Parallel Benchmark "+strings.ToUpper(name)+": "+usage, func(args []string) int {
			return kernel.Main(name, classes, run, args)
		})
	}
	return &cli.Command{
		Name:  "example",
		Usage: "run one process of an example job; isthmus run starts it",
		Description: "For instance, with the flags of the example after its name (--help lists them):\n\n" +
			"  isthmus run -n 4 isthmus-lab example is --class W",
		Subcommands: []*cli.Command{
			example("pingpong", "measure round trips between two ranks", measure.Main),
			example("traffic", "send between all ranks for a while and check every byte", storm.Main),
			example("ray2mesh", "trace seismic rays through the Earth, distributed by one master or by a boss in each site", farm.Main),
			example("rendezvous", "connect two separately started jobs through a published name", meet.Main),
			example("tsqr", "QR factorization of a tall and skinny matrix, by a tree and column by column", factor.Main),
			example("multisplit", "sparse linear systems, by synchronous and asynchronous iterations", split.Main),
			example("choices", "draw and hear numbers in any order: what replicas of a rank must agree about", choose.Main),
			nas("is", "sort integers", is.Classes, is.Run),
			nas("ep", "random pairs", ep.Classes, ep.Run),
			nas("cg", "sparse matrix, conjugate gradients", cg.Classes, cg.Run),
			nas("mg", "multigrid", mg.Classes, mg.Run),
			nas("ft", "three-dimensional Fourier transforms", ft.Classes, ft.Run),
		},
	}
}
