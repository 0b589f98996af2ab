// Command is runs the NAS Parallel Benchmark IS on the ranks of its job, or
// alone without one.
//
// Usage: is [--class S|W|A|B|C] [--json]
//
// Rank 0 prints the report. The exit code is 1 if a check value is wrong or
// the run failed, and 2 for a mistake in the arguments.
package main

import (
	"os"

	"github.com/isthmus-grid/isthmus/examples/npb/is"
	"github.com/isthmus-grid/isthmus/examples/npb/kernel"
)

func main() {
	os.Exit(kernel.Main("is", is.Classes, is.Run, os.Args[1:]))
}
