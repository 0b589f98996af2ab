// Command multisplit solves a sparse linear system by multisplitting over the ranks of its job,
// synchronously and asynchronously.
//
// Usage: multisplit [--system banded|convection] [--rows 20000] [--band 500] [--entries 6] [--shift 0.1]
// [--grid 24] [--steps 1] [--mode sync|async|both] [--tolerance 1e-6] [--reduction 0.001] [--step-time 0] [--checkpoint] [--repeat 1] [--json]
//
// Rank 0 prints a line for each run, with its time, its iterations, the residual of the result and what became of the
// values. The exit code is 1 if the run failed, and 2 for a mistake in the arguments.
package main

import (
	"os"

	"github.com/isthmus-grid/isthmus/examples/multisplit/split"
)

func main() { os.Exit(split.Main(os.Args[1:])) }
