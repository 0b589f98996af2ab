// Command ep runs the NAS Parallel Benchmark EP on the ranks of its job, or
// alone without one.
//
// Usage: ep [--class S|W|A|B|C] [--json]
//
// Rank 0 prints the report. The exit code is 1 if a check value is wrong or
// the run failed, and 2 for a mistake in the arguments.
package main

import (
	"os"

	"github.com/isthmus-grid/isthmus/examples/npb/ep"
	"github.com/isthmus-grid/isthmus/examples/npb/kernel"
)

func main() {
	os.Exit(kernel.Main("ep", ep.Classes, ep.Run, os.Args[1:]))
}
