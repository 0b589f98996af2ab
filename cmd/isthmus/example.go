package main

import (
	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/examples/npb/ep"
	"github.com/isthmus-grid/isthmus/examples/npb/is"
	"github.com/isthmus-grid/isthmus/examples/npb/kernel"
	"github.com/isthmus-grid/isthmus/examples/pingpong/measure"
)

// exampleCommand is "isthmus example": the programs of examples/, so that one
// binary is enough for the demo.
func exampleCommand() *cli.Command {
	run := func(main func(args []string) int) cli.ActionFunc {
		return func(c *cli.Context) error {
			if status := main(c.Args().Slice()); status != 0 {
				return cli.Exit("", status) // the program has said why
			}
			return nil
		}
	}
	example := func(name, usage string, main func(args []string) int) *cli.Command {
		return &cli.Command{Name: name, Usage: usage, SkipFlagParsing: true, Action: run(main)}
	}
	return &cli.Command{
		Name:  "example",
		Usage: "be a process of an example job, as isthmus run starts it",
		Description: "For instance, with flags of the example behind its name (--help lists them):\n\n" +
			"  isthmus run -n 4 isthmus example is --class W",
		Subcommands: []*cli.Command{
			example("pingpong", "measure round trips between two ranks", measure.Main),
			example("is", "NAS Parallel Benchmark IS: sort integers", func(args []string) int { return kernel.Main("is", is.Classes, is.Run, args) }),
			example("ep", "NAS Parallel Benchmark EP: random pairs", func(args []string) int { return kernel.Main("ep", ep.Classes, ep.Run, args) }),
		},
	}
}
