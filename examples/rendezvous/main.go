// Command rendezvous connects two jobs that were started apart, perhaps at
// different sites and at different times, by a name.
//
// Usage: rendezvous --serve NAME [--times 1]
//
//	rendezvous --join NAME [--wait 30s]
//
// The job that serves publishes the name and waits until other jobs have joined
// it, --times one after the other. Each time every process greets one of the
// other side, and all of both add up their ranks. Rank 0 of each job says what
// it saw. A job that joins waits so long for the name to be published; 0 is not
// at all. The exit code is 1 if the run failed and 2 for a mistake in the
// arguments.
package main

import (
	"os"

	"github.com/isthmus-grid/isthmus/examples/rendezvous/meet"
)

func main() { os.Exit(meet.Main(os.Args[1:])) }
