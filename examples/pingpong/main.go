// Command pingpong measures the round trip of messages between two ranks of
// its job.
//
// Usage: pingpong [--from 0] [--to N] [--reps 20] [--max 1048576] [--json]
//
// Rank --from, 0 by default, sends and rank --to, the last by default, sends
// back. Rank --from prints a line for each message size up to --max bytes:
// median and least round trip, and bytes a second one way. With --json it
// prints one object for each figure. The exit code is 1 if the run failed and
// 2 for a mistake in the arguments.
package main

import (
	"os"

	"github.com/isthmus-grid/isthmus/examples/pingpong/measure"
)

func main() { os.Exit(measure.Main(os.Args[1:])) }
