// Command tsqr factors tall and skinny matrices over the ranks of its job, by a
// tree that crosses between sites once for each site and, to compare, column by
// column, and proves the factors.
//
// Usage: tsqr [--rows 65536] [--cols 64] [--method tsqr|columns|both]
// [--domains 0] [--repeat 3] [--mflops 0] [--json]
//
// Rank 0 prints a line for each matrix and method, with its time, its messages
// and how many of them crossed between sites. The exit code is 1 if the run
// failed or a factor is wrong, and 2 for a mistake in the arguments.
package main

import (
	"os"

	"github.com/isthmus-grid/isthmus/examples/tsqr/factor"
)

func main() { os.Exit(factor.Main(os.Args[1:])) }
