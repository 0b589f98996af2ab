// Command mg runs the NAS Parallel Benchmark MG on the ranks of its job, or
// alone without one. The number of ranks must be a power of two.
//
// Usage: mg [--class S|W|A] [--json]
//
// Rank 0 prints the report. The exit code is 1 if a check value is wrong or
// the run failed, and 2 for a mistake in the arguments.
package main

import (
	"os"

	"github.com/isthmus-grid/isthmus/examples/npb/kernel"
	"github.com/isthmus-grid/isthmus/examples/npb/mg"
)

func main() {
	os.Exit(kernel.Main("mg", mg.Classes, mg.Run, os.Args[1:]))
}
