package runjob

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/launch/mapping"
)

// checkStrategy returns an error unless the strategy exists, or none is named, and it can do with what is known of the job.
func checkStrategy(name string, hasGraph bool) error {
	needsGraph := slices.Contains(allocate.GraphStrategies, name)
	switch {
	case name == "": // the default
	case !needsGraph && !slices.Contains(allocate.Strategies, name):
		return cmdline.Usage(fmt.Sprintf("run: --strategy %s: want one of %s, or with --graph of %s", name, strings.Join(allocate.Strategies, ", "), strings.Join(allocate.GraphStrategies, ", ")))
	case needsGraph && !hasGraph:
		return cmdline.Usage(fmt.Sprintf("run: --strategy %s places a graph: give one with --graph FILE, or use one of %s", name, strings.Join(allocate.Strategies, ", ")))
	}
	return nil
}

// readGraph reads the file of --graph.
func readGraph(c *cli.Context) (*mapping.Graph, error) {
	for _, other := range []string{"profile", "replicas", "pin-rank0", "pattern"} {
		if c.IsSet(other) {
			return nil, cmdline.Usage(fmt.Sprintf("run: --graph and --%s exclude each other", other))
		}
	}
	file, err := os.Open(c.String("graph"))
	if err != nil {
		return nil, fmt.Errorf("run: --graph: %w", err)
	}
	defer file.Close()
	g, err := mapping.ReadMETIS(file)
	if err != nil {
		return nil, fmt.Errorf("run: --graph: %s: %w", c.String("graph"), err)
	}
	return g, nil
}
