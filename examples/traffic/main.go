// Command traffic has every rank of its job send to every rank, itself included,
// for a while, and checks every byte.
//
// Usage: traffic [--for 10s] [--max 262144] [--seed 1] [--json]
//
// Sizes are of all orders of magnitude up to --max bytes, in all modes of sending
// and ways of receiving; --seed chooses them. Rank 0 prints when all ranks are
// there and, at the end, what was exchanged and how much memory it took. The exit
// code is 1 if a byte was wrong or the run failed otherwise, and 2 for a mistake in
// the arguments.
package main

import (
	"os"

	"github.com/isthmus-grid/isthmus/examples/traffic/storm"
)

func main() { os.Exit(storm.Main(os.Args[1:])) }
