// Command ft runs the NAS Parallel Benchmark FT on the ranks of its job, or
// alone without one. The number of ranks must be a power of two.
//
// Usage: ft [--class S|W|A] [--json]
//
// Rank 0 prints the report. The exit code is 1 if a check value is wrong or
// the run failed, and 2 for a mistake in the arguments.
package main

import (
	"os"

	"github.com/isthmus-grid/isthmus/examples/npb/ft"
	"github.com/isthmus-grid/isthmus/examples/npb/kernel"
)

func main() {
	os.Exit(kernel.Main("ft", ft.Classes, ft.Run, os.Args[1:]))
}
