// Command ray2mesh traces seismic rays through a mesh of the Earth on the ranks of
// its job: a master deals chunks of rays to workers, or to bosses who deal them to
// the workers of their sites.
//
// Usage: ray2mesh [--pattern auto|vanilla|hierarchical] [--rays 2000]
// [--stations 40] [--chunk 10] [--big 0] [--credit 1] [--speed 0] [--handling 0]
// [--repeat 1] [--check=true] [--json]
//
// Rank 0 prints a line for each pattern, with the time of each phase and how many
// messages crossed between sites. The exit code is 1 if the run failed or a
// result is wrong, and 2 for a mistake in the arguments.
package main

import (
	"os"

	"github.com/isthmus-grid/isthmus/examples/ray2mesh/farm"
)

func main() { os.Exit(farm.Main(os.Args[1:])) }
