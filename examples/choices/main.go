// Command choices is a job whose output depends on the order of messages, the clock and random numbers, and
// that is right all the same if its ranks have replicas.
//
// Usage: choices [--rounds 20]
//
// Each rank prints what it has drawn, and rank 0 in which order it heard so. The exit code is 1 if the run failed,
// and 2 for a mistake in the arguments.
package main

import (
	"os"

	"github.com/isthmus-grid/isthmus/examples/choices/choose"
)

func main() { os.Exit(choose.Main(os.Args[1:])) }
