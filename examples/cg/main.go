// Command cg runs the NAS Parallel Benchmark CG on the ranks of its job, or
// alone without one. The number of ranks must be a power of two.
//
// Usage: cg [--class S|W|A] [--json]
//
// Rank 0 prints the report. The exit code is 1 if a check value is wrong or
// the run failed, and 2 for a mistake in the arguments.
package main

import (
	"os"

	"github.com/isthmus-grid/isthmus/examples/npb/cg"
	"github.com/isthmus-grid/isthmus/examples/npb/kernel"
)

func main() {
	os.Exit(kernel.Main("cg", cg.Classes, cg.Run, os.Args[1:]))
}
